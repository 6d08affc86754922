"""The basis of a report: a study, its results, and the log of its store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from curvflow.errors import UnknownNameError
from curvflow.flows.graph.heartbeats import process
from curvflow.flows.graph.open_study import OpenedStudy
from curvflow.flows.report.request import ReportRequest
from curvflow.flows.results.node_results import Point, View
from curvflow.flows.results.results import Results
from curvflow.flows.results.run_facts import printable_line
from curvflow.schemas.kind import Kind
from curvflow.schemas.records.receipts import Receipt, RunRecord
from curvflow.schemas.words import node_label
from curvflow.stores.base import Index


@dataclass(frozen=True)
class Basis:
    """A study and the contents of its store at one moment.

    Attributes:
        request: for the report.
        opened: the study and its store.
        results: the current ones, or those of one run.
        index: the log.
        text: of the study file.
        drifts: kinds whose code has changed since, with numbers of results.
    """

    request: ReportRequest
    opened: OpenedStudy
    results: Results
    index: Index
    text: str
    drifts: Sequence[tuple[str, int]] = ()
    _failures: dict[tuple[str, Point], Mapping[str, Any]] = field(
        init=False, repr=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        """Remember the latest failure of each node."""
        runs = self.runs if self.results.run is None else [self.results.run]
        for run in runs:
            for failure in run.failures:
                point = tuple(failure["coords"].values())
                self._failures[failure["stage"], point] = failure

    @property
    def name(self) -> str:
        """Return the name of the study."""
        return self.opened.study.name

    @cached_property
    def views(self) -> list[View]:
        """Return every stage's nodes, in the study's order."""
        return [self.results.view(stage) for stage in self.results]

    @cached_property
    def runs(self) -> list[RunRecord]:
        """Return the runs of the study, the latest last."""
        return [run for run in self.index.runs if run.study == self.name]

    @property
    def run(self) -> RunRecord | None:
        """Return the run reported: the requested one, or the latest of this study."""
        alike = [r for r in self.runs if r.document == self.opened.study.document]
        return self.results.run or next(reversed(alike or self.runs), None)

    def run_of(self, receipt: Receipt) -> RunRecord | None:
        """Return the run that computed a result; None if that is not known."""
        place = self.index.places.get(receipt.run)
        return None if place is None else self.index.runs[place]

    def error(self, view: View, number: int) -> str:
        """Return a failed node's error on one line; empty if unknown."""
        failure = self._failures.get((view.stage, tuple(view.points[number])), {})
        return printable_line(failure.get("error", ""))

    def status(self, run: RunRecord) -> str:
        """Return `done`, `failed`, `interrupted`, or the state of a live run."""
        store = self.opened.store
        heartbeat = store.heartbeats().get(run.begun) if run.ended is None else None
        if heartbeat is not None and (state := process(heartbeat)) != "ended":
            return state
        # It may have ended since the log was read.
        now = store.index() if run.ended is None else self.index
        return now.runs[now.places[run.begun]].status

    def receipts(self) -> Iterator[Receipt]:
        """Yield the receipt of every result, each key once."""
        seen: set[str] = set()
        for receipt in (r for view in self.views for r in view.receipts):
            if receipt and receipt.key not in seen:
                seen.add(receipt.key)
                yield receipt


def kind_of(view: View) -> Kind | None:
    """Return the declaration of a stage's kind; None if it is not installed."""
    try:
        return view.kind
    except UnknownNameError:
        return None


def name_of(view: View, number: int) -> str:
    """Name a node of a stage, such as `fit[seed=0]`."""
    return node_label(view.stage, view.coords(number))


def compact(values: Sequence[object]) -> str:
    """List values: a range as `0-4`, many as the first ones and their number."""
    if (
        len(values) > 2
        and all(type(value) is int for value in values)
        and list(values) == list(range(values[0], values[0] + len(values)))  # type: ignore[call-overload,operator]
    ):
        return f"{values[0]}\N{EN DASH}{values[-1]}"
    listed = ", ".join(map(str, values[:6]))
    return f"{listed}, ... ({len(values)})" if len(values) > 6 else listed
