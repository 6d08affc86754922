"""What a report is drawn from: a study, its results, and the log of its store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from curvflow.errors import UnknownNameError
from curvflow.flows.graph.graph import node_name
from curvflow.flows.graph.heartbeats import process
from curvflow.flows.graph.open_study import Opened
from curvflow.flows.report.request import Asked
from curvflow.flows.results.node_results import Point, View
from curvflow.flows.results.results import Results
from curvflow.schemas.kind import Kind
from curvflow.schemas.nodes import Label
from curvflow.schemas.records.receipts import Receipt, RunRecord
from curvflow.stores.base import Index


@dataclass(frozen=True)
class Basis:
    """A study and what its store holds of it at one moment.

    Attributes:
        asked: how the report was asked for.
        opened: the study and its store.
        results: as it stands, or of one run.
        index: the log.
        text: of the study file.
        drifts: kinds whose code has changed since, and how many results are concerned.
    """

    asked: Asked
    opened: Opened
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
        """Name of the study."""
        return self.opened.study.name

    @cached_property
    def views(self) -> list[View]:
        """Every stage's nodes, in the study's order."""
        return [self.results.view(stage) for stage in self.results]

    @cached_property
    def runs(self) -> list[RunRecord]:
        """The runs of the study, the latest last."""
        return [run for run in self.index.runs if run.study == self.name]

    @property
    def run(self) -> RunRecord | None:
        """The run that is told of: the one asked for, or the latest of this very study.

        Runs with other overrides tell of other results.
        """
        alike = [r for r in self.runs if r.document == self.opened.study.document]
        return self.results.run or next(reversed(alike or self.runs), None)

    def run_of(self, receipt: Receipt) -> RunRecord | None:
        """Return the run that computed a result; None if that is not known."""
        place = self.index.places.get(receipt.run)
        return None if place is None else self.index.runs[place]

    def error(self, view: View, number: int) -> str:
        """Return what a failed node raised, on one line; empty if it is not known."""
        failure = self._failures.get((view.stage, tuple(view.points[number])), {})
        return " ".join(str(failure.get("error", "")).split())

    def status(self, run: RunRecord) -> str:
        """Return `done`, `failed`, `interrupted`, or how a run at work does."""
        store = self.opened.store
        sign = store.heartbeats().get(run.begun) if run.ended is None else None
        if sign is not None and (state := process(sign)) != "ended":
            return state
        # It may have ended since the log was read.
        now = store.index() if run.ended is None else self.index
        return now.runs[now.places[run.begun]].status

    def receipts(self) -> Iterator[Receipt]:
        """Yield the receipt of every result, those of one key once."""
        seen: set[str] = set()
        for receipt in (one for view in self.views for one in view.receipts if one):
            if receipt.key not in seen:
                seen.add(receipt.key)
                yield receipt


def kind_of(view: View) -> Kind | None:
    """Return the declaration of a stage's kind; None if that is there no more."""
    try:
        return view.kind
    except UnknownNameError:
        return None


@dataclass(frozen=True)
class _Named:
    stage: str
    coords: Mapping[str, Label]


def name_of(view: View, number: int) -> str:
    """Name a node of a stage, such as `fit[seed=0]`."""
    return node_name(_Named(view.stage, view.coords(number)))


def compact(values: Sequence[object]) -> str:
    """List values, whole numbers in a row as a span.

    Args:
        values: such as labels of an axis.

    Returns:
        Such as `0-4`, `sgd, adam`, or the first of many and how many there are.
    """
    if (
        len(values) > 2
        and all(type(one) is int for one in values)
        and list(values) == list(range(values[0], values[0] + len(values)))  # type: ignore[call-overload,operator]
    ):
        return f"{values[0]}\N{EN DASH}{values[-1]}"
    told = ", ".join(map(str, values[:6]))
    return f"{told}, ... ({len(values)})" if len(values) > 6 else told
