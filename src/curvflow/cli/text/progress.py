"""Progress on stderr: one line per stage; without a terminal a line a minute."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from curvflow.cli.text.progress_lines import Both, ProgressLines, logged
from curvflow.flows.run.context import Observer, Unwatched
from curvflow.schemas.words import printable

if TYPE_CHECKING:
    from curvflow.flows.plan.plan import Plan

NAME, COUNTS_WIDTH = 26, 22  # largest widths, so that a line fits into 80 characters
RESERVED_LINES = 4  # lines of the screen above the progress


@contextmanager
def watch(log: Path | None = None) -> Iterator[Observer]:
    """Yield an observer that shows progress on stderr, and keeps a log if asked."""
    console = Console(stderr=True)
    if not console.is_terminal:
        lines = Lines(console)
        with logged(Both(lines, ProgressLines(lines.tell)), log) as observer:
            yield observer
        return
    bars = Bars(console)
    with logged(bars, log) as observer, bars.waiting:
        yield observer


class Lines(Unwatched):
    """Prints single lines, without bars."""

    def __init__(self, console: Console) -> None:
        """Write to a console."""
        self._console = console

    def tell(self, message: str) -> None:
        """Print a message."""
        self._say(message, style="")

    def warn(self, message: str) -> None:
        """Print a warning."""
        self._say(message, style="yellow")

    def _say(self, message: str, *, style: str) -> None:
        self._console.print(
            printable(f"curvflow: {message}"),
            style=style,
            highlight=False,
            markup=False,  # node names have brackets
            soft_wrap=True,
        )


class Bars(Lines):
    """One line per stage: done of total, cached, failed and time left.

    Attributes:
        waiting: a spinner until there is a plan.
    """

    def __init__(self, console: Console) -> None:
        """Draw on a terminal."""
        super().__init__(console)
        self.waiting = console.status("planning and loading")
        self._progress = Progress(
            TextColumn("{task.description:<16}", table_column=_column(NAME)),
            BarColumn(bar_width=20, table_column=Column(ratio=1)),
            TextColumn("{task.completed:.0f}/{task.total:.0f}", justify="right"),
            TextColumn("{task.fields[counts]}", table_column=_column(COUNTS_WIDTH)),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            console=console,
        )
        self._lines: dict[str, TaskID] = {}
        self._is_long, self._whole = False, TaskID(-1)
        self._cached: dict[str, int] = {}

    def begin(self, plan: Plan) -> None:
        """Draw a line per stage, unless there is nothing to do.

        On a short screen only stages at work are drawn, below a line for the total.
        """
        self.waiting.stop()
        self._is_long = len(plan.graph.nodes) > self._console.height - RESERVED_LINES
        if self._is_long:
            self._whole = self._progress.add_task(
                f"{len(plan.graph.nodes)} stages",
                total=plan.counts()["total"],
                completed=plan.counts()["cached"],
                counts=f"{plan.counts()['cached']} cached",
            )
        for stage in plan.graph.nodes:
            counts = plan.counts(stage)
            self._cached[stage] = counts["cached"]
            self._lines[stage] = self._progress.add_task(
                stage,
                total=counts["total"],
                completed=counts["cached"],
                counts=self._counts_text(stage, 0),
                start=False,
                visible=not self._is_long,
            )
        if plan.counts()["cached"] < plan.counts()["total"]:
            self._progress.start()

    def tile_begins(self, stage: str) -> None:
        """Start the clock of a stage at its first tile."""
        self._progress.start_task(self._lines[stage])
        self._progress.update(self._lines[stage], visible=True)

    def stage_at(self, stage: str, *, done: int, failed: int) -> None:
        """Update a stage's line."""
        line = self._lines[stage]
        if self._is_long:
            news = done - self._progress.tasks[line].completed
            self._progress.update(self._whole, advance=news)
        self._progress.update(
            line, completed=done, counts=self._counts_text(stage, failed)
        )
        if self._is_long and self._progress.tasks[line].finished:
            self._progress.update(line, visible=False)

    def _counts_text(self, stage: str, failed: int) -> str:
        cached = f"{self._cached[stage]} cached"
        return f"{cached}, {failed} failed" if failed else cached

    def end(self) -> None:
        """Stop, and leave the lines on the screen."""
        self._progress.stop()


def _column(width: int) -> Column:
    return Column(no_wrap=True, overflow="ellipsis", max_width=width)
