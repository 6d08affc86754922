"""Progress as lines, one a minute, where nothing can be drawn: logs and files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

from curvflow.errors import RequestError
from curvflow.flows.plan.why.cost import Costs
from curvflow.flows.run.context import Observer, Unwatched
from curvflow.schemas.words import counted, duration, printable

if TYPE_CHECKING:
    from curvflow.flows.plan.plan import Plan

EVERY = 60.0  # seconds between lines

Wait = Callable[[float], bool]


class ProgressLines(Unwatched):
    """Counts the nodes of a run, and words how far it is."""

    def __init__(
        self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Wait for the plan.

        Args:
            say: writes a line.
            clock: seconds, from any beginning.
        """
        self._say, self._clock = say, clock
        self._begun = clock()
        self._total: dict[str, int] = {}
        self._done: dict[str, int] = {}
        self._failed: dict[str, int] = {}
        self._at_work: list[str] = []  # stages, the last to begin a tile last
        self._seconds: dict[str, float | None] = {}  # of a node; None if not known
        self._ended = Event()

    def begin(self, plan: Plan) -> None:
        """Count finished nodes, and begin to report, if there is anything to do."""
        costs = Costs(plan.graph, plan.index)
        for stage, nodes in plan.graph.nodes.items():
            counts = plan.counts(stage)
            self._total[stage], self._done[stage] = counts["total"], counts["cached"]
            open_nodes = [node for node in nodes if node.state != "cached"]
            known = [costs.of(node)[0] for node in open_nodes]
            seconds = [cost for cost in known if cost is not None]
            is_known = len(seconds) == len(known) > 0
            self._seconds[stage] = sum(seconds) / len(known) if is_known else None
        if sum(self._done.values()) < sum(self._total.values()):
            Thread(target=self.tell_until, args=[self._ended.wait], daemon=True).start()

    def tile_begins(self, stage: str) -> None:
        """Note the stage at work."""
        if stage in self._at_work:
            self._at_work.remove(stage)
        self._at_work.append(stage)

    def stage_at(self, stage: str, *, done: int, failed: int) -> None:
        """Note how far a stage is."""
        self._done[stage], self._failed[stage] = done, failed

    def end(self) -> None:
        """Report no more."""
        self._ended.set()

    def tell_until(self, ended: Wait) -> None:
        """Say a line after every minute until the run has ended.

        Args:
            ended: waits for so many seconds at most; True once the run has ended.
        """
        while not ended(EVERY):
            self._say(self.text())

    def text(self) -> str:
        """Return how far the run is, such as `12 min: 120 of 480 nodes, at fit`."""
        done, total = sum(self._done.values()), sum(self._total.values())
        passed = duration(self._clock() - self._begun)
        parts = [f"{passed}: {done:,} of {counted(total, 'node')}"]
        if failed := sum(self._failed.values()):
            parts.append(f"{failed:,} failed")
        # The order of threads is not known, so that a copy is read.
        unfinished = [s for s in [*self._at_work] if self._done[s] < self._total[s]]
        if unfinished:
            stage = unfinished[-1]
            parts.append(f"at {stage} {self._done[stage]}/{self._total[stage]}")
        if (left := self._left()) is not None:
            parts.append(f"~{duration(left)} left on one worker")
        return ", ".join(parts)

    def _left(self) -> float | None:
        """Return the predicted seconds of the remaining nodes.

        None if not all of them are known, or nothing is left.
        """
        left = 0.0
        for stage, total in self._total.items():
            number = total - self._done[stage] - self._failed.get(stage, 0)
            if number > 0:
                if (seconds := self._seconds[stage]) is None:
                    return None
                left += number * seconds
        return left or None


class LogFile(ProgressLines):
    """Appends to a file, with times: news, warnings, and how far the run is."""

    def tell(self, message: str) -> None:
        """Write a line."""
        self._say(message)

    def warn(self, message: str) -> None:
        """Write a line that is marked."""
        self._say(f"warning: {message}")

    def begin(self, plan: Plan) -> None:
        """Write the nodes to be computed."""
        super().begin(plan)
        done, total = sum(self._done.values()), sum(self._total.values())
        name = plan.graph.study.name
        self._say(f"{name}: {counted(total, 'node')}, {done:,} done")

    def end(self) -> None:
        """Write how far the run came."""
        super().end()
        self._say(f"end after {self.text()}")


class Both(Unwatched):
    """Two observers as one."""

    def __init__(self, first: Observer, second: Observer) -> None:
        """Pass everything on to both."""
        self._observers = first, second

    def begin(self, plan: Plan) -> None:
        """Pass the plan on."""
        for observer in self._observers:
            observer.begin(plan)

    def tile_begins(self, stage: str) -> None:
        """Pass the stage on."""
        for observer in self._observers:
            observer.tile_begins(stage)

    def stage_at(self, stage: str, *, done: int, failed: int) -> None:
        """Pass the counts on."""
        for observer in self._observers:
            observer.stage_at(stage, done=done, failed=failed)

    def tell(self, message: str) -> None:
        """Pass the line on."""
        for observer in self._observers:
            observer.tell(message)

    def warn(self, message: str) -> None:
        """Pass the warning on."""
        for observer in self._observers:
            observer.warn(message)

    def end(self) -> None:
        """Pass the end on."""
        for observer in self._observers:
            observer.end()


@contextmanager
def logged(observer: Observer, path: Path | None) -> Iterator[Observer]:
    """Yield an observer that keeps a log file as well, if there is a path.

    Raises:
        RequestError: the file cannot be written.
    """
    if path is None:
        yield observer
        return
    log = _Log(path, observer)
    try:
        log.append("")
    except OSError as error:
        raise RequestError(
            f"--log: expected a file that can be written, got {path}: "
            f"{error.strerror}. Name another."
        ) from None
    yield Both(observer, LogFile(log.say))


class _Log:
    """A file to which lines are appended as long as that can be done."""

    def __init__(self, path: Path, observer: Observer) -> None:
        self._path, self._observer, self._is_over = path, observer, False

    def append(self, text: str) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(text)

    def say(self, message: str) -> None:
        """Append a line; a disk that is full ends the log and no run."""
        if self._is_over:
            return
        now = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        try:
            self.append(f"{now} {printable(message)}\n")
        except OSError as error:
            self._is_over = True
            self._observer.warn(f"{self._path}: the log ends here: {error.strerror}")
