"""Compare measured values with expectations."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np

from curvflow.flows.results.results import Results
from curvflow.schemas.kind import Kind, error_of
from curvflow.schemas.kinds.aggregate.compare import DIFFERING
from curvflow.schemas.kinds.shared.tables import CONVERGED, UNCONVERGED
from curvflow.schemas.nodes import FAILED, Label, Table
from curvflow.schemas.study.study import Expectation
from curvflow.schemas.words import counted

# Differences of more standard deviations of one run than these contradict.
MAX_SCATTER = 3.0
# Means differ, and intervals are of that confidence.
LEVEL = 0.05
NORMAL = 1.959964  # of an estimate that states no interval
# The statistic of a table, by its column; each kind has one of them.
MEASURED = (
    "mean",
    "coverage",
    "correlation",
    "mean_rank",
    "exponent",
    "distance",
    "argument",
    "accuracy",
    "localization",
)
# What a condition is that nothing shows to hold.
ASSUMED = "assumed"

# The gravest first, as a reader should see them.
Verdict = Literal[
    "contradicted", "differs_in_mean", "not measured", "undecided", "agrees"
]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
Sort = Literal["mean", "estimate", "exact"]
NOISY = "its error exceeds the one expected"
# Columns of a table that count the nodes, or pairs, that a row is made without.
LEFT_OUT = ("diverged", "nonfinite", "missing")


@dataclass(frozen=True)
class Finding:
    """One expectation at one node of its stage.

    Attributes:
        expected: what was expected.
        coords: labels of the node.
        measured: the value found; NaN if there is none.
        sem: its standard error; NaN if unknown.
        low: lower end of its interval; NaN if unknown.
        high: upper end.
        freedom: degrees of freedom of the standard error; None as the interval has
            them.
        sort: `mean` over runs, `estimate` of one node with its standard error, or
            `exact`, of which no error is stated.
        corrected: `p_means` corrected for all cells; None if it stands alone.
        unconverged: how many of the estimates, or pairs of such, behind it are not
            converged; None if nothing judges them.
        paired: whether these are pairs.
        settings: those that differ among the estimates compared; empty if none do.
        assumed: the variable that says that a condition of the value is not shown to
            hold; empty if it is, or there is none.
        failed: number of failed nodes that the table is made without.
        left_out: numbers of nodes, or pairs, that its row is made without, by reason.
    """

    expected: Expectation
    coords: Mapping[str, Label]
    measured: float = math.nan
    sem: float = math.nan
    low: float = math.nan
    high: float = math.nan
    freedom: float | None = math.inf
    sort: Sort = "exact"
    corrected: float | None = None
    unconverged: int | None = None
    paired: bool = False
    settings: str = ""
    assumed: str = ""
    failed: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def doubts(self) -> str:
        """Caveats to show with the measured value; usually empty."""
        number = self.unconverged or 0
        noun = "pair" if self.paired else "estimate"
        notes = [counted(number, f"unconverged {noun}")] if number else []
        made = [f"made at different settings, {self.settings}"] if self.settings else []
        taken = [f"assumed, not shown: {self.assumed}"] if self.assumed else []
        lacks = [f"made without {counted(self.failed, 'failed node')}"] * (
            self.failed > 0
        )
        left = [f"made without {n} {why}" for why, n in self.left_out.items() if n]
        return "; ".join([*notes, *made, *taken, *lacks, *left])

    @property
    def notes(self) -> str:
        """Why it is undecided, and the caveats; usually empty."""
        return "; ".join(note for note in (self.reason, self.doubts) if note)

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
        """Difference in standard errors of both means; NaN if none are compared."""
        source = self._source_error
        if math.isnan(source) or not math.isfinite(self.own_error):
            return math.nan
        return self.difference / math.hypot(source, self.own_error)

    @property
    def p_means(self) -> float:
        """Two-sided p-value of equal means by Welch's test; NaN if there is none."""
        from curvflow.tasks.statistics.means import (  # which loads SciPy
            freedom_of,
            welch_p,
        )

        if math.isnan(self.z):
            return math.nan
        errors = (self._source_error, self.own_error)
        freedom = self.freedom
        if freedom is None:
            freedom = freedom_of((self.high - self.low) / 2, self.sem)
        runs = (self.expected.n or math.inf) - 1
        return welch_p(self.difference, errors, (runs, freedom))

    @property
    def own_error(self) -> float:
        """Standard error of the value measured; 0 of one that has none."""
        if self.sort == "exact":
            return 0.0
        of_interval = (self.high - self.low) / (2 * NORMAL)
        return of_interval if math.isnan(self.sem) else self.sem

    @property
    def verdict(self) -> Verdict:
        """Return whether the value agrees."""
        return self._judged[0]

    @property
    def reason(self) -> str:
        """Why the value is undecided; else empty."""
        return self._judged[1]

    @property
    def _judged(self) -> tuple[Verdict, str]:
        if not math.isfinite(self.measured):
            return "not measured", ""
        if self.expected.is_one_sided:
            return self._by_interval
        if self.expected.limits is not None:
            return self._by_limits
        if not math.isfinite(self.own_error):
            return "undecided", self._no_error
        if self.expected.se is not None:
            return self._by_error(self.expected.se)
        return self._by_scatter

    @property
    def _no_error(self) -> str:
        infinite = math.isinf(self.sem)
        return "its error is infinite" if infinite else "its error is not known"

    @property
    def _source_error(self) -> float:
        """Standard error of a mean that another is compared with; else NaN."""
        expected = self.expected
        if expected.se is not None:
            return expected.se
        if expected.sd is None or expected.n is None or self.sort != "mean":
            return math.nan
        return expected.sd / math.sqrt(expected.n)

    @property
    def _differs(self) -> bool:
        p = self.p_means if self.corrected is None else self.corrected
        return p < LEVEL

    def _by_error(self, se: float) -> tuple[Verdict, str]:
        if self._differs:
            return "contradicted", ""
        is_noisy = self.own_error > se
        return ("undecided", NOISY) if is_noisy else ("agrees", "")

    @property
    def _by_scatter(self) -> tuple[Verdict, str]:
        """Compare with the scatter of one run of the source, and with its mean.

        One run is compared with the scatter alone, about a mean that is uncertain.
        """
        sd, n = self.expected.sd or 0.0, self.expected.n
        is_mean = self.sort == "mean" and n is not None
        around = sd * math.sqrt(1 + 1 / n) if n and not is_mean else sd
        far = MAX_SCATTER * (around if is_mean else math.hypot(around, self.own_error))
        is_far = abs(self.difference) > far
        if is_far and is_mean and not self._differs:
            return "undecided", "far off, but the means may be equal"
        if is_far:
            return "contradicted", ""
        if self.own_error > sd:
            return "undecided", NOISY
        return ("differs_in_mean" if self._differs else "agrees"), ""

    @property
    def _by_limits(self) -> tuple[Verdict, str]:
        expected = self.expected
        assert expected.limits is not None
        low, high = expected.limits
        if low <= self.measured <= high:
            return self._within((high - low) / 2)
        if expected.within_sems is None:
            return "contradicted", ""
        if not math.isfinite(self.own_error):
            return "undecided", self._no_error
        is_near = abs(self.difference) <= expected.within_sems * self.own_error
        return ("agrees" if is_near else "contradicted"), ""

    def _within(self, half: float) -> tuple[Verdict, str]:
        """Return what a value within its limits shows, by its own error."""
        if not math.isfinite(self.own_error):
            return "undecided", self._no_error
        if self.own_error > half and self.expected.within_sems is None:
            return "undecided", "its error exceeds what is allowed"
        return "agrees", ""

    @property
    def _by_interval(self) -> tuple[Verdict, str]:
        """Return whether the interval lies where it should, or beyond."""
        least = -math.inf if self.expected.at_least is None else self.expected.at_least
        most = math.inf if self.expected.at_most is None else self.expected.at_most
        ends = (self.measured, self.measured)
        low, high = ends if self.sort == "exact" else (self.low, self.high)
        if math.isnan(low) or math.isnan(high):
            return "undecided", "its interval is not known"
        if least <= low and high <= most:
            return "agrees", ""
        if high < least or low > most:
            return "contradicted", ""
        return "undecided", f"its interval is {low:.3g} to {high:.3g}"

    def as_json(self) -> dict[str, Any]:
        """Return the finding as plain data."""
        expected = self.expected
        given = ("sd", "n", "se", "within_sems", "at_least", "at_most")
        numbers = ("measured", "sem", "low", "high", "scatter", "z", "p_means")
        return {
            "stage": expected.stage,
            "where": dict(self.coords),
            "quantity": expected.quantity,
            "column": expected.column,
            **{name: getattr(expected, name) for name in given},
            "expected": expected.value,
            "within": expected.limits,
            **{name: getattr(self, name) for name in numbers},
            "p_corrected": self.corrected,
            "verdict": self.verdict,
            "reason": self.reason,
            "unconverged": self.unconverged,
            **{reason: self.left_out.get(reason, 0) for reason in LEFT_OUT},
            "differing_settings": self.settings,
            "assumed": self.assumed,
            "source": expected.source,
        }


def counts(findings: Iterable[Finding]) -> dict[Verdict, int]:
    """Return how many findings have each verdict, those of none included."""
    tally = Counter(finding.verdict for finding in findings)
    return {verdict: tally[verdict] for verdict in VERDICTS}


def counts_text(findings: Iterable[Finding]) -> str:
    """Return verdicts with their numbers; `not measured` only where there are any."""
    return ", ".join(
        f"{number} {verdict}"
        for verdict, number in counts(findings).items()
        if number or verdict != "not measured"
    )


def gravest_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings by verdict, those that agree last."""
    return sorted(findings, key=lambda finding: VERDICTS.index(finding.verdict))


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
    return sum(
        expectation.sd is not None and expectation.n is None for expectation in expected
    )


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
    wanted = (name, error, f"{name}_low", f"{name}_high", judge, basis)
    names = [variable for variable in wanted if view.kind.output(variable)]
    rows = results.records(
        expected.stage, where=where, variables=None if is_table else names
    )
    by_point: dict[tuple[Label, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_point[tuple(row[dim] for dim in view.dims)].append(row)
    for number, point in enumerate(view.points):
        if is_table:
            values = _cells(by_point[point], expected)
        else:
            values = [
                (_of_node(row, name, error if error in names else ""), row)
                for row in by_point[point]
                if name in row
            ]
        nothing: Cell = {}, {}
        facts, beside = values[0] if len(values) == 1 else nothing
        yield Finding(
            expected,
            view.coords(number),
            **facts,
            unconverged=_unconverged(beside, judge),
            paired=beside.get("above", -1) >= 0,
            settings=str(beside.get(DIFFERING, "")),
            assumed=basis if beside.get(basis) == ASSUMED else "",
            failed=int(beside.get(FAILED, 0)) if is_table else 0,
            left_out={n: int(beside[n]) for n in LEFT_OUT if n in beside},
        )


# What a finding has of a measured value, and the row that it is from.
Cell = tuple[dict[str, Any], Mapping[str, Any]]


def _cells(rows: Iterable[Mapping[str, Any]], expected: Expectation) -> list[Cell]:
    """Return values of a table; its statistic has an error, a named column none."""
    named = expected.column
    columns = MEASURED if named is None else (named,)
    return [
        (
            {"measured": _number(row[column])}
            if named is not None
            else _of_statistic(row, column),
            row,
        )
        for row in rows
        if row.get("quantity") == expected.quantity
        for column in columns
        if column in row
    ]


def _of_statistic(row: Mapping[str, Any], column: str) -> dict[str, Any]:
    low, high = (
        _number(row.get(end, row.get(f"{column}_{end}"))) for end in ("low", "high")
    )
    count = row.get("count")
    is_plain = column == "mean" and "baseline_count" not in row
    is_plain |= column == "argument" and row["interval"] == "repetitions"
    return {
        "measured": _number(row[column]),
        "sem": _number(row.get("sem", row.get(f"{column}_sem"))),
        "low": low,
        "high": high,
        "freedom": count - 1 if is_plain and isinstance(count, int) else None,
        "sort": "estimate" if column == "distance" else "mean",
    }


def _of_node(row: Mapping[str, Any], name: str, error: str) -> dict[str, Any]:
    measured = _number(row[name])
    if not error:
        return {"measured": measured}
    sem = _number(row.get(error))
    low, high = measured - NORMAL * sem, measured + NORMAL * sem
    return {
        "measured": measured,
        "sem": sem,
        "low": _number(row.get(f"{name}_low", low)),
        "high": _number(row.get(f"{name}_high", high)),
        "sort": "estimate",
    }


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
