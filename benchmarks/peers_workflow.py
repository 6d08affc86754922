"""Run one study of 1,000 nodes that compute nothing through curvflow and its peers.

    python benchmarks/peers_workflow.py [--venv FOLDER] [--repeats N] [--limit SECONDS]

500 nodes depend on a rate, a seed and a repeat, 500 more on one of these each; every
node stores 100 numbers. Timed is the whole process of the first run, of a run with
nothing left to do, and of one after one rate of ten has changed, so that a tenth of
the nodes is computed. Every node that is computed leaves a mark, and marks are counted
after each run. The systems take turns, so that other load on the machine hits all
alike. Peers are installed beforehand, each into an environment of its own, and their
data bases are made before the first run; what cannot be installed or fails is listed
with the reason. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ruamel.yaml import YAML

HERE = Path(__file__).parent
CONSTRAINTS = HERE / "requirements-peers-workflow.txt"
SLOW = 300.0  # seconds of one repetition, above which a system is not run again
PHASES = ("first run", "nothing to do", "one rate changed")


class FailedError(Exception):
    """A system that could not be installed or did not do what it was asked."""


@dataclass(frozen=True)
class Grid:
    """Points of the first stage; the second has as many."""

    rates: int = 10
    seeds: int = 10
    repeats: int = 5

    @property
    def expected(self) -> tuple[int, int, int]:
        """Nodes computed in each phase."""
        of_one_rate = 2 * self.seeds * self.repeats
        return self.rates * of_one_rate, 0, of_one_rate

    def labelled(self, *, changed: bool) -> dict[str, float]:
        """Rates by name, all below 2; the last one may be changed."""
        rates = {f"r{index}": (index + 1) / 10 for index in range(self.rates)}
        return rates | ({f"r{self.rates - 1}": 1.95} if changed else {})


@dataclass(frozen=True)
class System:
    """How one system is installed, prepared and run, in a folder with `workflows/`.

    Attributes:
        name: of its package.
        command: what is timed.
        how: the settings, for the reader of the table.
        prepare: commands run once in a new folder, not timed.
        extra: packages beside its own.
        environment: variables; `{folder}` stands for the folder.
    """

    name: str
    command: Sequence[str]
    how: str
    prepare: Sequence[Sequence[str]] = ()
    extra: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Measured:
    """What became of one system: seconds by phase, or why there are none."""

    system: System
    bin: Path
    version: str = ""
    seconds: list[list[float]] = field(default_factory=lambda: [[], [], []])
    failure: str = ""

    @property
    def again(self) -> bool:
        """Whether another repetition is worth its time."""
        total = sum(times[0] for times in self.seconds if times)
        return not self.failure and total < SLOW


CURVFLOW = System(
    "curvflow",
    ("curvflow", "run", "study.yaml", "--workers", "1"),
    "kinds of the user's own, computed node by node in the run's own process",
)
PEERS = (
    System(
        "joblib",
        ("python", "with_joblib.py"),
        "`Memory`, a loop over cached functions",
        extra=("numpy",),
    ),
    System(
        "redun",
        ("redun", "--log-level", "WARN", "run", "with_redun.py", "main"),
        "its default of 20 threads and SQLite",
        prepare=(("redun", "init"),),
        extra=("numpy",),
    ),
    System(
        "snakemake",
        ["snakemake", "--cores", "all", "--scheduler", "greedy", "--quiet", "all"],
        "a file and a `shell:` command per node, all cores, the fast scheduler",
    ),
    System(
        "dvc",
        ("dvc", "repro", "--quiet", "--all-pipelines"),
        "a file and a command per node, a folder with its own `dvc.yaml` per rate",
        prepare=(
            ("dvc", "init", "--quiet", "--no-scm"),
            ("dvc", "config", "core.analytics", "false"),
            ("dvc", "config", "core.check_update", "false"),
        ),
        environment={"DVC_SITE_CACHE_DIR": "{folder}/site"},
    ),
    System(
        "prefect",
        ("python", "with_prefect.py"),
        "mapped tasks on threads, `cache_policy=INPUTS`, `persist_result=True`, "
        "ephemeral server",
        prepare=(("prefect", "server", "database", "upgrade", "--yes"),),
        extra=("numpy", "fastapi", "sqlalchemy"),
        environment={
            "PREFECT_HOME": "{folder}/prefect",
            "PREFECT_LOGGING_LEVEL": "ERROR",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_SERVER_UI_ENABLED": "false",
            # Its 20 s are too few on a busy machine.
            "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "300",
            "DO_NOT_TRACK": "1",
        },
    ),
)


def main() -> None:
    options = parsed()
    entries = [Measured(CURVFLOW, Path(sys.executable).parent)]
    entries += [Measured(peer, options.venv / peer.name / "bin") for peer in PEERS]
    for entry in entries:
        make_ready(entry)
    with suppress(KeyboardInterrupt):  # what has been measured is shown all the same
        for repeat in range(options.repeats):
            turn = repeat % len(entries)
            for entry in entries[turn:] + entries[:turn]:
                if entry.again:
                    measure(entry, Grid(), options.limit)
    print(table(entries, Grid()))


def parsed() -> argparse.Namespace:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--venv", type=Path, default=Path(cache) / "curvflow-peers", metavar="FOLDER"
    )
    parser.add_argument("--repeats", type=int, default=3, metavar="N")
    parser.add_argument("--limit", type=float, default=900.0, metavar="SECONDS")
    return parser.parse_args()


def make_ready(entry: Measured) -> None:
    """Install a peer under the constraints, if need be, and note its version."""
    python = str(entry.bin / "python")
    ask = "from importlib.metadata import version; print(version('{}'))"
    packages = (entry.system.name, *entry.system.extra)
    try:
        if entry.system is not CURVFLOW:
            told(f"{entry.system.name}: installing")
            if not entry.bin.exists():
                run([sys.executable, "-m", "venv", str(entry.bin.parent)])
            install = ["-m", "pip", "install", "--quiet", "-c", str(CONSTRAINTS)]
            run([python, *install, *packages])
        entry.version = run([python, "-c", ask.format(entry.system.name)]).strip()
    except FailedError as error:
        entry.failure = f"not installed: {error}"


def measure(entry: Measured, grid: Grid, limit: float) -> None:
    """Add one repetition to an entry, as far as it gets."""
    try:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            times = repetition(entry.system, entry.bin, grid, Path(folder), limit)
            for phase, seconds in enumerate(times):
                entry.seconds[phase].append(seconds)
                told(f"{entry.system.name}: {PHASES[phase]} {seconds:.2f} s")
    except FailedError as error:
        entry.failure = str(error)
        told(f"{entry.system.name}: {error}")


def repetition(
    system: System, programs: Path, grid: Grid, folder: Path, limit: float
) -> Iterator[float]:
    """Yield the seconds of each phase in an empty folder, which it fills.

    Args:
        system: what to run.
        programs: where its programs are.
        grid: the points.
        folder: an empty one.
        limit: seconds allowed to each command.

    Yields:
        Wall time of the whole process.

    Raises:
        FailedError: a command failed or took too long, or computed other nodes than
            those that it should.
    """
    calls = folder / "calls"
    own = {k: v.format(folder=folder) for k, v in system.environment.items()}
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    base = {"PATH": path, "CALLS": str(calls), "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **base, **own}
    shutil.copytree(HERE / "workflows", folder, dirs_exist_ok=True)
    calls.touch()
    write_grid(folder, grid, changed=False)
    for command in system.prepare:
        run(command, folder, environment, limit)
    for phase, expected in zip(PHASES, grid.expected, strict=True):
        write_grid(folder, grid, changed=phase == PHASES[-1])
        before, started = calls.stat().st_size, time.perf_counter()
        run(system.command, folder, environment, limit)
        seconds = time.perf_counter() - started
        computed = calls.stat().st_size - before
        if computed != expected:
            raise FailedError(
                f"{phase}: expected {expected} nodes computed, got {computed}"
            )
        yield seconds


def write_grid(folder: Path, grid: Grid, *, changed: bool) -> None:
    """Write the points in the forms that the systems read."""
    rates = grid.labelled(changed=changed)
    plain = {"rates": rates, "seeds": grid.seeds, "repeats": grid.repeats}
    (folder / "grid.json").write_text(json.dumps(plain))
    for label, rate in rates.items():
        points = {
            f"{seed}-{repeat}": {"rate": rate, "seed": seed, "repeat": repeat}
            for seed in range(grid.seeds)
            for repeat in range(grid.repeats)
        }
        part = folder / label
        for stage in ("first", "second"):
            (part / stage).mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / "dvc-part.yaml", part / "dvc.yaml")
        (part / "points.json").write_text(json.dumps({"points": points}))
    study = YAML(typ="safe").load(HERE / "workflows" / "study.yaml")
    study["axes"] = {"rate": rates, "seed": grid.seeds, "repeat": grid.repeats}
    (folder / "study.yaml").write_text(json.dumps(study))


def run(
    command: Sequence[str],
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    limit: float | None = None,
) -> str:
    """Run a command to its end, with all that it started, and return its output."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            raise FailedError(f"took more than {limit:.0f} s") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        said.seek(0)
        text = said.read()
    if code:
        last = text.strip().splitlines()[-1:] or ["no output"]
        raise FailedError(f"{' '.join(command[:3])}: exit code {code}: {last[0]}")
    return text


def told(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def table(entries: Sequence[Measured], grid: Grid) -> str:
    """Set the medians beside each other, with ratios to the first entry's."""
    total, _, part = grid.expected
    lines = [
        f"{total} nodes, {part} of them after a change; {os.cpu_count()} cores, "
        f"Python {platform.python_version()}, {platform.system()} "
        f"{platform.machine()}. Medians; in brackets the multiple of curvflow's time.",
        "",
        f"| system | {' | '.join(PHASES)} | runs | used as |",
        f"|---|{'---|' * (len(PHASES) + 2)}",
    ]
    for entry in entries:
        cells = [cell(entry, entries[0], phase) for phase in range(len(PHASES))]
        runs = max(len(times) for times in entry.seconds)
        name = f"{entry.system.name} {entry.version}".strip()
        lines.append(f"| {name} | {' | '.join(cells)} | {runs} | {entry.system.how} |")
    failures = [f"{e.system.name}: {e.failure}" for e in entries if e.failure]
    return "\n".join([*lines, *(["", *failures] if failures else [])])


def cell(entry: Measured, floor: Measured, phase: int) -> str:
    if not entry.seconds[phase]:
        return "failed"
    seconds = statistics.median(entry.seconds[phase])
    if entry is floor or not floor.seconds[phase]:
        return f"{seconds:.2f} s"
    return f"{seconds:.2f} s ({seconds / statistics.median(floor.seconds[phase]):.2g})"


if __name__ == "__main__":
    main()
