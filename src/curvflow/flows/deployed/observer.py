"""An observer that writes a run's page and passes all calls on to another."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, TypeVar, cast

from curvflow.errors import StoreError
from curvflow.flows.deployed.run_page import (
    Page,
    StateType,
    failure_lines,
    plan_markdown,
    run_line,
    run_markdown,
)
from curvflow.flows.plan.plan import Plan
from curvflow.flows.results.check import check
from curvflow.flows.results.findings import Finding
from curvflow.flows.results.results import Results
from curvflow.flows.run.context import Observer
from curvflow.schemas.words import counted

STEPS = 20
SECONDS_APART = 3.0


class Steps:
    """Limits progress reports: at most 20 calls, 3 seconds apart."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._reported, self._at = 0.0, clock()

    def is_due(self, percent: float) -> bool:
        """Return whether to report this progress, in percent, now."""
        now = self._clock()
        is_due = (
            percent - self._reported >= 100 / STEPS and now - self._at >= SECONDS_APART
        )
        if is_due:
            self._reported, self._at = percent, now
        return is_due


Write = TypeVar("Write", bound=Callable[..., None])


def harmless(write: Write) -> Write:
    """Stop updating the page when an update fails; the run continues."""

    @wraps(write)
    def guarded(self: PageObserver, *given: Any, **named: Any) -> None:
        try:
            write(self, *given, **named)
        # Prefect, its client and what it renders fail in their own ways.
        except Exception as error:
            self.page.lose(f"{type(error).__name__}: {error}")

    return cast("Write", guarded)


class PageObserver:
    """Writes the page of a flow run; methods are those of `Observer`.

    Attributes:
        page: of the flow run.
    """

    def __init__(self, page: Page, other: Observer) -> None:
        self.page, self._other = page, other
        self._plan: Plan | None = None
        self._todo: dict[str, int] = {}  # nodes to do at first, per stage
        self._begun: set[str] = set()
        self._over: set[str] = set()
        self._at: dict[str, tuple[int, int]] = {}
        self._known: frozenset[str] = frozenset()
        self._steps, self._summary = Steps(), ""

    def begin(self, plan: Plan) -> None:
        """Show the plan, unless there is nothing to do."""
        self._other.begin(plan)
        self._show_plan(plan)

    @harmless
    def _show_plan(self, plan: Plan) -> None:
        self._plan, self._known = plan, frozenset(plan.index.receipts)
        counts = {stage: plan.counts(stage) for stage in plan.graph.nodes}
        self._at = {stage: (n["cached"], 0) for stage, n in counts.items()}
        self._todo = {
            stage: todo
            for stage, n in counts.items()
            if (todo := n["total"] - n["cached"])
        }
        total, todo = sum(n["total"] for n in counts.values()), sum(self._todo.values())
        self.page.line(f"{total} nodes, {todo or 'nothing'} to do")
        if todo:
            self.page.text(
                f"{self._name}-plan",
                "Plan: nodes and causes",
                plan_markdown(plan.as_json()),
            )
            self._show_progress()

    @property
    def _name(self) -> str:
        assert self._plan is not None
        return self._plan.graph.study.name

    def tile_begins(self, stage: str) -> None:
        """Show the stage as a task."""
        self._other.tile_begins(stage)
        self._begin(stage)

    def _begin(self, stage: str) -> None:
        if stage not in self._begun:
            self._begun.add(stage)
            self.page.stage_begins(stage)

    def stage_at(self, stage: str, *, done: int, failed: int) -> None:
        """Move progress on, and the stage's task if it is over."""
        self._other.stage_at(stage, done=done, failed=failed)
        self._show_stage(stage, done, failed)

    @harmless
    def _show_stage(self, stage: str, done: int, failed: int) -> None:
        self._at[stage] = done, failed
        if stage in self._begun and done + failed >= self._total(stage):
            self._end(stage)
        if self._steps.is_due(self._percent()):
            self._show_progress()

    def _total(self, stage: str) -> int:
        assert self._plan is not None
        return len(self._plan.graph.nodes[stage])

    def _percent(self) -> float:
        reached = sum(map(sum, self._at.values()))
        return 100 * reached / sum(map(self._total, self._at))

    def _show_progress(self) -> None:
        self.page.progress(
            f"{self._name}-progress", "Nodes done or failed", self._percent()
        )

    def _end(self, stage: str, state: StateType | None = None) -> None:
        if stage in self._over:
            return
        self._over.add(stage)
        done, failed = self._at[stage]
        total = self._total(stage)
        text = f"{done} of {total} nodes done" + (f", {failed} failed" * bool(failed))
        self.page.stage_ends(stage, state or _how(done, total), text)
        self.page.line(f"{stage}: {text}")

    def tell(self, message: str) -> None:
        """Add a line to the page."""
        self._other.tell(message)
        self.page.line(message)

    def warn(self, message: str) -> None:
        """Add a warning to the page."""
        self._other.warn(message)
        self.page.line(message, logging.WARNING)

    def end(self) -> None:
        """Pass the end on; the outcome is shown when it is known."""
        self._other.end()

    @harmless
    def stopped(self) -> None:
        """Show that the run was stopped."""
        for stage in self._todo:
            if stage in self._begun:
                self._end(stage, "CANCELLED")
        if self._todo:
            self._show_progress()

    def finished(self, results: Results) -> str:
        """Show the run's outcome; return it in a line, with the first failed nodes."""
        assert results.run is not None
        self._summary = run_line(results.run, 0, "")  # in case the rest fails
        self._show_results(results)
        return self._summary

    @harmless
    def _show_results(self, results: Results) -> None:
        plan, record = self._plan, results.run
        assert plan is not None
        assert record is not None
        counts = record.counts
        for stage in plan.graph.nodes:  # other runs' results were not reported
            done = counts["executed"][stage] + counts["cached"][stage]
            self._at[stage] = done, counts["failed"][stage]
        for stage in self._todo:
            self._begin(stage)
            self._end(stage)
        if self._todo:
            self._show_progress()
        reached = sum(map(sum, self._at.values()))
        blocked = sum(map(self._total, plan.graph.nodes)) - reached
        line = run_line(record, blocked, self._followed(plan, record.begun))
        account = run_markdown(
            record, plan, line, _findings(results, plan), results.files
        )
        self.page.text(f"{self._name}-results", "Results of the run", account)
        grave = logging.ERROR if record.failures else logging.INFO
        self._summary = "\n".join([line, *failure_lines(record)])
        self.page.line(self._summary, grave)

    def _followed(self, plan: Plan, begun: int) -> str:
        """Return the results that concurrent runs computed, in words."""
        others = [
            node.receipt.run
            for node in plan.graph
            if node.receipt is not None
            and node.receipt.run != begun
            and node.key not in self._known
        ]
        if not others:
            return ""
        runs = {run_.begun: run_ for run_ in plan.index.runs}
        names = {
            f"run {runs[run].number} of {runs[run].study}" if run in runs else "a run"
            for run in others
        }
        nodes = counted(len(others), "node")
        return f"{nodes} came from {' and '.join(sorted(names))} at the same time"


def _how(done: int, total: int) -> StateType:
    return "COMPLETED" if done == total else "FAILED"


def _findings(results: Results, plan: Plan) -> Sequence[Finding]:
    with suppress(StoreError):  # arrays may have been removed or lost meanwhile
        return check(results, plan.graph.study.expect)
    return ()
