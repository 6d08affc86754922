"""Progress of a run under a cell of a notebook: a line per stage, drawn in place."""

from __future__ import annotations

import sys
import time
from html import escape
from typing import Any

from curvflow.flows.plan.plan import Plan
from curvflow.flows.run.observer import Observer, Unwatched

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
    """Draws a bar per stage: done of total, cached, failed; and what is told."""

    def __init__(self) -> None:
        """Wait for the plan."""
        self._stages: dict[str, dict[str, int]] = {}
        self._told: list[str] = []
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
        self._told.append(message)
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
        """Return the bars and what was told, as HTML."""
        rows = "".join(_row(stage, counts) for stage, counts in self._stages.items())
        table = f"<table>{rows}</table>" if rows else ""
        told = "".join(f"<div>curvflow: {escape(line)}</div>" for line in self._told)
        return table + told

    def as_text(self) -> str:
        """Return the same as text, for what shows no HTML."""
        stages = self._stages.items()
        lines = [f"{s} {c['done']}/{c['total']}, {_told(c)}" for s, c in stages]
        return "\n".join([*lines, *(f"curvflow: {line}" for line in self._told)])


def _told(counts: dict[str, int]) -> str:
    failed = counts.get("failed", 0)
    return f"{counts['cached']} cached" + (f", {failed} failed" if failed else "")


def _row(stage: str, counts: dict[str, int]) -> str:
    done, total = counts["done"], counts["total"]
    cells = (
        escape(stage),
        f'<progress value="{done}" max="{total}"></progress>',
        f"{done}/{total}",
        _told(counts),
    )
    inner = (f'<td style="text-align: left">{cell}</td>' for cell in cells)
    return f"<tr>{''.join(inner)}</tr>"
