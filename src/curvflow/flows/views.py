"""The nodes of one stage beside their results, of the present or of an earlier run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from curvflow.errors import UnknownNameError, nearest
from curvflow.flows.plan import Plan
from curvflow.schemas.kind import Kind
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.nodes import Label
from curvflow.schemas.receipts import Receipt, RunRecord
from curvflow.stores.base import Index

Point = tuple[Label, ...]


@dataclass(frozen=True)
class View:
    """One stage's nodes and what became of them.

    Attributes:
        stage: its name.
        kind: declaration of its kind.
        dims: its dimensions.
        points: one label per dimension, per node.
        receipts: per node; None where there is no result.
        failed: points whose nodes raised an error.
    """

    stage: str
    kind: Kind
    dims: tuple[str, ...]
    points: Sequence[Point]
    receipts: Sequence[Receipt | None]
    failed: frozenset[Point] = frozenset()

    def status(self, number: int) -> str:
        """Return `ok`, `diverged`, `failed` or `missing` for one node."""
        receipt = self.receipts[number]
        if receipt is not None:
            return receipt.status
        return "failed" if self.points[number] in self.failed else "missing"

    def counts(self) -> Counter[str]:
        """Count the nodes by status."""
        return Counter(self.status(number) for number in range(len(self.points)))

    def coords(self, number: int) -> dict[str, Label]:
        """Return a node's labels by dimension."""
        return dict(zip(self.dims, self.points[number], strict=True))

    def where(self, labels: Mapping[str, str]) -> View:
        """Keep the nodes at the given labels, compared as text.

        Args:
            labels: dimension to label.

        Returns:
            The view of those nodes.

        Raises:
            UnknownNameError: the stage has no such dimension or label.
        """
        for dim, label in labels.items():
            if dim not in self.dims:
                hint = nearest(dim, self.dims) or "It has no dimensions."
                raise UnknownNameError(
                    f"{self.stage}: expected one of its dimensions, got '{dim}'. {hint}"
                )
            known = {str(point[self.dims.index(dim)]) for point in self.points}
            if label not in known:
                raise UnknownNameError(
                    f"{self.stage}[{dim}]: expected one of its labels, got '{label}'. "
                    f"{nearest(label, known)}"
                )
        keep = [n for n in range(len(self.points)) if self._matches(n, labels)]
        return View(
            self.stage,
            self.kind,
            self.dims,
            [self.points[n] for n in keep],
            [self.receipts[n] for n in keep],
            self.failed,
        )

    def _matches(self, number: int, labels: Mapping[str, str]) -> bool:
        coords = self.coords(number)
        return all(str(coords[dim]) == label for dim, label in labels.items())


def plan_views(
    plan: Plan, failures: Iterable[Mapping[str, Any]] = ()
) -> dict[str, View]:
    """Return the views of a study as it stands."""
    failed: dict[str, set[Point]] = {}
    for failure in failures:
        point = tuple(failure["coords"].values())
        failed.setdefault(failure["stage"], set()).add(point)
    stages = plan.graph.study.stages
    return {
        name: View(
            name,
            stages[name].kind,
            stages[name].dims,
            [node.point for node in nodes],
            [node.receipt if node.state == "cached" else None for node in nodes],
            frozenset(failed.get(name, ())),
        )
        for name, nodes in plan.graph.nodes.items()
    }


def run_tables(views: Mapping[str, View], index: Index) -> dict[str, Any]:
    """Write views down so that they can be read as of this run.

    Args:
        views: of the run's study.
        index: the log, with the run's commits.

    Returns:
        Per stage its kind, dims, and labels and place in the log per node; or
        `{"same_as": number}` if the last run's tables say the same.
    """
    places = {
        receipt.key: place
        for place, receipt in index.rows.items()
        if index.receipts.get(receipt.key) is receipt
    }
    tables = {
        name: {
            "kind": view.kind.name,
            "dims": list(view.dims),
            "nodes": [
                [list(view.points[n]), *_place(places, receipt, view.status(n))]
                for n, receipt in enumerate(view.receipts)
            ],
        }
        for name, view in views.items()
    }
    for run in reversed(index.runs):
        if run.ended is not None and run.tables == tables:
            return {"same_as": run.ended}
    return tables


def _place(
    places: Mapping[str, tuple[int, int]], receipt: Receipt | None, status: str
) -> tuple[list[int] | None, str]:
    return (None, status) if receipt is None else (list(places[receipt.key]), status)


def run_views(run: RunRecord, index: Index) -> dict[str, View]:
    """Return the views of a study as an earlier run left it.

    Args:
        run: a run that has ended.
        index: the log.

    Returns:
        The views; results are those of that run, whatever came later.
    """
    tables = dict(run.tables)
    while "same_as" in tables:
        origin = tables["same_as"]
        tables = dict(next(r for r in index.runs if r.ended == origin).tables)
    return {name: _view(name, table, index) for name, table in tables.items()}


def _view(name: str, table: Mapping[str, Any], index: Index) -> View:
    points = [tuple(labels) for labels, _, _ in table["nodes"]]
    return View(
        name,
        find_kind(table["kind"]),
        tuple(table["dims"]),
        points,
        [index.rows[tuple(p)] if p else None for _, p, _ in table["nodes"]],
        frozenset(
            point
            for point, (_, _, status) in zip(points, table["nodes"], strict=True)
            if status == "failed"
        ),
    )
