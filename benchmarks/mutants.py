"""Break two source trees in the same small ways and compare how often tests notice.

    git worktree add ../before 5d358af
    python -m benchmarks.mutants --before ../before --count 200 --seed 0 --out FILE

Each mutant changes one operator, comparison, constant or condition of the engine, the
numerics or the statistics, in a copy of each tree, and is judged by that tree's tests
under one rule: see `mutation/`. A mutant that one tree alone kills is tried again in
the other with more time, a test of the killer's name first. FILE is written after each;
a second call goes on from it, and with more `--seconds` asks trees again about what
they did not notice.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.mutation.drawing import PACKAGE, Mutant, draw
from benchmarks.mutation.judging import Judge, Verdict, copy_tree, import_libraries

ROOT = Path(__file__).parents[1]
MEMORY = Path("/dev/shm")
SIDES = ("before", "after")
AGAIN = 5  # times the seconds, for the tree that missed what the other noticed
judges: dict[str, Judge] = {}  # of this process


def prepare(folder: str, before: Path) -> None:
    """Give this process copies of both trees."""
    place = Path(folder) / str(os.getpid())
    for side, tree in zip(SIDES, (before, ROOT), strict=True):
        copy_tree(tree, place / side)
        judges[side] = Judge(place / side)


def judged(task: tuple[Mutant, float, dict[str, Any]]) -> dict[str, Any]:
    """Judge a mutant in both trees; the result is a line of the file."""
    mutant, seconds, earlier = task
    verdicts: dict[str, Verdict] = {}
    for side in SIDES:
        known = Verdict(**earlier[side]) if earlier else None
        if known and known.is_killed:
            verdicts[side] = known
        else:
            verdicts[side] = judges[side].judge(getattr(mutant, side), seconds)
    killed = [side for side in SIDES if verdicts[side].is_killed]
    for side in SIDES:
        if killed and side not in killed:
            edit, killer = getattr(mutant, side), verdicts[killed[0]].killer
            verdicts[side] = judges[side].judge(edit, AGAIN * seconds, killer)
    return {
        "mutant": mutant.name,
        "room": mutant.room,
        "function": mutant.function,
        "statement": mutant.statement,
        "text": mutant.after.text,
        "limit": seconds,
        "place_before": f"{mutant.before.path}:{mutant.before.line}",
        **{side: asdict(verdicts[side]) for side in SIDES},
        "left_out": {side: list(judges[side].broken) for side in SIDES},
    }


def summary(lines: list[dict[str, Any]]) -> list[str]:
    """Return the table of killed mutants by room."""
    counts: dict[str, Counter[str]] = {}
    for line in lines:
        before, after = (int(line[side]["killer"] != "") for side in SIDES)
        entry = {
            "mutants": 1,
            "before": before,
            "after": after,
            "only before": int(before > after),
            "only after": int(after > before),
        }
        for room in (line["room"], "all"):
            counts.setdefault(room, Counter()).update(entry)
    rows = sorted(counts, key=lambda room: (room == "all", room))
    heads = ("mutants", "before", "after", "only before", "only after")
    return [
        f"| room | {' | '.join(heads)} |",
        f"|---|{'---|' * len(heads)}",
        *(f"| {r} | {' | '.join(str(counts[r][h]) for h in heads)} |" for r in rows),
    ]


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Return the lines of the file, if there is one, by mutant."""
    text = path.read_text(encoding="utf-8") if path.exists() else "[]"
    return {line["mutant"]: line for line in json.loads(text)}


def is_judged(line: dict[str, Any], seconds: float) -> bool:
    """Return whether both trees noticed a mutant, or were asked for so long."""
    return all(line[side]["killer"] for side in SIDES) or line["limit"] >= seconds


def write(path: Path, lines: list[dict[str, Any]]) -> None:
    """Write the file, one line a mutant."""
    body = ",\n".join(json.dumps(line) for line in lines)
    path.with_suffix(".part").write_text(f"[\n{body}\n]\n", encoding="utf-8")
    path.with_suffix(".part").replace(path)


def main() -> None:
    """Draw mutants, run their tests, print and write what was killed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--before", type=Path, required=True, help="the other checkout")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="part of the place of a mutant")
    parser.add_argument("--seconds", type=float, default=12, help="processor time each")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("mutants.json"))
    options = parser.parse_args()
    before = options.before.resolve()
    if not (before / PACKAGE).is_dir():
        parser.error(f"--before: expected a checkout, got {options.before}")
    lines = read(options.out)
    done = {m for m, line in lines.items() if is_judged(line, options.seconds)}
    mutants = draw(ROOT, before, options.count, options.seed)
    mutants = [m for m in mutants if options.only in m.name and m.name not in done]
    mutants.sort(key=lambda mutant: mutant.name in lines)  # new ones first
    import_libraries()
    sys.stdout.flush()
    memory = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="mutants-", dir=memory) as folder:
        forks = multiprocessing.get_context("fork")
        tasks = [(m, options.seconds, lines.get(m.name, {})) for m in mutants]
        with forks.Pool(options.processes, prepare, (folder, before)) as pool:
            for line in pool.imap_unordered(judged, tasks):
                lines[line["mutant"]] = line
                write(options.out, [*lines.values()])
                killers = (line[side]["killer"] or "SURVIVED" for side in SIDES)
                print(f"{line['mutant']}: {' / '.join(killers)}", flush=True)
    print("\n".join(summary([*lines.values()])))


if __name__ == "__main__":
    main()
