"""Disturb runs for some minutes: `make chaos`, `make chaos SEED=3 EPISODES=1`.

Each episode has a seed of its own, which is printed and which repeats it. Faults come
at counted operations of a process, and come there again; two processes at once, and
faults of servers, also depend on who is faster.
"""

import argparse
import logging
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from tests import forkserver
from tests.chaos.episodes import Episode, Services
from tests.chaos.places import KINDS, kind_of

FAILING = Path("build/chaos/failing")
ROOM = 4 << 30  # bytes free in memory for stores to lie there


def play(
    seed: int, folder: Path, services: Services, *, only: str | None = None
) -> Episode:
    """Play the episode of a seed in a folder that is not there yet."""
    kind = KINDS[only] if only else kind_of(seed)
    episode = kind(seed, folder, services)
    try:
        episode.perform(episode.draw.randint(3, 8))
    except BaseException as error:
        error.add_note(f"actions: {'; '.join(episode.done)}")
        raise
    return episode


def memory_folder() -> str | None:
    """Return a folder in memory, if there is room."""
    memory = Path("/dev/shm")
    room = memory.is_dir() and shutil.disk_usage(memory).free > ROOM
    return str(memory) if room else None


def main() -> None:
    """Play episodes until the time is over, and print what was done."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--episodes", type=int, default=None)
    parser.add_argument("--only", choices=sorted(KINDS), default=None)
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    logging.getLogger("curvflow").setLevel(logging.ERROR)  # torn entries are meant
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # servers end as well
    forkserver.running()
    begin, tally, failed = time.monotonic(), Counter[str](), []
    with (
        tempfile.TemporaryDirectory(dir=memory_folder()) as home,
        Services(Path(home)) as services,
    ):
        number = 0
        while (
            time.monotonic() - begin < 60 * given.minutes and number != given.episodes
        ):
            folder = Path(home) / f"{seed + number}"
            failed += _episode(seed + number, folder, services, given.only, tally)
            shutil.rmtree(folder, ignore_errors=True)
            number += 1
    _summary(seed, number, time.monotonic() - begin, tally, failed)
    sys.exit(1 if failed else 0)


def _episode(
    seed: int, folder: Path, services: Services, only: str | None, tally: Counter[str]
) -> list[int]:
    started = time.monotonic()
    try:
        episode = play(seed, folder, services, only=only)
    except Exception:
        kept = FAILING / str(seed)
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(folder, kept, ignore_dangling_symlinks=True)
        which = f" ONLY={only}" if only else ""
        _say(traceback.format_exc())
        _say(f"kept in {kept}; again: make chaos SEED={seed} EPISODES=1{which}\n")
        return [seed]
    tally.update(episode.tally)
    tally[f"episodes: {episode.name}"] += 1
    seconds = time.monotonic() - started
    _say(f"{seed} {episode.name} {seconds:.0f} s: {'; '.join(episode.done)}\n")
    return []


def _summary(
    seed: int, number: int, seconds: float, tally: Counter[str], failed: list[int]
) -> None:
    counts = ", ".join(f"{count:,} {what}" for what, count in sorted(tally.items()))
    _say(f"seed {seed}, {number} episodes in {seconds:.0f} s: {counts}\n")
    _say(f"{len(failed)} failed{': ' if failed else ''}{' '.join(map(str, failed))}\n")


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
