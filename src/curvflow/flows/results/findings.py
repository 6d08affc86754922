"""Findings: measured against expected, and the verdict."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any, Literal, get_args

import numpy as np

from curvflow.schemas.nodes import Label
from curvflow.schemas.study.expectations import Expectation
from curvflow.schemas.words import counted

# Differences of more standard deviations of one run than these contradict.
MAX_SCATTER = 3.0
# Of less runs neither deviations nor Welch's test are to be trusted, and of less than
# the other that test at the smaller levels of a family.
FEW, FEW_OF_FAMILY = 5, 8
# Means differ, and intervals are of that confidence unless they state another.
LEVEL = 0.05
CONFIDENCE = 1 - LEVEL
# The gravest first, as a reader should see them.
Verdict = Literal[
    "contradicted", "differs_in_mean", "not measured", "undecided", "agrees"
]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
Sort = Literal["mean", "estimate", "exact"]
NOISY = "its error exceeds the one expected"
TOO_FEW = "the means differ, but of too few runs"
# Columns of a table that count what a row is made without.
LEFT_OUT = (
    "diverged",
    "nonfinite",
    "missing",
    "unjudged",
    "nonpositive",
    "left_out",
)


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
        confidence: of that interval.
        freedom: degrees of freedom of the standard error; None as the interval has
            them.
        sort: `mean` over runs, `estimate` of one node with its standard error, or
            `exact`, of which no error is stated.
        corrected: `p_means` corrected for all cells; None if it stands alone.
        corrected_cautious: p-values of the cautious test of few runs, corrected alike.
        unconverged: how many of the estimates, or pairs of such, behind it are not
            converged; None if nothing judges them.
        paired: whether these are pairs.
        settings: those that differ among the estimates compared; empty if none do.
        assumed: the variable that says that a condition of the value is not shown to
            hold; empty if it is, or there is none.
        failed: number of failed nodes that the table is made without.
        left_out: numbers of nodes, pairs, points or repetitions that its row is made
            without, by reason.
        lacks: why there is no value, or why it is in doubt; empty otherwise.
    """

    expected: Expectation
    coords: Mapping[str, Label]
    measured: float = math.nan
    sem: float = math.nan
    low: float = math.nan
    high: float = math.nan
    confidence: float = CONFIDENCE
    freedom: float | None = math.inf
    sort: Sort = "exact"
    corrected: float | None = None
    corrected_cautious: float | None = None
    unconverged: int | None = None
    paired: bool = False
    settings: str = ""
    assumed: str = ""
    failed: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    lacks: str = ""

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
        left = [
            f"made without {n} {why.replace('_', ' ')}"
            for why, n in self.left_out.items()
            if n
        ]
        equal = ["its values are all equal"] * self._is_point
        lost = [self.lacks] if self.lacks and math.isfinite(self.measured) else []
        return "; ".join([*notes, *made, *taken, *lacks, *left, *equal, *lost])

    @property
    def _is_point(self) -> bool:
        """True if the verdict is by an interval of runs that are all equal."""
        limits = self.expected.limits
        is_outside = limits and not limits[0] <= self.measured <= limits[1]
        is_by_interval = self.expected.is_one_sided or is_outside
        is_point = self.low == self.measured == self.high
        return bool(self.sort == "mean" and is_by_interval and is_point)

    @property
    def notes(self) -> str:
        """Why it is undecided or not measured, and the caveats; usually empty."""
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
        from curvflow.tasks.statistics.means import welch_p  # which loads SciPy

        if math.isnan(self.z):
            return math.nan
        errors = (self._source_error, self.own_error)
        return welch_p(self.difference, errors, self._freedoms)

    @property
    def p_cautious(self) -> float:
        """The same where it can be too small, of few runs, by one that cannot be."""
        return self.p_if_fewer(FEW)

    def p_if_fewer(self, runs: int) -> float:
        """Return the p-value of the cautious test of less runs, else that of Welch."""
        from curvflow.tasks.statistics.means import cautious_p  # which loads SciPy

        if math.isnan(self.z) or min(self._freedoms) >= runs - 1:
            return self.p_means
        errors = (self._source_error, self.own_error)
        return max(self.p_means, cautious_p(self.difference, errors, self._freedoms))

    @property
    def _freedoms(self) -> tuple[float, float]:
        """Degrees of freedom of both errors, that of the source first."""
        from curvflow.tasks.statistics.means import freedom_of  # which loads SciPy

        freedom = self.freedom
        if freedom is None:
            half = (self.high - self.low) / 2
            freedom = freedom_of(half, self.sem, self.confidence)
        return (self.expected.n or math.inf) - 1, freedom

    @property
    def own_error(self) -> float:
        """Standard error of the value measured; 0 of one that has none."""
        if self.sort == "exact":
            return 0.0
        if not math.isnan(self.sem):
            return self.sem
        return (self.high - self.low) / (2 * normal_half(self.confidence))

    @property
    def interval(self) -> tuple[float, float]:
        """Ends of its interval; the value itself if it is exact, NaN if unknown."""
        if self.sort == "exact":
            return self.measured, self.measured
        return self.low, self.high

    @property
    def verdict(self) -> Verdict:
        """Return whether the value agrees."""
        return self._judged[0]

    @property
    def reason(self) -> str:
        """Why the value is undecided or not measured; else empty."""
        return self._judged[1]

    @property
    def _judged(self) -> tuple[Verdict, str]:
        if not math.isfinite(self.measured):
            is_infinite = math.isinf(self.measured)
            return "not measured", self.lacks or "it is infinite" * is_infinite
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
        cautious = self.corrected_cautious
        return (self.p_cautious if cautious is None else cautious) < LEVEL

    @property
    def _may_differ(self) -> bool:
        """True also if it is by Welch's test of few runs alone that means differ."""
        return (self.p_means if self.corrected is None else self.corrected) < LEVEL

    def _by_error(self, se: float) -> tuple[Verdict, str]:
        if self._differs:
            return "contradicted", ""
        if self.own_error > se:
            return "undecided", NOISY
        return ("undecided", TOO_FEW) if self._may_differ else ("agrees", "")

    @property
    def _by_scatter(self) -> tuple[Verdict, str]:
        """Compare with the scatter of one run of the source, and with its mean.

        One run is compared with the scatter alone, about a mean that is uncertain, and
        by a deviation that few runs leave uncertain.
        """
        sd, n = self.expected.sd or 0.0, self.expected.n
        is_mean = self.sort == "mean" and n is not None
        around = sd * math.sqrt(1 + 1 / n) if n and not is_mean else sd
        most = MAX_SCATTER if is_mean else _most_deviations(n)
        own_margin = 0.0 if is_mean else MAX_SCATTER * self.own_error
        far = math.hypot(most * around, own_margin)
        is_far = abs(self.difference) > far
        if is_far and is_mean and not self._differs:
            return "undecided", "far off, but the means may be equal"
        if is_far:
            return "contradicted", ""
        if self.own_error > sd:
            return "undecided", NOISY
        if self._may_differ and not self._differs:
            return "undecided", TOO_FEW
        return ("differs_in_mean" if self._differs else "agrees"), ""

    @property
    def _by_limits(self) -> tuple[Verdict, str]:
        """Return where the value is, and its interval if that is outside."""
        expected = self.expected
        assert expected.limits is not None
        low, high = expected.limits
        if self._is_near:
            return "agrees", ""
        if _is_beyond(self.interval, low, high):
            return "contradicted", ""
        if not math.isfinite(self.own_error):
            return "undecided", self._no_error
        if not low <= self.measured <= high:
            return "undecided", f"outside, but {self._interval_text}"
        if self.own_error > (high - low) / 2 and expected.within_sems is None:
            return "undecided", "its error exceeds what is allowed"
        return "agrees", ""

    @property
    def _is_near(self) -> bool:
        """True if as many measured errors as are allowed cover the difference."""
        allowed = self.expected.within_sems
        if allowed is None or not math.isfinite(self.own_error):
            return False
        return abs(self.difference) <= allowed * self.own_error

    @property
    def _by_interval(self) -> tuple[Verdict, str]:
        """Return whether the interval lies where it should, or beyond."""
        least = -math.inf if self.expected.at_least is None else self.expected.at_least
        most = math.inf if self.expected.at_most is None else self.expected.at_most
        low, high = self.interval
        if math.isnan(low) or math.isnan(high):
            return "undecided", "its interval is not known"
        if self.sort != "exact" and _is_at_zero((low, high), least, most):
            return "undecided", "its interval ends at 0, so it has no sign"
        if least <= low and high <= most:
            return "agrees", ""
        if _is_beyond((low, high), least, most):
            return "contradicted", ""
        return "undecided", self._interval_text

    @property
    def _interval_text(self) -> str:
        low, high = self.interval
        if math.isnan(low) or math.isnan(high):
            return "its interval is not known"
        return f"its interval is {low:.3g} to {high:.3g}"

    def as_json(self) -> dict[str, Any]:
        """Return the finding as plain data."""
        expected = self.expected
        given = ("sd", "n", "se", "within_sems", "at_least", "at_most")
        numbers = (
            "measured",
            "sem",
            "low",
            "high",
            "scatter",
            "z",
            "p_means",
            "p_cautious",
        )
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
            "failed": self.failed,
            "notes": self.notes,
            "source": expected.source,
        }


def normal_half(confidence: float) -> float:
    """Return half of a normal interval's width in standard errors."""
    return NormalDist().inv_cdf((1 + confidence) / 2)


def _most_deviations(runs: int | None) -> float:
    """Return how far one run may be, in deviations estimated from so many others.

    Three, but of less than five runs the more that Student's interval needs, as three
    would call one run in five contradicted that is like two others.
    """
    if runs is None or runs >= FEW:
        return MAX_SCATTER
    from curvflow.tasks.statistics.means import student  # which loads SciPy

    return max(MAX_SCATTER, student(runs - 1, CONFIDENCE))


def _is_beyond(interval: tuple[float, float], least: float, most: float) -> bool:
    """Return whether all of an interval lies outside; False of one unknown."""
    low, high = interval
    return high < least or low > most


def _is_at_zero(interval: tuple[float, float], least: float, most: float) -> bool:
    """Return whether an interval ends at a limit of 0 that claims a sign."""
    low, high = interval
    is_positive, is_negative = math.isinf(most), math.isinf(least)
    return (is_positive and least == low == 0) or (is_negative and most == high == 0)


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
    fewer = [finding.p_if_fewer(FEW_OF_FAMILY) for finding in findings]
    cautious = holm(np.array(fewer))
    return [
        finding
        if math.isnan(p)
        else replace(finding, corrected=float(p), corrected_cautious=float(most))
        for finding, p, most in zip(findings, p_values, cautious, strict=True)
    ]


def without_runs(expected: Iterable[Expectation]) -> int:
    """Return how many expectations state a deviation and not of how many runs."""
    return sum(
        expectation.sd is not None and expectation.n is None for expectation in expected
    )
