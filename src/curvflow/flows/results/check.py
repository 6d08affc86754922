"""Compare measured values with expectations."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from curvflow.flows.results.results import Results
from curvflow.schemas.kind import Kind, error_of
from curvflow.schemas.kinds.aggregate.compare import DIFFERING
from curvflow.schemas.kinds.shared.tables import CONVERGED, UNCONVERGED
from curvflow.schemas.nodes import Label, Table
from curvflow.schemas.study.study import Expectation
from curvflow.schemas.words import counted

# Differences of more combined standard deviations than these contradict.
MAX_Z = 3.0
# The statistic of a table, by its column; each kind has one of them.
MEASURED = ("mean", "coverage", "correlation", "mean_rank", "exponent")
# What a condition is that nothing shows to hold.
ASSUMED = "assumed"

Verdict = Literal["agrees", "contradicted", "not measured"]


@dataclass(frozen=True)
class Finding:
    """One expectation at one node of its stage.

    Attributes:
        expected: what was expected.
        coords: labels of the node.
        measured: the value found; NaN if there is none.
        sem: its standard error; NaN if unknown.
        unconverged: how many of the estimates, or pairs of such, behind it are not
            converged; None if nothing judges them.
        paired: whether these are pairs.
        settings: those that differ among the estimates compared; empty if none do.
        assumed: the variable that says that a condition of the value is not shown to
            hold; empty if it is, or there is none.
    """

    expected: Expectation
    coords: Mapping[str, Label]
    measured: float = math.nan
    sem: float = math.nan
    unconverged: int | None = None
    paired: bool = False
    settings: str = ""
    assumed: str = ""

    @property
    def doubts(self) -> str:
        """Caveats to show with the measured value; usually empty."""
        number = self.unconverged or 0
        noun = "pair" if self.paired else "estimate"
        notes = [counted(number, f"unconverged {noun}")] if number else []
        made = [f"made at different settings, {self.settings}"] if self.settings else []
        taken = [f"assumed, not shown: {self.assumed}"] if self.assumed else []
        return "; ".join([*notes, *made, *taken])

    @property
    def z(self) -> float:
        """Difference in combined standard deviations; NaN if these are not known."""
        if self.expected.sd is None or math.isinf(self.sem):
            return math.nan
        sem = 0.0 if math.isnan(self.sem) else self.sem
        return (self.measured - self.expected.value) / math.hypot(self.expected.sd, sem)

    @property
    def verdict(self) -> Verdict:
        """Return whether the value agrees."""
        if not math.isfinite(self.measured):
            return "not measured"
        if self._is_near:
            return "agrees"
        # Everything lies within an infinite error: it decides nothing.
        takes_error = self.expected.limits is None or self.expected.within_sems
        undecided = math.isinf(self.sem) and takes_error
        return "not measured" if undecided else "contradicted"

    @property
    def _is_near(self) -> bool:
        expected = self.expected
        if expected.limits is None:
            return abs(self.z) <= MAX_Z
        low, high = expected.limits
        if low <= self.measured <= high or expected.within_sems is None:
            return low <= self.measured <= high
        # False where the standard error is not known, or infinite.
        limit = expected.within_sems * self.sem
        return abs(self.measured - expected.value) <= limit < math.inf

    def as_json(self) -> dict[str, Any]:
        """Return the finding as plain data."""
        return {
            "stage": self.expected.stage,
            "where": dict(self.coords),
            "quantity": self.expected.quantity,
            "column": self.expected.column,
            "expected": self.expected.value,
            "sd": self.expected.sd,
            "within": self.expected.limits,
            "within_sems": self.expected.within_sems,
            "measured": self.measured,
            "sem": self.sem,
            "z": self.z,
            "verdict": self.verdict,
            "unconverged": self.unconverged,
            "differing_settings": self.settings,
            "assumed": self.assumed,
            "source": self.expected.source,
        }


def check(results: Results, expected: tuple[Expectation, ...]) -> list[Finding]:
    """Compare results with a study's expectations: a finding per expectation and node.

    Raises:
        CorruptPayloadError: a result cannot be read.
        RemovedPayloadError: collection has removed a result meanwhile.
    """
    return [
        finding
        for expectation in expected
        for finding in _findings(results, expectation)
    ]


def _findings(results: Results, expected: Expectation) -> Iterator[Finding]:
    where = {axis: str(label) for axis, label in expected.where.items()}
    view = results.view(expected.stage).where(where)
    is_table = issubclass(view.kind.returns, Table)
    name = expected.quantity
    # Not every quantity has a standard error beside it.
    error = error_of(view.kind, name)
    judge, basis = _judge(view.kind, name), _basis(view.kind, name)
    wanted = (name, error, judge, basis)
    names = [variable for variable in wanted if view.kind.output(variable)]
    columns = MEASURED if expected.column is None else (expected.column,)
    rows = results.records(
        expected.stage, where=where, variables=None if is_table else names
    )
    by_point: dict[tuple[Label, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_point[tuple(row[dim] for dim in view.dims)].append(row)
    for number, point in enumerate(view.points):
        rows_at = by_point[point]
        if is_table:
            values = [
                (row[column], _error(row, expected), row)
                for row in rows_at
                if row.get("quantity") == name
                for column in columns
                if column in row
            ]
        else:
            values = [(r[name], r.get(error), r) for r in rows_at if name in r]
        nothing: tuple[object, object, Mapping[str, Any]] = None, None, {}
        measured, sem, beside = values[0] if len(values) == 1 else nothing
        yield Finding(
            expected,
            view.coords(number),
            _number(measured),
            _number(sem),
            _unconverged(beside, judge),
            beside.get("above", -1) >= 0,
            str(beside.get(DIFFERING, "")),
            basis if beside.get(basis) == ASSUMED else "",
        )


def _error(row: Mapping[str, Any], expected: Expectation) -> object:
    """Return the standard error of a row, which is that of its statistic."""
    return row.get("sem") if expected.column is None else None


def _judge(kind: Kind, name: str) -> str:
    """Return the name of the variable that judges another's convergence, if any.

    Of elements that each have a flag, none is of the node's single value.
    """
    variable = kind.output(name)
    verdict = variable and variable.judged_by and kind.output(variable.judged_by)
    return verdict.name if verdict and not verdict.dims else ""


def _basis(kind: Kind, name: str) -> str:
    """Return the name of the variable that says how a condition is known, if any."""
    variable = kind.output(name)
    return (variable and variable.rests_on) or ""


def _unconverged(row: Mapping[str, Any], judge: str) -> int | None:
    if judge in row:
        return int(row[judge] not in (True, CONVERGED))
    count = row.get(UNCONVERGED)
    return count if isinstance(count, int) else None


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
