"""Which tests judge a mutant, and what they say.

Test files are asked in this order: of a mutant that another tree noticed, those of that
test's file and name; the mirror of the mutated module, those that import
the function or class by its name, and mirrors of modules that do; those that import the
module; those of its room, then all others, by the number of imports between. Of equals
those of its room come first, then short files. It ends when one fails or the processor
time is spent. Each run is a fork of a process that has imported the libraries, in a
copy of the tree. A failure counts if the test passes without the mutant; a test that
takes too long, if it is short without.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import importlib.util
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import traceback
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from benchmarks.mutation.drawing import PACKAGE, Edit

ASIDE = ("cluster", "prefect", "slow", "browser", "images", "pictures", "gpu")
OPTIONS = (
    *("-x", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "--hypothesis-seed=0"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
ELSEWHERE = ("tests/cluster/", "tests/deployed/")  # folders that need servers
OWN = ("curvflow", "tests", "benchmarks")  # modules of the tree
FAR = 99  # imports between a module and a test that does not import it at all
NEAREST = 30  # test files asked at most
TURNS = (2, 6, NEAREST)  # test files of each run of pytest
PER_TEST = 60.0  # seconds, of the processor or of doing nothing
SHORT = PER_TEST / 5  # of a test that may be called too long
IDLE = 0.5  # seconds of the processor in PER_TEST of a test that hangs
GRACE = 4  # times its processor time a run may take, on a busy machine
LIBRARIES = (
    *("torch", "torch.func", "numpy", "scipy.linalg", "scipy.stats", "scipy.optimize"),
    *("scipy.sparse.linalg", "xarray", "zarr", "pydantic", "ruamel.yaml", "typer"),
    *("rich.console", "rich.table", "matplotlib.figure", "hypothesis", "pytest"),
    *("obstore", "psutil", "sklearn.datasets", "h5py", "_pytest.assertion.rewrite"),
)


@dataclass(frozen=True)
class Verdict:
    """A test that killed a mutant, or "", and what was asked."""

    killer: str
    files: int
    tests: int
    seconds: float

    @property
    def is_killed(self) -> bool:
        """Whether a test noticed."""
        return bool(self.killer)


@dataclass(frozen=True)
class Outcome:
    """One run of pytest: what failed first, or "", and what it took."""

    failed: str
    tests: int
    seconds: float  # of the processor
    wall: float
    is_too_long: bool = False


class TooLong(BaseException):
    """A test took longer than any may."""


def import_libraries() -> None:
    """Import what the package imports from outside, where it is installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in LIBRARIES:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)


def copy_tree(tree: Path, copy: Path) -> None:
    """Copy the files of a checkout that git knows or does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=tree,
        capture_output=True,
        check=True,
    )
    for name in listed.stdout.decode().split("\0"):
        if name and (tree / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(tree / name, copy / name)


class NearestTests:
    """The test files of a tree, by their distance from a module."""

    def __init__(self, tree: Path) -> None:
        self._tree = tree
        paths = [*(tree / PACKAGE).rglob("*.py"), *(tree / "tests").rglob("*.py")]
        self._modules = {module_name(p.relative_to(tree)): p for p in paths}
        self._importers: dict[str, set[str]] = defaultdict(set)  # of modules and names
        for name, path in self._modules.items():
            for imported in self._imported(path):
                self._importers[imported].add(name)

    def _imported(self, path: Path) -> Iterator[str]:
        """Yield the modules of the tree that a file imports, wherever it does."""
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                yield from (a.name for a in node.names if a.name in self._modules)
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    yield inner
                    if inner not in self._modules:
                        yield node.module
        if "tests" in path.relative_to(self._tree).parts[:1]:
            yield from self._unsaid(path.relative_to(self._tree / "tests"))

    def _unsaid(self, test: Path) -> Iterator[str]:
        """Yield what a test file takes without an import: its conftests, its subject.

        The registry imports kinds by name, so that their tests need not.
        """
        subject = test.parent / test.name.removeprefix("test_")
        names = [module_name(Path("tests") / f / "conftest.py") for f in test.parents]
        names.append(module_name(PACKAGE / subject))
        yield from (name for name in names if name in self._modules)

    def of(self, module: str, definition: str) -> list[str]:
        """Return the test files of what is mutated, the nearest and shortest first.

        Args:
            module: path of the module.
            definition: name in the module of the function or class.
        """
        name = module_name(Path(module))
        steps, by_name = self._steps(name), self._by_name(f"{name}.{definition}")
        mirror = mirror_of(Path(module))
        ranked = []
        for test, path in self._modules.items():
            file = path.relative_to(self._tree)
            if not file.name.startswith("test_") or str(file).startswith(ELSEWHERE):
                continue
            step = 0 if file == mirror else steps.get(test, FAR)
            is_of_room = mirror.parent in file.parents
            if step < FAR or is_of_room:
                circle = 1 if step <= 1 else 2 if is_of_room else 3
                circle = 0 if step == 0 or file in by_name else circle
                size = path.stat().st_size
                ranked.append((circle, step > 0, not is_of_room, step, size, str(file)))
        return [file for *_, file in sorted(ranked)][:NEAREST]

    def like(self, test: str) -> list[str]:
        """Return the files that have a test of another tree, by file name and name."""
        path, _, rest = test.partition("::")
        name = f"def {rest.partition('[')[0].rpartition('::')[-1]}("
        return [
            str(other.relative_to(self._tree))
            for other in self._modules.values()
            if other.name == Path(path).name and name in other.read_text("utf-8")
        ]

    def _by_name(self, definition: str) -> set[Path]:
        """Return the files that import a name, and mirrors of modules that do."""
        files = {
            self._modules[importer].relative_to(self._tree)
            for importer in self._importers[definition]
        }
        return files | {mirror_of(file) for file in files if PACKAGE in file.parents}

    def _steps(self, module: str) -> dict[str, int]:
        """Return how many imports lie between each module and this one."""
        steps, newest = {module: 0}, [module]
        while newest:
            reached = {n for m in newest for n in self._importers[m]} - steps.keys()
            distance = steps[newest[0]] + 1
            steps |= dict.fromkeys(reached, distance)
            newest = sorted(reached)
        return steps


def mirror_of(module: Path) -> Path:
    """Return the path of a module's test."""
    inner = module.relative_to(PACKAGE)
    return Path("tests") / inner.parent / f"test_{inner.name}"


def module_name(path: Path) -> str:
    """Return the dotted name of a file of a tree."""
    parts = path.with_suffix("").parts
    parts = parts[1:] if parts[0] == "src" else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@dataclass
class Judge:
    """A copy of a tree in which mutants are tried one after the other."""

    copy: Path
    broken: list[str] = field(default_factory=list)  # tests that fail unmutated
    _unmutated: dict[str, Outcome] = field(default_factory=dict)

    @functools.cached_property
    def tests(self) -> NearestTests:
        """The test files of the copy."""
        return NearestTests(self.copy)

    def judge(self, edit: Edit, seconds: float, noticed_by: str = "") -> Verdict:
        """Run the tests of a mutant, for some seconds of processor time at most.

        Args:
            edit: the mutant.
            seconds: of the processor.
            noticed_by: a test of another tree, whose likes are asked first.

        Returns:
            The test that noticed, if one did.
        """
        files = self.tests.of(edit.path, self._definition(edit))
        if noticed_by:
            files = [*dict.fromkeys([*self.tests.like(noticed_by), *files])]
        tests, spent = 0, 0.0
        for start, stop in zip((0, *TURNS), TURNS, strict=False):
            while (turn := self._sound(files[start:stop])) and spent < seconds:
                with self._mutated(edit):
                    outcome = run(self.copy, turn, seconds - spent)
                tests, spent = tests + outcome.tests, spent + outcome.seconds
                if not outcome.failed:
                    break
                if self._passes(outcome):
                    return Verdict(outcome.failed, len(files), tests, round(spent, 1))
                self.broken.append(outcome.failed)
        return Verdict("", len(files), tests, round(spent, 1))

    def _definition(self, edit: Edit) -> str:
        """Return the name of the module's function or class that is mutated."""
        for node in ast.parse((self.copy / edit.path).read_bytes()).body:
            if node.lineno <= edit.line <= (node.end_lineno or node.lineno):
                return getattr(node, "name", "")
        return ""

    def _sound(self, files: list[str]) -> list[str]:
        """Return files but for what fails without a mutant; none if nothing is left."""
        sound = [file for file in files if file not in self.broken]
        without = [f"--deselect={test}" for test in self.broken if "::" in test]
        return [*sound, *without] if sound else []

    def _passes(self, outcome: Outcome) -> bool:
        """Return whether what failed with a mutant passes without, and in time."""
        test = outcome.failed
        if test in self.broken:
            return False
        if test not in self._unmutated:
            collecting = [] if "::" in test else ["--collect-only"]
            self._unmutated[test] = run(self.copy, [test, *collecting], PER_TEST)
        usual = self._unmutated[test]
        is_short = usual.seconds < SHORT and usual.wall < PER_TEST
        return not usual.failed and (is_short or not outcome.is_too_long)

    @contextlib.contextmanager
    def _mutated(self, edit: Edit) -> Iterator[None]:
        target = self.copy / edit.path
        original, status = target.read_bytes(), target.stat()
        target.write_bytes(edit.apply(original))
        try:
            yield
        finally:
            # Compiled files are known by the time and size of their source.
            target.write_bytes(original)
            os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
            Path(importlib.util.cache_from_source(str(target))).unlink(missing_ok=True)


def run(tree: Path, arguments: Sequence[str], seconds: float) -> Outcome:
    """Run pytest in a fork, in a tree, until a test fails or the time is spent."""
    began = time.monotonic()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.close(reading)
        try:
            within(tree, arguments, seconds, writing)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(1)
    os.close(writing)
    text = said(reading, GRACE * (seconds + PER_TEST))
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # the child, and what it left behind
    os.waitpid(child, 0)
    wall = round(time.monotonic() - began, 1)
    lines = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
    started = [line["test"] for line in lines if "test" in line]
    if lines and "failed" in lines[-1]:
        return Outcome(**lines[-1], tests=len(started), wall=wall)
    # It crashed, or hung where no signal reaches it.
    last = started[-1] if started else arguments[0]
    spent = lines[-1]["seconds"] if lines else 0.0
    return Outcome(last, len(started), spent, wall, is_too_long=True)


def said(reading: int, limit: float) -> str:
    """Return what a child writes until it ends or the limit, in seconds, is over."""
    parts, until = [], time.monotonic() + limit
    with open(reading, "rb", buffering=0) as pipe:
        while (left := until - time.monotonic()) > 0:
            if not select.select([pipe], [], [], left)[0]:
                break
            part = pipe.read(65536)
            if not part:
                break
            parts.append(part)
            if b'"failed"' in part:
                break
    return b"".join(parts).decode(errors="replace")


def within(tree: Path, arguments: Sequence[str], seconds: float, writing: int) -> None:
    """Run pytest in this process, which ends with it."""
    os.chdir(tree)
    temporary = tree.parent / f"{tree.name}-tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    os.environ |= {
        "PYTHONPATH": str(tree / "src"),
        "PYTEST_ADDOPTS": "",  # which may be of another project
        "PYTEST_DEBUG_TEMPROOT": str(temporary),
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "80",
    }
    for name in [name for name in sys.modules if name.partition(".")[0] in OWN]:
        del sys.modules[name]
    others = [place for place in sys.path if place and not is_checkout(Path(place))]
    sys.path[:] = [str(tree / "src"), str(tree), *others]
    log = os.open(
        tree.parent / f"{tree.name}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600
    )
    for stream in (1, 2):
        os.dup2(log, stream)
    watch = Watch(writing, arguments, seconds)
    marked = ["-m", " and ".join(f"not {marker}" for marker in aside(tree))]
    code = pytest.main([*OPTIONS, *marked, *arguments], plugins=[watch])
    if code not in (0, 1, 5) and not watch.failed and not watch.is_spent:
        watch.failed = arguments[0]
    watch.end()
    sys.stdout.flush()


def aside(tree: Path) -> list[str]:
    """List the markers of a tree whose tests do not judge: long ones, and servers'."""
    config = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))
    known = config["tool"]["pytest"]["ini_options"]["markers"]
    return [name for name in ASIDE if any(m.startswith(f"{name}:") for m in known)]


def is_checkout(place: Path) -> bool:
    """Return whether a place of modules is, or is the source of, a checkout."""
    return (place / PACKAGE).is_dir() or (place / PACKAGE.name).is_dir()


class Watch:
    """A plugin that orders, times and stops the tests, and writes what happens."""

    def __init__(self, writing: int, arguments: Sequence[str], seconds: float) -> None:
        self.failed = ""
        self.is_too_long = False
        self.is_spent = False
        self._writing = writing
        self._place = {file: number for number, file in enumerate(arguments)}
        self._seconds = seconds
        self._last = 0.0
        signal.signal(signal.SIGPROF, self._stop)
        signal.signal(signal.SIGALRM, self._stop_idle)

    def _stop(self, *_: object) -> None:
        self._time(0)
        raise TooLong

    def _stop_idle(self, *_: object) -> None:
        last, self._last = self._last, processor()
        if self._last - last < IDLE:
            self._stop()

    def _time(self, seconds: float) -> None:
        """Begin to time a test; 0 ends it."""
        self._last = processor()
        for timer in signal.ITIMER_PROF, signal.ITIMER_REAL:
            signal.setitimer(timer, seconds, seconds)

    def _write(self, **line: object) -> None:
        os.write(self._writing, f"{json.dumps(line)}\n".encode())

    def end(self) -> None:
        """Write what failed."""
        self._time(0)
        self._write(
            failed=self.failed, seconds=processor(), is_too_long=self.is_too_long
        )

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Ask files in the given order, whatever order the tree prefers."""
        last = len(self._place)
        items.sort(key=lambda i: self._place.get(i.nodeid.partition("::")[0], last))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Interrupt a test that takes too long; begin none after the time is spent."""
        self._write(test=item.nodeid, seconds=processor())
        self._time(PER_TEST)
        yield
        self._time(0)
        if processor() > self._seconds:
            self.is_spent = True
            item.session.shouldstop = "the time is spent"

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, call: Any) -> Iterator[None]:
        """Tell a test that was interrupted from one that failed."""
        if call.excinfo is not None and call.excinfo.errisinstance(TooLong):
            self.is_too_long = True
        yield

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the first failure."""
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep the first file that cannot be imported."""
        if report.failed and not self.failed:
            self.failed = report.nodeid


def processor() -> float:
    """Return the processor seconds of this process and of those that it awaited."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round(time.process_time() + children.ru_utime + children.ru_stime, 2)
