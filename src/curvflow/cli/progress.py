"""Progress on stderr: one line per stage; silent when nobody looks."""

from __future__ import annotations

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from curvflow.flows.observer import Observer
from curvflow.flows.plan import Plan


def watch() -> Observer:
    """Return an observer that shows progress if stderr is a terminal."""
    console = Console(stderr=True)
    return Bars(console) if console.is_terminal else Warnings(console)


class Warnings:
    """Tells of losses and nothing else."""

    def __init__(self, console: Console) -> None:
        """Write to a console."""
        self._console = console

    def begin(self, plan: Plan) -> None:
        """Say nothing."""

    def tile_begins(self, stage: str, nodes: int) -> None:
        """Say nothing."""

    def tile_ends(self, stage: str, *, done: int, failed: int) -> None:
        """Say nothing."""

    def warn(self, message: str) -> None:
        """Tell what will be computed again."""
        self._console.print(f"curvflow: {message}", style="yellow", highlight=False)

    def end(self) -> None:
        """Say nothing."""


class Bars(Warnings):
    """One line per stage: done of total, cached, failed and time left."""

    def __init__(self, console: Console) -> None:
        """Draw on a terminal."""
        super().__init__(console)
        self._progress = Progress(
            TextColumn("{task.description:<12}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[cached]} cached {task.fields[failed]}"),
            TimeRemainingColumn(compact=True),
            console=console,
        )
        self._tasks: dict[str, TaskID] = {}
        self._failed: dict[str, int] = {}

    def begin(self, plan: Plan) -> None:
        """Draw a line per stage that has something to compute."""
        for stage in plan.graph.nodes:
            counts = plan.counts(stage)
            self._failed[stage] = 0
            self._tasks[stage] = self._progress.add_task(
                stage,
                total=counts["total"],
                completed=counts["cached"],
                cached=counts["cached"],
                failed="",
                start=counts["cached"] == counts["total"],
            )
        self._progress.start()

    def tile_begins(self, stage: str, nodes: int) -> None:
        """Start the clock of a stage at its first tile."""
        self._progress.start_task(self._tasks[stage])

    def tile_ends(self, stage: str, *, done: int, failed: int) -> None:
        """Move a stage's line on."""
        self._failed[stage] += failed
        self._progress.update(
            self._tasks[stage],
            advance=done,
            failed=f"{self._failed[stage]} failed" if self._failed[stage] else "",
        )

    def end(self) -> None:
        """Leave the lines as they stand."""
        self._progress.stop()
