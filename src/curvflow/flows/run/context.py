"""The context of one run, which all of its parts share; its journal, counts, observers.

An observer receives a run's progress: none does, or one that draws a line per stage
under a cell of a notebook.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Protocol

from curvflow.flows.graph.graph import Graph, Node
from curvflow.flows.graph.source_files import SourceFiles
from curvflow.flows.graph.stopping import Stopping
from curvflow.flows.graph.tiles import Failed
from curvflow.flows.plan.plan import Plan
from curvflow.flows.plan.why.cost import Costs
from curvflow.schemas.options import RunOptions
from curvflow.schemas.records.receipts import RunRecord
from curvflow.schemas.words import printable
from curvflow.stores.base import Store

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class RunContext:
    """The objects that every part of one run works with.

    Attributes:
        plan: the nodes, and the code that computes them.
        store: holds results, claims and the journal.
        files: files that parameters name.
        options: how to compute.
        observer: shows progress.
        stop: set when the run is asked to end.
        counts: of what has been done so far.
        costs: predicted times of nodes.
    """

    plan: Plan
    store: Store
    files: SourceFiles
    options: RunOptions
    observer: Observer
    stop: Stopping
    counts: Counts
    costs: Costs

    def show(self, stages: Iterable[str]) -> None:
        """Pass the counts of stages on to the observer."""
        for stage in stages:
            done, failed = self.counts.done[stage], self.counts.failed(stage)
            self.observer.stage_at(stage, done=done, failed=failed)

    def tell(self, lines: Iterable[str]) -> None:
        """Pass lines on to the observer."""
        for line in lines:
            self.observer.tell(line)


@dataclass(frozen=True)
class Journal:
    """The journal of one run.

    Attributes:
        store: keeps it.
        record: of the run, begun.
    """

    store: Store
    record: RunRecord

    def note(self, event: str, stage: str, keys: Sequence[str | None]) -> None:
        """Note what happened to the nodes of some keys."""
        self._append({"event": event, "stage": stage, "keys": keys})

    def rely_on(self, nodes: Iterable[Node]) -> None:
        """Note payloads that the run relies on, for collection to leave alone."""
        receipts = (node.receipt for node in nodes)
        payloads = {receipt.payload for receipt in receipts if receipt}
        named = sorted(name for name in payloads if name)
        self._append({"event": "plan", "payloads": named})

    def _append(self, event: Mapping[str, Any]) -> None:
        self.store.append_event(self.record, event)


class Counts:
    """Counts of one run.

    Attributes:
        executed: nodes computed, per stage.
        revived: results among them that collection had removed, the same again.
        done: nodes with a result, per stage.
        failures: error and traceback by action key.
    """

    def __init__(self, graph: Graph) -> None:
        """Count finished nodes."""
        self._graph = graph
        self.executed: Counter[str] = Counter()
        self.revived: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self.failures: dict[str, Failed] = {}
        self._failed: Counter[str] = Counter()
        self.recount()

    def recount(self) -> None:
        """Count finished and failed nodes again."""
        nodes = (node for node in self._graph if node.state == "cached")
        self.done = Counter(node.stage for node in nodes)
        nodes = (node for node in self._graph if self._has_failed(node))
        self._failed = Counter(node.stage for node in nodes)

    def fail(self, nodes: Iterable[Node], report: Failed) -> None:
        """Count nodes of one key as failed."""
        for node in nodes:
            assert node.key is not None
            self.failures[node.key] = report
            self._failed[node.stage] += self._has_failed(node)

    def failed(self, stage: str) -> int:
        """Return the number of failed nodes of a stage."""
        return self._failed[stage]

    def _has_failed(self, node: Node) -> bool:
        return node.state == "stale" and node.key in self.failures

    def failure_records(self) -> list[dict[str, Any]]:
        """Return key, stage, coords, error and traceback of each failed node."""
        if not self.failures:
            return []
        return [
            {
                "key": node.key,
                "stage": node.stage,
                "coords": node.coords,
                **vars(self.failures[node.key]),
            }
            for node in self._graph
            if node.key is not None and self._has_failed(node)
        ]

    def revived_in(self, stages: Iterable[str]) -> dict[str, int]:
        """Return the revived results per stage; 0 where the stage lacked none."""
        nodes = self._graph.nodes
        unneeded = [name for name in stages if not any(n.revive for n in nodes[name])]
        return dict.fromkeys(unneeded, 0) | +self.revived

    def by_outcome(self) -> dict[str, dict[str, int]]:
        """Return per stage the numbers of executed, cached, failed, diverged nodes."""
        failed = Counter(record["stage"] for record in self.failure_records())
        done, diverged = Counter[str](), Counter[str]()
        for node in self._graph:
            is_diverged = node.receipt is not None and node.receipt.status == "diverged"
            done[node.stage] += node.state == "cached"
            diverged[node.stage] += is_diverged
        stages = list(self._graph.nodes)
        return {
            "executed": {stage: self.executed[stage] for stage in stages},
            "cached": {stage: done[stage] - self.executed[stage] for stage in stages},
            "failed": {stage: failed[stage] for stage in stages},
            "diverged": {stage: diverged[stage] for stage in stages},
        }


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
        self._lines.append(printable(message))
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
