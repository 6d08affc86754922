"""Failed and diverged nodes, cross-checks and the verdicts of samplers."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from curvflow.flows.report.basis import Basis, kind_of, name_of
from curvflow.flows.report.origins import Origins
from curvflow.flows.report.stages import Reader
from curvflow.flows.results.node_results import View
from curvflow.schemas.kind import Kind
from curvflow.schemas.kinds.shared.tables import CONVERGED
from curvflow.schemas.records.tables import cell

MOST = 300  # nodes of one stage whose verdicts are read
WITHOUT = ("diverged", "removed", "unreadable")
CROSSCHECK = "probe.crosscheck"


@dataclass(frozen=True)
class Verdict:
    """What one node says of its numbers.

    Attributes:
        node: its name.
        origin: number of its origin.
        is_good: whether they may be used.
        word: the verdict.
        reason: why, with numbers.
        value: what it is about, with its error; empty if it is several numbers.
    """

    node: str
    origin: int
    is_good: bool
    word: str
    reason: str
    value: str = ""

    @property
    def is_given(self) -> bool:
        """Whether there is one; a node that diverged has none."""
        return self.word not in WITHOUT


@dataclass(frozen=True)
class Verdicts:
    """The verdicts of all nodes that have one.

    Attributes:
        found: those of the nodes read, the doubtful ones first.
        unread: nodes beyond what is read, and those without a result.
        stages: names of the stages that have them.
    """

    found: Sequence[Verdict]
    unread: int = 0
    stages: Sequence[str] = field(default_factory=tuple)

    @property
    def good(self) -> int:
        """Number of nodes whose numbers may be used."""
        return sum(one.is_good for one in self.found)

    @property
    def given(self) -> int:
        """Number of verdicts that were given."""
        return sum(one.is_given for one in self.found)


def crosschecks(basis: Basis, reader: Reader) -> Verdicts:
    """Read the verdicts of `probe.crosscheck`.

    Args:
        basis: what the page is drawn from.
        reader: reads them.

    Returns:
        Whether independent routes to one quantity agree.
    """
    names = ("largest_z", "limit", "resolution", "consistent")
    stages = [(v, k) for v, k in _kinds(basis) if k.name == CROSSCHECK]
    return _verdicts(reader, stages, names, _consistency)


def calibrations(basis: Basis, reader: Reader) -> Verdicts:
    """Read the verdicts of kinds that give one with its reason, such as `probe.llc`.

    Args:
        basis: what the page is drawn from.
        reader: reads them.

    Returns:
        Whether samplers have converged, and if not, why.
    """
    stages = [
        (view, kind)
        for view, kind in _kinds(basis)
        if all(_is_text(kind, name) for name in ("verdict", "reason"))
    ]
    return _verdicts(reader, stages, ("verdict", "reason"), _convergence)


def _kinds(basis: Basis) -> Iterator[tuple[View, Kind]]:
    for view in basis.views:
        if (kind := kind_of(view)) is not None:
            yield view, kind


def _is_text(kind: Kind, name: str) -> bool:
    variable = kind.output(name)
    return variable is not None and variable.dtype == "str" and not variable.dims


def _verdicts(
    reader: Reader,
    stages: Sequence[tuple[View, Kind]],
    names: Sequence[str],
    told: Callable[[Mapping[str, Any]], tuple[bool, str, str]],
) -> Verdicts:
    found, unread = [], 0
    for view, kind in stages:
        main, error = _estimate(kind)
        wanted = [*names, *(name for name in (main, error) if name)]
        there = [n for n, one in enumerate(view.receipts) if one][:MOST]
        unread += len(view.points) - len(there)
        for number in there:
            # By number, for names may be equal; a node's single values come first.
            origin, record = next(reader.records(view, [number], wanted))
            value = _value(record, main, error)
            is_good, word, reason = told(record)
            name = name_of(view, number)
            found.append(Verdict(name, origin, is_good, word, reason, value))
    ordered = sorted(found, key=lambda one: one.is_good)
    return Verdicts(ordered, unread, [view.stage for view, _ in stages])


def _consistency(record: Mapping[str, Any]) -> tuple[bool, str, str]:
    if "consistent" not in record:
        return False, str(record["status"]), str(record.get("reason", ""))
    is_good = bool(record["consistent"])
    told = (
        f"largest |z| {record['largest_z']:.2f}, limit {record['limit']:.2f}; a "
        f"relative difference of {record['resolution']:.2g} would have been seen"
    )
    return is_good, "consistent" if is_good else "inconsistent", told


def _convergence(record: Mapping[str, Any]) -> tuple[bool, str, str]:
    word = str(record.get("verdict", record["status"]))
    return word == CONVERGED, word, str(record.get("reason", ""))


def _estimate(kind: Kind) -> tuple[str, str]:
    """Return the first variable that has a standard error, and that error."""
    for variable in kind.outputs:
        stem = variable.name.removesuffix("_mean")
        if not variable.dims and kind.output(f"{stem}_sem"):
            return variable.name, f"{stem}_sem"
    return "", ""


def _value(record: Mapping[str, Any], main: str, error: str) -> str:
    value, sem = record.get(main), record.get(error, math.nan)
    if not isinstance(value, float) or not math.isfinite(value):
        return ""
    told = cell(value, sem)
    return f"{told} \N{PLUS-MINUS SIGN} {cell(sem, sem)}" if sem > 0 else told


MOST_FAILURES = 100  # nodes told of one by one
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
    for rank, view, number in places[:MOST_FAILURES]:
        receipt = view.receipts[number]
        reason = receipt.reason if receipt else basis.error(view, number)
        origin = origins.number(view, number)
        found.append(Trouble(name_of(view, number), origin, TOLD[rank], reason))
    asked, removed = basis.asked, stages.get("removed", Counter())
    failed = found[0].node if found and found[0].status == "failed" else ""
    revive = [word for stage in removed for word in ("--revive", stage)]
    return Troubles(
        found,
        max(len(places) - MOST_FAILURES, 0),
        stages,
        asked.command("why", failed, of_run=False) if failed else "",
        asked.command("run", *revive, of_run=False) if revive else "",
    )
