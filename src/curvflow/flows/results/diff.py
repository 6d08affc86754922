"""Differences between the results of two runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from curvflow.errors import CorruptPayloadError, UnknownNameError, nearest
from curvflow.flows.results.node_results import View, run_views, typed_label
from curvflow.schemas.nodes import Array, Table
from curvflow.schemas.records.compare import (
    compare_arrays,
    compare_rows,
    largest_differences,
)
from curvflow.schemas.records.receipts import Receipt, RunRecord
from curvflow.schemas.records.records import records
from curvflow.stores.base import Index, Store

VERDICTS = ("added", "removed", "changed", "recomputed", "same")

Pair = tuple[dict[str, Any], Receipt, Receipt]  # coordinates, before, after


@dataclass
class StageDiff:
    """One stage before and after.

    Attributes:
        stage: its name.
        kind: name of its kind, after if it has one there.
        counts: nodes by verdict. `added` and `removed` have a result after or before
            alone, `changed` another one, `recomputed` an equal one computed again.
        statuses: changed nodes whose status is another, by `ok -> diverged`.
        below_rtol: numbers, or variables of nodes, that differ too little to be listed.
        gone: changed nodes whose arrays are there no more, or cannot be read.
        rows: of tables, each number that differs: `labels`, `statistic`, `old`, `new`,
            `difference`, `relative`, and `standard_errors` where one is known.
        variables: of other kinds, per variable that differs the number of `nodes`, the
            largest `absolute` and `relative` difference, and where the first of these
            is, `at`.
    """

    stage: str
    kind: str
    counts: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    below_rtol: int = 0
    gone: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)
    variables: list[dict[str, Any]] = field(default_factory=list)

    @property
    def differs(self) -> bool:
        """Return whether any result differs."""
        return any(self.counts[name] for name in VERDICTS[:3])

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        return {
            "kind": self.kind,
            **{name: self.counts[name] for name in VERDICTS},
            "statuses": dict(self.statuses),
            "below_rtol": self.below_rtol,
            "gone": self.gone,
            "rows": self.rows,
            "variables": self.variables,
        }


def diff_runs(
    before: RunRecord,
    after: RunRecord,
    store: Store,
    *,
    stages: Sequence[str] = (),
    rtol: float = 0.0,
) -> list[StageDiff]:
    """Compare the results of two runs, stage by stage, those of the later run first.

    Numbers within the relative difference `rtol` are not listed.

    Raises:
        UnknownNameError: neither run has a stage of a name given.
    """
    index = store.index()
    old, new = run_views(before, index), run_views(after, index)
    names = [*new, *(name for name in old if name not in new)]
    for name in stages:
        if name not in names:
            raise UnknownNameError(
                f"--stage: expected a stage of either run, got '{name}'. "
                f"{nearest(name, names)}"
            )
    comparison = _Comparison(store, index, rtol)
    return [
        comparison.of(old.get(name), new.get(name))
        for name in names
        if not stages or name in stages
    ]


class _Comparison:
    def __init__(self, store: Store, index: Index, rtol: float) -> None:
        self._store, self._index, self._rtol = store, index, rtol

    def of(self, old: View | None, new: View | None) -> StageDiff:
        view = new or old
        assert view is not None
        difference = StageDiff(view.stage, view.use)
        pairs = []
        before, after = _results(old), _results(new)
        for place in {**before, **after}:
            ours, theirs = before.get(place), after.get(place)
            verdict = _verdict(ours, theirs)
            difference.counts[verdict] += 1
            if verdict == "changed" and ours and theirs:
                pairs.append((dict(zip(place[0], place[1], strict=True)), ours, theirs))
        self._numbers(difference, view, [(_labels(c), a, b) for c, a, b in pairs])
        return difference

    def _numbers(
        self, difference: StageDiff, view: View, pairs: Sequence[Pair]
    ) -> None:
        difference.statuses.update(
            f"{a.status} -> {b.status}" for _, a, b in pairs if a.status != b.status
        )
        try:
            kind = view.kind
        except UnknownNameError:  # digests alone can be compared
            difference.variables = _by_digests(pairs)
            return
        wanted = [v.name for v in kind.chosen() if not v.file]
        read = [(c, a, b, self._both(a, b, wanted)) for c, a, b in pairs]
        difference.gone = sum(arrays is None for *_, arrays in read)
        there = [(c, *arrays) for c, _, _, arrays in read if arrays is not None]
        if issubclass(kind.returns, Table):
            sides = (
                records([(c, "", sides[side]) for c, *sides in there], kind.outputs)
                for side in (0, 1)
            )
            rows = compare_rows(*sides)
            difference.rows = [row for row in rows if row["relative"] > self._rtol]
            difference.below_rtol = len(rows) - len(difference.rows)
            return
        apart = [e for c, a, b in there for e in compare_arrays(c, a, b)]
        listed = [number for number in apart if number.relative > self._rtol]
        difference.below_rtol = len(apart) - len(listed)
        units = {variable.name: variable.units for variable in kind.outputs}
        difference.variables = largest_differences(listed, units)

    def _both(
        self, before: Receipt, after: Receipt, names: Sequence[str]
    ) -> tuple[Mapping[str, Array], Mapping[str, Array]] | None:
        try:
            return self._read(before, names), self._read(after, names)
        except CorruptPayloadError:
            return None

    def _read(self, receipt: Receipt, names: Sequence[str]) -> Mapping[str, Array]:
        live = self._index.receipts.get(receipt.key, receipt)
        if live.digest == receipt.digest:  # it may have been computed again since
            receipt = live
        if receipt.payload is None:
            return {}
        held = {part.partition("@")[0] for part in receipt.parts}
        return self._store.read(receipt, [name for name in names if name in held])


Place = tuple[tuple[str, ...], tuple[Any, ...]]


def _results(view: View | None) -> dict[Place, Receipt | None]:
    if view is None:
        return {}
    return {
        (view.dims, tuple(typed_label(label) for label in point)): receipt
        for point, receipt in zip(view.points, view.receipts, strict=True)
    }


def _labels(coords: Mapping[str, Any]) -> dict[str, Any]:
    return {dim: label for dim, (_, label) in coords.items()}


def _verdict(before: Receipt | None, after: Receipt | None) -> str:
    if before is None or after is None:
        return "added" if after else "removed" if before else "without result"
    if before is after:
        return "same"
    return "recomputed" if before.digest == after.digest else "changed"


def _by_digests(pairs: Iterable[Pair]) -> list[dict[str, Any]]:
    counts = Counter(
        name
        for _, before, after in pairs
        for name in {
            part.partition("@")[0]
            for part in before.parts.keys() | after.parts.keys()
            if before.parts.get(part) != after.parts.get(part)
        }
    )
    return [{"variable": name, "nodes": nodes} for name, nodes in counts.most_common()]
