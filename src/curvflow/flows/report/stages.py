"""The results of stages as tables, read node by node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from curvflow.errors import CorruptPayloadError, RemovedPayloadError
from curvflow.flows.report.basis import Basis, kind_of
from curvflow.flows.report.grids import Grid, Read, grids
from curvflow.flows.report.origins import Origins
from curvflow.flows.results.convergence_counts import made_of
from curvflow.flows.results.node_results import View
from curvflow.flows.results.outputs import view_records
from curvflow.schemas.explanations import explanations
from curvflow.schemas.kinds.aggregate.compare import DIFFERING
from curvflow.schemas.nodes import Table
from curvflow.schemas.words import counted

# Nodes of one stage that are read: of tables, which say what came out, and of others.
MOST_TABLES, MOST_NODES = 200, 100
MOST_REASONS = 5  # why nodes of one stage diverged


@dataclass(frozen=True)
class StageTables:
    """What the page shows of one stage.

    Attributes:
        name: of the stage.
        kind: name of its kind.
        summary: what the kind does, in a line.
        formula: what it computes, in symbols; empty if nobody has said so.
        source: whose idea that is.
        dims: its dimensions.
        counts: nodes by status.
        grids: its results.
        notes: what is not shown and why, and what was chosen on the spot.
        command: prints all of them; empty if all are here.
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
        """Number of nodes."""
        return sum(number for _, number in self.counts)


class Reader:
    """Reads results for one page.

    Attributes:
        unreadable: what could not be read, a line each.
    """

    def __init__(self, basis: Basis, origins: Origins) -> None:
        """Begin to read.

        Args:
            basis: what the page is drawn from.
            origins: take note of the nodes read.
        """
        self._basis, self._origins = basis, origins
        self.unreadable: list[str] = []

    def records(
        self, view: View, numbers: Iterable[int], names: Sequence[str] | None = None
    ) -> Iterator[Read]:
        """Read nodes one by one, so that one that is damaged hides no other.

        Args:
            view: their stage.
            numbers: of the nodes.
            names: of variables; all that tables hold by default.

        Yields:
            Records, each with its origin.
        """
        for number in numbers:
            alone = replace(
                view, points=[view.points[number]], receipts=[view.receipts[number]]
            )
            origin = self._origins.number(view, number)
            try:
                found = view_records(alone, self._basis.opened.store, names)
            except (CorruptPayloadError, RemovedPayloadError) as error:
                self.unreadable.append(str(error))
                found = [{**view.coords(number), "status": "unreadable"}]
            yield from ((origin, record) for record in found)

    def stage(self, view: View) -> StageTables:
        """Read what the page shows of a stage.

        Args:
            view: the stage.

        Returns:
            Its tables, and how many nodes are not in them.
        """
        kind = kind_of(view)
        counts = sorted(view.counts().items(), key=lambda item: -item[1])
        if kind is None:
            note = f"Nothing here declares {view.use} any more, so it cannot be shown."
            return StageTables(
                view.stage, view.use, "", "", "", view.dims, counts, (), [note]
            )
        most = MOST_TABLES if issubclass(kind.returns, Table) else MOST_NODES
        units = {variable.name: variable.units for variable in kind.outputs}
        shown = range(min(len(view.points), most))
        read = list(self.records(view, shown))
        found = grids(view, kind, read, units)
        told = explanations().get(view.use)
        left = [*_left_out(view, len(shown)), *_cut(found)]
        store = self._basis.opened.store
        made = [
            f"{line[0].upper()}{line[1:]}."
            for line in made_of(view, self._basis.views, store)
        ]
        chosen = (f"Chosen while computing: {one}." for one in view.chosen())
        return StageTables(
            view.stage,
            view.use,
            kind.summary,
            told.formula if told else "",
            told.source if told else "",
            view.dims,
            counts,
            found,
            [*left, *made, *_differing(read), *_diverged(view), *chosen],
            self._basis.asked.command("show", view.stage, "--csv") if left else "",
        )


def _left_out(view: View, shown: int) -> Iterator[str]:
    left = range(shown, len(view.points))
    if left:
        counts: dict[str, int] = {}
        for number in left:
            status = view.status(number)
            counts[status] = counts.get(status, 0) + 1
        told = ", ".join(f"{number:,} {status}" for status, number in counts.items())
        yield (
            f"The first {shown:,} of {counted(len(view.points), 'node')} are shown; "
            f"the others: {told}."
        )


def _differing(read: Sequence[Read]) -> Iterator[str]:
    if number := sum(bool(record.get(DIFFERING)) for _, record in read):
        yield (
            f"Estimates made at different settings are compared in {number:,} of "
            f"{counted(len(read), 'row')}: differences may be of these."
        )


def _diverged(view: View) -> Iterator[str]:
    reasons = Counter(
        one.reason for one in view.receipts if one and one.status == "diverged"
    )
    for reason, number in reasons.most_common(MOST_REASONS):
        yield f"{counted(number, 'node')} diverged: {reason}"
    if more := sum(n for _, n in reasons.most_common()[MOST_REASONS:]):
        yield f"{counted(more, 'node')} diverged for other reasons."


def _cut(found: Iterable[Grid]) -> Iterator[str]:
    for grid in found:
        if grid.more:
            yield (
                f"{grid.name}: the first {len(grid.rows):,} of "
                f"{len(grid.rows) + grid.more:,} rows are shown."
            )
