"""The results of each node of a stage, at present or as of an earlier run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from curvflow.errors import StoreError, StudyError, UnknownNameError, nearest
from curvflow.flows.graph.graph import find_partial
from curvflow.flows.plan.plan import Plan
from curvflow.flows.reads.current import blind_spots
from curvflow.schemas.keys import normalised
from curvflow.schemas.kind import Kind
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.nodes import Label
from curvflow.schemas.records.receipts import Receipt, RunRecord
from curvflow.schemas.study.yaml_source import parse
from curvflow.stores.base import Index, Store

Point = tuple[Label, ...]
Place = tuple[int, int]


@dataclass(frozen=True)
class View:
    """One stage's nodes and their results.

    Attributes:
        stage: its name.
        use: name of its kind.
        dims: its dimensions.
        points: one label per dimension, per node.
        receipts: per node; None where there is no result.
        failed: points whose nodes raised an error.
        declared: declaration of its kind, if it is known already.
        removed: payloads that are gone since collection removed them.
    """

    stage: str
    use: str
    dims: tuple[str, ...]
    points: Sequence[Point]
    receipts: Sequence[Receipt | None]
    failed: frozenset[Point] = frozenset()
    declared: Kind | None = None
    removed: frozenset[str] = frozenset()

    @property
    def kind(self) -> Kind:
        """Declaration of its kind; UnknownNameError if that is there no more."""
        return self.declared or find_kind(self.use)

    def status(self, number: int) -> str:
        """Return `ok`, `diverged`, `removed`, `failed` or `missing` for one node."""
        receipt = self.receipts[number]
        if receipt is not None:
            return "removed" if receipt.payload in self.removed else receipt.status
        return "failed" if self.points[number] in self.failed else "missing"

    def counts(self) -> Counter[str]:
        """Count the nodes by status."""
        return Counter(self.status(number) for number in range(len(self.points)))

    def chosen(self) -> list[str]:
        """Return the choices made while computing, each with its number of nodes.

        Such as the fastest differentiation mode: it may be another on another day.
        """
        return self._counted(lambda receipt: [receipt.how] if receipt.how else [])

    def blind_spots(self) -> list[str]:
        """Return what may have changed unnoticed, each with its number of nodes."""
        return self._counted(lambda receipt: blind_spots(receipt.reads))

    def _counted(self, lines: Callable[[Receipt], Iterable[str]]) -> list[str]:
        receipts = [receipt for receipt in self.receipts if receipt is not None]
        counts = Counter(line for receipt in receipts for line in lines(receipt))
        of = len(receipts)
        return [f"{line} ({count} of {of} nodes)" for line, count in counts.items()]

    def coords(self, number: int) -> dict[str, Label]:
        """Return a node's labels by dimension."""
        return dict(zip(self.dims, self.points[number], strict=True))

    def where(self, labels: Mapping[str, str | Sequence[str]]) -> View:
        """Keep the nodes at the given labels, compared as text or as YAML.

        Raises:
            UnknownNameError: the stage has no such dimension or label.
        """
        positions = range(len(self.points))
        keep = set(positions)
        for dim, texts in labels.items():
            if dim not in self.dims:
                hint = nearest(dim, self.dims) or "It has no dimensions."
                raise UnknownNameError(
                    f"{self.stage}: expected one of its dimensions, got '{dim}'. {hint}"
                )
            slot = self.dims.index(dim)
            several = normalised([texts] if isinstance(texts, str) else [*texts])
            matching = {
                label for text in several for label in self._labelled(slot, text)
            }
            keep &= {
                n for n in positions if typed_label(self.points[n][slot]) in matching
            }
        return replace(
            self,
            points=[self.points[n] for n in sorted(keep)],
            receipts=[self.receipts[n] for n in sorted(keep)],
        )

    def _labelled(self, slot: int, text: str) -> set[tuple[type, Label]]:
        """Return the labels of a dimension that a text means."""
        known = {typed_label(point[slot]) for point in self.points}
        exact = {label for label in known if str(label[1]) == text}
        if matching := exact or {label for label in known if _means(text, label[1])}:
            return matching
        hint = nearest(text, (str(label) for _, label in known))
        raise UnknownNameError(
            f"{self.stage}[{self.dims[slot]}]: expected one of its labels, got "
            f"'{text}'. {hint}"
        )


def typed_label(label: Label) -> tuple[type, Label]:
    """Return a label with its type, so that 1, 1.0 and True differ."""
    return type(label), label


def _means(text: str, label: Label) -> bool:
    with suppress(StudyError):
        written = parse(text, lambda *_: "")
        value = None if written is None else written.value
        # `true` is not 1, though Python holds them equal.
        return isinstance(value, bool) == isinstance(label, bool) and value == label
    return False


def plan_views(
    plan: Plan, failures: Iterable[Mapping[str, Any]] = (), *, is_ahead: bool = False
) -> dict[str, View]:
    """Return the view of each stage as the study stands.

    With `is_ahead` the plan is not carried out, so that results that it would bring
    back stand.
    """
    failed: dict[str, set[Point]] = {}
    for failure in failures:
        point = tuple(failure["coords"].values())
        failed.setdefault(failure["stage"], set()).add(point)
    stages = plan.graph.study.stages
    return {
        name: View(
            name,
            stages[name].kind.name,
            stages[name].dims,
            [node.point for node in nodes],
            [
                node.receipt
                if node.state == "cached" or (is_ahead and node.revive)
                else None
                for node in nodes
            ],
            frozenset(failed.get(name, ())),
            stages[name].kind,
        )
        for name, nodes in plan.graph.nodes.items()
    }


def standing_views(plan: Plan) -> dict[str, View]:
    """Return the view of each stage as the study stands, by a plan not carried out.

    What waits for nodes that failed has the result that was made without them, if
    there is one. The plan is of no further use.
    """
    failures = plan.causes.failures()
    keys = [failure["key"] for failure in failures]
    find_partial(plan.graph, plan.index, keys, plan.reads)
    return plan_views(plan, failures, is_ahead=True)


def with_removed(views: Mapping[str, View], store: Store) -> dict[str, View]:
    """Mark results whose arrays collection has removed.

    A result that was computed again since is where it is now.
    """
    index = store.index()
    if not index.evicted:
        return dict(views)

    def present(receipt: Receipt | None) -> Receipt | None:
        if receipt is None or receipt.payload not in index.evicted:
            return receipt
        live = index.receipts.get(receipt.key, receipt)
        return live if live.digest == receipt.digest else receipt

    receipts = {name: [*map(present, view.receipts)] for name, view in views.items()}
    held = {
        receipt.payload
        for several in receipts.values()
        for receipt in several
        if receipt
    }
    evicted = {payload for payload in held if payload} & index.evicted
    gone = frozenset(evicted - store.present(evicted))
    return {
        name: replace(view, receipts=receipts[name], removed=gone)
        for name, view in views.items()
    }


def run_tables(views: Mapping[str, View], index: Index) -> dict[str, Any]:
    """Return tables from which views can be read as of this run.

    Per stage: kind, dims, and labels, place in the log and status per node; or
    `{"same_as": number}` if the run that ended there has the same table.
    """
    place = _places(index)
    earlier = defaultdict(list)
    for run in index.runs:
        for name, table in run.tables.items():
            if "same_as" not in table:
                earlier[name].append((table, run.ended))
    tables: dict[str, Any] = {}
    for name, view in views.items():
        nodes = [_entry(view, n, place) for n in range(len(view.points))]
        table = {"kind": view.use, "dims": list(view.dims), "nodes": nodes}
        same = (ended for other, ended in reversed(earlier[name]) if other == table)
        origin = next(same, None)
        tables[name] = table if origin is None else {"same_as": origin}
    return tables


def _places(index: Index) -> Callable[[Receipt], Place | None]:
    # By identity first: the same key may have been committed, retired and committed.
    by_identity = {id(receipt): place for place, receipt in index.rows.items()}
    alike = {(r.key, r.digest): place for place, r in index.rows.items()}
    return lambda r: by_identity.get(id(r)) or alike.get((r.key, r.digest))


def _entry(
    view: View, number: int, place: Callable[[Receipt], Place | None]
) -> list[Any]:
    receipt, status = view.receipts[number], view.status(number)
    where = None if receipt is None else place(receipt)
    if receipt is not None and where is None:
        status = "missing"
    return [list(view.points[number]), where and list(where), status]


def run_views(run: RunRecord, index: Index) -> dict[str, View]:
    """Return the views of a study as an earlier run left it, whatever came later.

    Raises:
        StoreError: an entry of the log that the run refers to is lost.
    """
    by_end = {past_run.ended: past_run for past_run in index.runs}
    views = {}
    for name, table in run.tables.items():
        number = table.get("same_as", run.ended)
        if (origin := by_end.get(number)) is None:
            raise StoreError(
                f"{run.study}: expected commit {number}, which holds what run "
                f"{run.number} says of {name}, got a torn entry. Show a later run."
            )
        views[name] = _view(name, origin.tables[name], index)
    return views


def _view(name: str, table: Mapping[str, Any], index: Index) -> View:
    points = [tuple(labels) for labels, _, _ in table["nodes"]]
    return View(
        name,
        table["kind"],
        tuple(table["dims"]),
        points,
        # An entry that was lost since leaves its results missing.
        [index.rows.get(tuple(p)) if p else None for _, p, _ in table["nodes"]],
        frozenset(
            point
            for point, (_, _, status) in zip(points, table["nodes"], strict=True)
            if status == "failed"
        ),
    )
