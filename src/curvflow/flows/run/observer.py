"""Observers of a run: none, or a line per stage under a cell of a notebook."""

from __future__ import annotations

import logging
import sys
import time
from html import escape
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from curvflow.flows.plan.plan import Plan


class Observer(Protocol):
    """Receives a run's progress as it happens."""

    def begin(self, plan: Plan) -> None:
        """The plan is made and computing may begin."""

    def tile_begins(self, stage: str) -> None:
        """A tile of a stage is about to be computed."""

    def stage_at(self, stage: str, *, done: int, failed: int) -> None:
        """So many nodes of a stage are done by now, so many have failed."""

    def tell(self, message: str) -> None:
        """Something happened that is worth a line, and no loss."""

    def warn(self, message: str) -> None:
        """Something was lost and will be computed again."""

    def end(self) -> None:
        """The run is over, well or not."""


class Unwatched:
    """An observer that shows nothing."""

    def begin(self, plan: Plan) -> None:
        """Ignore the plan."""

    def tile_begins(self, stage: str) -> None:
        """Ignore the tile."""

    def stage_at(self, stage: str, *, done: int, failed: int) -> None:
        """Ignore the progress."""

    def tell(self, message: str) -> None:
        """Write the line to Python's log, where it is shown on request."""
        logging.getLogger("curvflow").info(message)

    def warn(self, message: str) -> None:
        """Ignore the warning; the store's log has what was retired."""

    def end(self) -> None:
        """Ignore the end."""


EVERY = 0.2  # seconds between drawings


def notebook_observer() -> Observer | None:
    """Return an observer that draws under the current cell; None outside of notebooks.

    It needs no widgets, so the last drawing stays in the notebook's file.
    """
    ipython = sys.modules.get("IPython")  # it is loaded where there is a notebook
    shell: Any = ipython.get_ipython() if ipython else None
    # At the prompt of a terminal IPython has no kernel, and nothing shows HTML.
    return InNotebook() if getattr(shell, "kernel", None) is not None else None


class InNotebook(Unwatched):
    """Draws a bar per stage: done of total, cached, failed; and lines below."""

    def __init__(self) -> None:
        """Wait for the plan."""
        self._stages: dict[str, dict[str, int]] = {}
        self._lines: list[str] = []
        self._handle: Any = None
        self._drawn = float("-inf")

    def begin(self, plan: Plan) -> None:
        """Draw all stages, unless there is nothing to do."""
        for stage in plan.graph.nodes:
            counts = plan.counts(stage)
            total, cached = counts["total"], counts["cached"]
            self._stages[stage] = {"total": total, "cached": cached, "done": cached}
        if plan.counts()["cached"] < plan.counts()["total"]:
            self._draw(at_once=True)

    def stage_at(self, stage: str, *, done: int, failed: int) -> None:
        """Move a stage's bar on."""
        self._stages[stage] |= {"done": done, "failed": failed}
        self._draw()

    def tell(self, message: str) -> None:
        """Write a line below."""
        self._lines.append(message)
        self._draw(at_once=True)

    def warn(self, message: str) -> None:
        """Write a line below."""
        self.tell(message)

    def end(self) -> None:
        """Leave the bars as they stand."""
        if self._handle is not None:
            self._draw(at_once=True)

    def _draw(self, *, at_once: bool = False) -> None:
        now = time.monotonic()
        if not at_once and now - self._drawn < EVERY:
            return
        self._drawn = now
        drawing = {"text/html": self.as_html(), "text/plain": self.as_text()}
        if self._handle is None:
            display: Any = sys.modules["IPython"].display.display
            self._handle = display(drawing, raw=True, display_id=True)
        else:
            self._handle.update(drawing, raw=True)

    def as_html(self) -> str:
        """Return the bars and the lines below, as HTML."""
        rows = "".join(_row(stage, counts) for stage, counts in self._stages.items())
        table = f"<table>{rows}</table>" if rows else ""
        lines = "".join(f"<div>curvflow: {escape(line)}</div>" for line in self._lines)
        return table + lines

    def as_text(self) -> str:
        """Return the same as text, for a front end without HTML."""
        stages = self._stages.items()
        lines = [f"{s} {c['done']}/{c['total']}, {_progress(c)}" for s, c in stages]
        return "\n".join([*lines, *(f"curvflow: {line}" for line in self._lines)])


def _progress(counts: dict[str, int]) -> str:
    failed = counts.get("failed", 0)
    return f"{counts['cached']} cached" + (f", {failed} failed" if failed else "")


def _row(stage: str, counts: dict[str, int]) -> str:
    done, total = counts["done"], counts["total"]
    cells = (
        escape(stage),
        f'<progress value="{done}" max="{total}"></progress>',
        f"{done}/{total}",
        _progress(counts),
    )
    inner = (f'<td style="text-align: left">{cell}</td>' for cell in cells)
    return f"<tr>{''.join(inner)}</tr>"
