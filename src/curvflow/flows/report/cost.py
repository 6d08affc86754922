"""What the results took: seconds by stage, and work where it was counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from curvflow.flows.report.basis import Basis, kind_of
from curvflow.flows.report.stages import MOST_NODES, Reader
from curvflow.flows.views import View
from curvflow.schemas.words import duration

# What kinds count of their own work, by the variable's name.
WORK = {
    "num_gradients": "gradients",
    "num_matvecs": "products",
    "gradient_equivalents": "full-gradient equivalents",
}


@dataclass(frozen=True)
class StageCost:
    """One stage's cost.

    Attributes:
        stage: its name.
        kind: name of its kind.
        nodes: results of it, those that are equal once.
        executed: how many of them the run told of has computed.
        seconds: sum over the results of their shares of tiles' times.
        share: of all seconds, from 0 to 1.
        work: gradients or products, summed; empty if not counted or too many to read.
        devices: where they were computed.
    """

    stage: str
    kind: str
    nodes: int
    executed: int
    seconds: float
    share: float
    work: str
    devices: str


@dataclass(frozen=True)
class Cost:
    """The cost of all results, and of the run told of."""

    stages: Sequence[StageCost]
    seconds: float
    executed: int
    reused: int

    @property
    def told(self) -> str:
        """Seconds in words."""
        return duration(self.seconds)


def cost(basis: Basis, reader: Reader) -> Cost:
    """Sum up what the results took.

    Args:
        basis: what the page is drawn from.
        reader: reads what nodes count of their work.

    Returns:
        Seconds and work by stage. A result that several stages share counts in the
        first of them.
    """
    seen: set[str] = set()
    found = []
    counts = basis.run.counts if basis.run else {}
    for view in basis.views:
        own = {one.key: one for one in view.receipts if one and one.key not in seen}
        seen |= own.keys()
        devices = Counter(one.device for one in own.values())
        found.append(
            StageCost(
                view.stage,
                view.use,
                len(own),
                counts.get("executed", {}).get(view.stage, 0),
                sum(one.seconds for one in own.values()),
                0.0,
                _work(view, reader),
                ", ".join(devices),
            )
        )
    total = sum(one.seconds for one in found)
    shared = [_with_share(one, total) for one in found]
    return Cost(shared, total, *(_sum(counts, name) for name in ("executed", "cached")))


def _with_share(one: StageCost, total: float) -> StageCost:
    return StageCost(**{**vars(one), "share": one.seconds / total if total else 0.0})


def _sum(counts: Mapping[str, Mapping[str, int]], name: str) -> int:
    return sum(counts.get(name, {}).values())


def _work(view: View, reader: Reader) -> str:
    kind = kind_of(view)
    names = [n for n in WORK if kind and (v := kind.output(n)) and not v.dims]
    there = [number for number, one in enumerate(view.receipts) if one]
    if not names or not there:
        return ""
    if len(there) > MOST_NODES:
        return "too many nodes to sum"
    sums: Counter[str] = Counter()
    for _, record in reader.records(view, there, names):
        sums.update({name: record[name] for name in names if name in record})
    return ", ".join(f"{sums[name]:,.6g} {WORK[name]}" for name in names)
