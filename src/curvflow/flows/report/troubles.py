"""Nodes that have no result or one that diverged, with the reasons."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from curvflow.flows.report.basis import Basis, name_of
from curvflow.flows.report.origins import Origins

MOST = 100  # nodes told of one by one
TOLD = ("failed", "diverged")  # each has a reason of its own
STATUSES = (*TOLD, "missing", "removed")


@dataclass(frozen=True)
class Trouble:
    """One node that failed or diverged: name, number of its origin, and why."""

    node: str
    origin: int
    status: str
    reason: str


@dataclass(frozen=True)
class Troubles:
    """All nodes without an ordinary result.

    Attributes:
        found: failed and diverged nodes, the failed ones first.
        more: failed and diverged nodes that are not listed.
        stages: per status the number of such nodes by stage.
        traceback: command that prints why a node failed; empty if none did.
        revive: command that brings removed arrays back; empty if there are none.
    """

    found: Sequence[Trouble] = ()
    more: int = 0
    stages: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    traceback: str = ""
    revive: str = ""

    def count(self, status: str) -> int:
        """Return the number of nodes of a status."""
        return sum(self.stages.get(status, {}).values())


def troubles(basis: Basis, origins: Origins) -> Troubles:
    """Find the nodes that failed, diverged, are missing or were removed.

    Args:
        basis: what the page is drawn from.
        origins: take note of those listed.

    Returns:
        The nodes, with reasons.
    """
    stages: dict[str, Counter[str]] = defaultdict(Counter)
    places = []
    for view in basis.views:
        for number in range(len(view.points)):
            status = view.status(number)
            if status != "ok":
                stages[status][view.stage] += 1
            if status in TOLD:
                places.append((TOLD.index(status), view, number))
    places.sort(key=lambda place: place[0])
    found = []
    for rank, view, number in places[:MOST]:
        receipt = view.receipts[number]
        reason = receipt.reason if receipt else basis.error(view, number)
        origin = origins.number(view, number)
        found.append(Trouble(name_of(view, number), origin, TOLD[rank], reason))
    asked, removed = basis.asked, stages.get("removed", Counter())
    failed = found[0].node if found and found[0].status == "failed" else ""
    revive = [word for stage in removed for word in ("--revive", stage)]
    return Troubles(
        found,
        max(len(places) - MOST, 0),
        stages,
        asked.command("why", failed, of_run=False) if failed else "",
        asked.command("run", *revive, of_run=False) if revive else "",
    )
