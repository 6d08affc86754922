"""Failed and diverged nodes, cross-checks and the verdicts of samplers."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from curvflow.flows.report.basis import Basis, kind_of, name_of
from curvflow.flows.report.origins import Origins
from curvflow.flows.report.stages import Reader, hold_notes
from curvflow.flows.results.node_results import View
from curvflow.schemas.kind import Kind
from curvflow.schemas.kinds.shared.figures import HOLD
from curvflow.schemas.kinds.shared.tables import CONVERGED
from curvflow.schemas.records.tables import cell

MOST = 300  # nodes of one stage whose verdicts are read
WITHOUT = ("diverged", "removed", "unreadable")
CROSSCHECK = "probe.crosscheck"


@dataclass(frozen=True)
class NodeVerdict:
    """A node's verdict on its own numbers.

    Attributes:
        node: its name.
        origin: number of its origin.
        is_good: whether its numbers may be used.
        word: the verdict.
        reason: for people, with numbers.
        value: the estimate with its error; empty if not a single number.
    """

    node: str
    origin: int
    is_good: bool
    word: str
    reason: str
    value: str = ""

    @property
    def is_given(self) -> bool:
        """Return whether the node has a verdict; a diverged one has none."""
        return self.word not in WITHOUT


@dataclass(frozen=True)
class Verdicts:
    """The verdicts of all nodes that have one.

    Attributes:
        found: those of the nodes read, the doubtful ones first.
        unread: nodes beyond those that are read, and those without a result.
        stages: names of the stages that have them.
        notes: sentences on the settings of their estimates.
    """

    nodes: Sequence[NodeVerdict]
    unread: int = 0
    stages: Sequence[str] = field(default_factory=tuple)
    notes: Sequence[str] = ()

    @property
    def good(self) -> int:
        """Return the number of nodes whose numbers may be used."""
        return sum(node.is_good for node in self.nodes)

    @property
    def given(self) -> int:
        """Return the number of verdicts."""
        return sum(node.is_given for node in self.nodes)


def crosschecks(basis: Basis, reader: Reader) -> Verdicts:
    """Read the verdicts of `probe.crosscheck`: do independent routes agree?"""
    names = ("largest_z", "limit", "resolution", "consistent")
    stages = [(v, k) for v, k in _kinds(basis) if k.name == CROSSCHECK]
    return _verdicts(reader, stages, names, _consistency)


def calibrations(basis: Basis, reader: Reader) -> Verdicts:
    """Read the verdicts of samplers, such as `probe.llc`, with reasons."""
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
    judge: Callable[[Mapping[str, Any]], tuple[bool, str, str]],
) -> Verdicts:
    verdicts, unread, notes = [], 0, list[str]()
    for view, kind in stages:
        main, error = _estimate(kind)
        held = [name for name in HOLD if kind.output(name)]
        variables = [*names, *(name for name in (main, error, *held) if name)]
        records = []
        there = [n for n, receipt in enumerate(view.receipts) if receipt][:MOST]
        unread += len(view.points) - len(there)
        for number in there:
            # By number, for names may be equal; a node's single values come first.
            origin, record = next(reader.records(view, [number], variables))
            records.append(record)
            value = _value(record, main, error)
            is_good, word, reason = judge(record)
            name = name_of(view, number)
            verdicts.append(NodeVerdict(name, origin, is_good, word, reason, value))
        notes += hold_notes(records, view.stage)
    ordered = sorted(verdicts, key=lambda receipt: receipt.is_good)
    return Verdicts(ordered, unread, [view.stage for view, _ in stages], notes)


def _consistency(record: Mapping[str, Any]) -> tuple[bool, str, str]:
    if "consistent" not in record:
        return False, str(record["status"]), str(record.get("reason", ""))
    is_good = bool(record["consistent"])
    text = (
        f"largest |z| {record['largest_z']:.2f}, limit {record['limit']:.2f}; a "
        f"relative difference of {record['resolution']:.2g} would have been detected"
    )
    return is_good, "consistent" if is_good else "inconsistent", text


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
    text = cell(value, sem)
    return f"{text} \N{PLUS-MINUS SIGN} {cell(sem, sem)}" if sem > 0 else text


MOST_FAILURES = 100  # nodes listed one by one
LISTED = ("failed", "diverged")  # each has a reason of its own
STATUSES = (*LISTED, "missing", "removed")


@dataclass(frozen=True)
class NodeTrouble:
    """One node that failed or diverged: name, number of its origin, and reason."""

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
        traceback: command that explains a failed node; empty without one.
        revive: command that recomputes removed arrays; empty without any.
    """

    nodes: Sequence[NodeTrouble] = ()
    more: int = 0
    stages: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    traceback: str = ""
    revive: str = ""

    def count(self, status: str) -> int:
        """Return the number of nodes of a status."""
        return sum(self.stages.get(status, {}).values())


def troubles(basis: Basis, origins: Origins) -> Troubles:
    """Return the nodes that failed, diverged, are missing or were removed."""
    stages: dict[str, Counter[str]] = defaultdict(Counter)
    places = []
    for view in basis.views:
        for number in range(len(view.points)):
            status = view.status(number)
            if status != "ok":
                stages[status][view.stage] += 1
            if status in LISTED:
                places.append((LISTED.index(status), view, number))
    places.sort(key=lambda place: place[0])
    listed = []
    for rank, view, number in places[:MOST_FAILURES]:
        receipt = view.receipts[number]
        reason = receipt.reason if receipt else basis.error(view, number)
        origin = origins.number(view, number)
        listed.append(NodeTrouble(name_of(view, number), origin, LISTED[rank], reason))
    request, removed = basis.request, stages.get("removed", Counter())
    failed = listed[0].node if listed and listed[0].status == "failed" else ""
    revive = [word for stage in removed for word in ("--revive", stage)]
    return Troubles(
        listed,
        max(len(places) - MOST_FAILURES, 0),
        stages,
        request.command("why", failed, of_run=False) if failed else "",
        request.command("run", *revive, of_run=False) if revive else "",
    )
