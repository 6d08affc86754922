"""The results of stages as tables, read node by node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from curvflow.errors import CorruptPayloadError, RemovedPayloadError
from curvflow.flows.report.basis import Basis, kind_of
from curvflow.flows.report.grids import Grid, Read, grids
from curvflow.flows.report.origins import Origins
from curvflow.flows.results.convergence_counts import made_of, made_without
from curvflow.flows.results.node_results import View
from curvflow.flows.results.outputs import view_records
from curvflow.flows.results.run_facts import divergences
from curvflow.schemas.explanations import explanations
from curvflow.schemas.kinds.aggregate.compare import DIFFERING
from curvflow.schemas.kinds.shared.figures import HOLD
from curvflow.schemas.nodes import Table
from curvflow.schemas.records.tables import unmeasured
from curvflow.schemas.words import counted, span_text

# Nodes of one stage that are read: of tables, which hold the outcome, and of others.
MOST_TABLES, MOST_NODES = 200, 100
MOST_REASONS = 5  # listed for one stage


@dataclass(frozen=True)
class StageTables:
    """The content of the page about one stage.

    Attributes:
        name: of the stage.
        kind: name of its kind.
        summary: of the kind, in a line.
        formula: in symbols; empty if the kind states none.
        source: citation.
        dims: its dimensions.
        counts: nodes by status.
        grids: its results.
        notes: results not shown, and settings chosen while computing.
        command: prints all results; empty if all are shown.
    """

    name: str
    kind: str
    summary: str
    formula: str
    source: str
    dims: Sequence[str]
    counts: Sequence[tuple[str, int]]
    grids: Sequence[Grid] = ()
    notes: Sequence[str] = ()
    command: str = ""

    @property
    def total(self) -> int:
        """Return the number of nodes."""
        return sum(number for _, number in self.counts)


class Reader:
    """Reads results for one page, and lists those it cannot read.

    Attributes:
        unreadable: a line for each result that could not be read.
    """

    def __init__(self, basis: Basis, origins: Origins) -> None:
        self._basis, self._origins = basis, origins
        self.unreadable: list[str] = []

    def records(
        self, view: View, numbers: Iterable[int], names: Sequence[str] | None = None
    ) -> Iterator[Read]:
        """Yield nodes' records with their origins; a damaged node hides no other."""
        for number in numbers:
            alone = replace(
                view, points=[view.points[number]], receipts=[view.receipts[number]]
            )
            origin = self._origins.number(view, number)
            try:
                records = view_records(alone, self._basis.opened.store, names)
            except (CorruptPayloadError, RemovedPayloadError) as error:
                self.unreadable.append(str(error))
                records = [{**view.coords(number), "status": "unreadable"}]
            yield from ((origin, record) for record in records)

    def stage(self, view: View) -> StageTables:
        """Read a stage's tables, with notes on nodes that are not in them."""
        kind = kind_of(view)
        counts = sorted(view.counts().items(), key=lambda item: -item[1])
        if kind is None:
            note = (
                f"Kind {view.use} is not declared here, so its results cannot be shown."
            )
            return StageTables(
                view.stage, view.use, "", "", "", view.dims, counts, (), [note]
            )
        most = MOST_TABLES if issubclass(kind.returns, Table) else MOST_NODES
        units = {variable.name: variable.units for variable in kind.outputs}
        shown = range(min(len(view.points), most))
        read, unmeasured_note = _measured(list(self.records(view, shown)))
        tables = grids(view, kind, read, units)
        explanation = explanations().get(view.use)
        left = [*_left_out(view, len(shown)), *_cut(tables)]
        return StageTables(
            view.stage,
            view.use,
            kind.summary,
            explanation.formula if explanation else "",
            explanation.source if explanation else "",
            view.dims,
            counts,
            tables,
            [*left, *unmeasured_note, *self._notes(view, read)],
            self._basis.request.command("show", view.stage, "--csv") if left else "",
        )

    def _notes(self, view: View, read: Sequence[Read]) -> Iterator[str]:
        """Yield what results are made of and without, and how they came about."""
        store = self._basis.opened.store
        made = (*made_without(view), *made_of(view, self._basis.views, store))
        yield from map(_sentence, made)
        yield from hold_notes([record for _, record in read])
        yield from _differing(read)
        yield from _diverged(view)
        for choice in view.chosen():
            yield f"Chosen while computing: {choice}."
        yield from map(_sentence, view.blind_spots())


def _sentence(line: str) -> str:
    return f"{line[0].upper()}{line[1:]}."


def _measured(read: list[Read]) -> tuple[list[Read], list[str]]:
    """Leave out quantities of a table that no node measured, with a note."""
    names = unmeasured([record for _, record in read])
    kept = [pair for pair in read if pair[1].get("quantity") not in names]
    return kept, [f"Measured at no node: {', '.join(sorted(names))}."] if names else []


def _left_out(view: View, shown: int) -> Iterator[str]:
    left = range(shown, len(view.points))
    if left:
        counts: dict[str, int] = {}
        for number in left:
            status = view.status(number)
            counts[status] = counts.get(status, 0) + 1
        listed = ", ".join(f"{number:,} {status}" for status, number in counts.items())
        yield (
            f"The first {shown:,} of {counted(len(view.points), 'node')} are shown; "
            f"the others: {listed}."
        )


def _differing(read: Sequence[Read]) -> Iterator[str]:
    if number := sum(bool(record.get(DIFFERING)) for _, record in read):
        yield (
            f"Settings differ between the estimates compared in {number:,} of "
            f"{counted(len(read), 'row')}, which may explain differences."
        )


def hold_notes(records: Iterable[Mapping[str, Any]], of: str = "") -> Iterator[str]:
    """Yield a sentence on the localization of estimates, if they have one.

    Such as `Localization of llc: 5.6 to 17.7 in 9 estimates.`
    """
    values = [float(record[HOLD[0]]) for record in records if HOLD[0] in record]
    if values:
        yield f"Localization{f' of {of}' if of else ''}: {span_text(values)}."


def _diverged(view: View) -> Iterator[str]:
    reasons = divergences((view.stage, receipt) for receipt in view.receipts)
    for (_, reason), number in reasons.most_common(MOST_REASONS):
        yield f"{counted(number, 'node')} diverged: {reason}"
    if more := sum(n for _, n in reasons.most_common()[MOST_REASONS:]):
        yield f"{counted(more, 'node')} diverged for other reasons."


def _cut(tables: Iterable[Grid]) -> Iterator[str]:
    for grid in tables:
        if grid.more:
            yield (
                f"{grid.name}: the first {len(grid.rows):,} of "
                f"{len(grid.rows) + grid.more:,} rows are shown."
            )
