"""Compare measured values with expectations."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from curvflow.flows.results.results import Results
from curvflow.schemas.kind import Kind, error_of
from curvflow.schemas.kinds.aggregate.compare import DIFFERING
from curvflow.schemas.kinds.shared.tables import CONVERGED, UNCONVERGED
from curvflow.schemas.nodes import Label, Table
from curvflow.schemas.study.study import Expectation
from curvflow.schemas.words import counted

# Differences of more standard deviations of one run than these contradict.
MAX_SCATTER = 3.0
# Means differ, and intervals are of that confidence.
LEVEL = 0.05
# The statistic of a table, by its column; each kind has one of them.
MEASURED = ("mean", "coverage", "correlation", "mean_rank", "exponent")
# What a condition is that nothing shows to hold.
ASSUMED = "assumed"

Verdict = Literal[
    "agrees", "differs_in_mean", "contradicted", "undecided", "not measured"
]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


@dataclass(frozen=True)
class Finding:
    """One expectation at one node of its stage.

    Attributes:
        expected: what was expected.
        coords: labels of the node.
        measured: the value found; NaN if there is none.
        sem: its standard error; NaN if unknown.
        count: runs that it is the mean of; None if it is no mean over runs.
        corrected: `p_means` corrected for all cells; None if it stands alone.
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
    count: int | None = None
    corrected: float | None = None
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
    def difference(self) -> float:
        """Measured less expected; NaN if there is no value."""
        value = self.expected.value
        return math.nan if value is None else self.measured - value

    @property
    def scatter(self) -> float:
        """Difference in standard deviations of one run of the source; or NaN."""
        sd = self.expected.sd
        return math.nan if sd is None else self.difference / sd

    @property
    def z(self) -> float:
        """Difference in standard errors of both means; NaN if these are not known."""
        source = self._source_error
        if math.isnan(source) or math.isinf(self.sem):
            return math.nan
        return self.difference / math.hypot(source, self._own_error)

    @property
    def p_means(self) -> float:
        """Two-sided p-value of equal means by Welch's test; NaN if there is none."""
        from curvflow.tasks.statistics.means import welch_p  # which loads SciPy

        if not math.isfinite(self.z):
            return math.nan
        return welch_p(
            self.difference,
            (self._source_error, self._own_error),
            (self.expected.n or math.inf, self.count or math.inf),
        )

    @property
    def verdict(self) -> Verdict:
        """Return whether the value agrees."""
        if not math.isfinite(self.measured):
            return "not measured"
        if self.count == 1 and self._takes_error:
            return "undecided"  # one run tells no error
        if self.expected.is_one_sided:
            return self._by_interval
        if self.expected.limits is not None:
            return self._by_limits
        return self._by_means

    @property
    def _takes_error(self) -> bool:
        return self.expected.limits is None or self.expected.within_sems is not None

    @property
    def _source_error(self) -> float:
        """Standard error of the value expected; NaN if it is not known."""
        expected = self.expected
        if expected.sd is not None:
            return expected.sd / math.sqrt(expected.n) if expected.n else math.nan
        return math.nan if expected.se is None else expected.se

    @property
    def _own_error(self) -> float:
        """Standard error of the value measured; one without an error is exact."""
        return 0.0 if math.isnan(self.sem) else self.sem

    @property
    def _by_means(self) -> Verdict:
        """Compare with the scatter of one run of the source, and with its mean."""
        printed = self.expected.sd or self.expected.se or 0.0
        p_means = self.p_means if self.corrected is None else self.corrected
        differs = p_means < LEVEL
        if self.expected.sd is None:
            is_noisy = self._own_error > printed
            return "contradicted" if differs else _unless(is_noisy)
        far = MAX_SCATTER * math.hypot(printed, self._own_error)
        if self._own_error > printed and abs(self.difference) <= far:
            return "undecided"
        if abs(self.scatter) > MAX_SCATTER:
            return "contradicted"
        return "differs_in_mean" if differs else "agrees"

    @property
    def _by_limits(self) -> Verdict:
        expected = self.expected
        assert expected.limits is not None
        low, high = expected.limits
        if low <= self.measured <= high:
            return "agrees"
        if expected.within_sems is None:
            return "contradicted"
        if math.isinf(self.sem):
            return "undecided"  # everything lies within an infinite error
        is_near = abs(self.difference) <= expected.within_sems * self.sem
        return "agrees" if is_near else "contradicted"

    @property
    def _by_interval(self) -> Verdict:
        """Return whether an interval of 95 % lies where it should, or beyond."""
        from curvflow.tasks.statistics.means import student_half  # which loads SciPy

        least = -math.inf if self.expected.at_least is None else self.expected.at_least
        most = math.inf if self.expected.at_most is None else self.expected.at_most
        half = student_half(self._own_error, self.count or math.inf, 1 - LEVEL)
        low, high = self.measured - half, self.measured + half
        if least <= low and high <= most:
            return "agrees"
        return "contradicted" if high < least or low > most else "undecided"

    def as_json(self) -> dict[str, Any]:
        """Return the finding as plain data."""
        return {
            "stage": self.expected.stage,
            "where": dict(self.coords),
            "quantity": self.expected.quantity,
            "column": self.expected.column,
            "expected": self.expected.value,
            "sd": self.expected.sd,
            "n": self.expected.n,
            "se": self.expected.se,
            "within": self.expected.limits,
            "within_sems": self.expected.within_sems,
            "at_least": self.expected.at_least,
            "at_most": self.expected.at_most,
            "measured": self.measured,
            "sem": self.sem,
            "count": self.count,
            "scatter": self.scatter,
            "z": self.z,
            "p_means": self.p_means,
            "p_corrected": self.corrected,
            "verdict": self.verdict,
            "unconverged": self.unconverged,
            "differing_settings": self.settings,
            "assumed": self.assumed,
            "source": self.expected.source,
        }


def _unless(is_noisy: bool) -> Verdict:
    return "undecided" if is_noisy else "agrees"


def counts(findings: Iterable[Finding]) -> dict[Verdict, int]:
    """Return how many findings have each verdict, those of none included."""
    found = Counter(finding.verdict for finding in findings)
    return {verdict: found[verdict] for verdict in VERDICTS}


def corrected(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings whose tests of means are corrected for their number.

    Reference:
        Holm (1979), Scandinavian Journal of Statistics 6(2).
    """
    from curvflow.tasks.statistics.differences import holm  # which loads SciPy

    p_values = holm(np.array([finding.p_means for finding in findings]))
    return [
        finding if math.isnan(p) else replace(finding, corrected=float(p))
        for finding, p in zip(findings, p_values, strict=True)
    ]


def without_runs(expected: Iterable[Expectation]) -> int:
    """Return how many expectations state a deviation and not of how many runs."""
    return sum(one.sd is not None and one.n is None for one in expected)


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
    rows = results.records(
        expected.stage, where=where, variables=None if is_table else names
    )
    by_point: dict[tuple[Label, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_point[tuple(row[dim] for dim in view.dims)].append(row)
    for number, point in enumerate(view.points):
        values = [(r[name], r.get(error), r) for r in by_point[point] if name in r]
        if is_table:
            values = _cells(by_point[point], expected)
        nothing: Cell = None, None, {}
        measured, sem, beside = values[0] if len(values) == 1 else nothing
        yield Finding(
            expected,
            view.coords(number),
            _number(measured),
            _number(sem),
            _count(beside) if is_table and expected.column is None else None,
            None,
            _unconverged(beside, judge),
            beside.get("above", -1) >= 0,
            str(beside.get(DIFFERING, "")),
            basis if beside.get(basis) == ASSUMED else "",
        )


Cell = tuple[object, object, Mapping[str, Any]]


def _cells(rows: Iterable[Mapping[str, Any]], expected: Expectation) -> list[Cell]:
    """Return values of a table with their errors, which only its statistic has."""
    named = expected.column
    columns = MEASURED if named is None else (named,)
    return [
        (row[column], row.get("sem") if named is None else None, row)
        for row in rows
        if row.get("quantity") == expected.quantity
        for column in columns
        if column in row
    ]


def _count(row: Mapping[str, Any]) -> int | None:
    """Return of how many runs a row is the mean; None of a statistic that is none."""
    count = row.get("count")
    return int(count) if isinstance(count, int) and "mean" in row else None


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
