"""Verdicts of random cases: how often they are wrong, and by which rule."""

import math

import numpy as np
import pytest

from curvflow.flows.results.check import _cells
from curvflow.flows.results.findings import Finding, corrected, normal_half
from curvflow.schemas.study.expectations import Expectation
from curvflow.tasks.statistics.descriptive import statistics
from curvflow.tasks.statistics.differences import unpaired_difference

DIFFER = ("contradicted", "differs_in_mean")


def expecting(**tolerance):
    return Expectation(stage="s", quantity="q", **tolerance)


def printed(values):
    """Expect the mean of another's runs."""
    sd = float(values.std(ddof=1))
    return expecting(value=float(values.mean()), sd=sd, n=len(values))


def row_of(values, confidence=0.95):
    """Return the row that a summary has of values."""
    summary = statistics(values)
    low, high = summary.interval(confidence)
    ends = {"low": float(low), "high": float(high)}
    numbers = {"mean": float(summary.mean), "sem": float(summary.sem)}
    return {"quantity": "q", **numbers, **ends, "count": len(values)}


def found(row, expected, confidence=0.95, *, is_resampled=False):
    ((facts, _),) = _cells([row], expected, confidence, is_resampled=is_resampled)
    return Finding(expected, {}, **facts)


def mean_of(values, expected, confidence=0.95):
    return found(row_of(values, confidence), expected, confidence)


def share(verdicts, wanted):
    return sum(verdict in wanted for verdict in verdicts) / len(verdicts)


@pytest.mark.parametrize("num_runs", [2, 3, 4, 5, 10])
@pytest.mark.parametrize("ratio", [0.3, 1.0, 3.0])
def test_equal_means_of_few_runs_and_unequal_scatter_differ_no_more_often_than_said(
    num_runs, ratio
):
    draw = np.random.default_rng(num_runs)
    verdicts = [
        mean_of(ratio * draw.normal(size=num_runs), printed(draw.normal(size=size)))
        for size in draw.choice([2, 3, 5, 10], size=600)
    ]
    # 3.5 standard errors of a share of 0.055, Welch's of five runs and more.
    assert share([one.verdict for one in verdicts], DIFFER) < 0.055 + 0.033


@pytest.mark.parametrize(("num_runs", "often"), [(2, 0.113), (3, 0.069)])
def test_welch_alone_says_of_few_runs_too_often_that_means_differ(num_runs, often):
    draw = np.random.default_rng(num_runs)
    findings = [
        mean_of(3 * draw.normal(size=num_runs), printed(draw.normal(size=10)))
        for _ in range(2000)
    ]
    assert np.mean([one.p_means < 0.05 for one in findings]) == pytest.approx(
        often, abs=0.025
    )
    families = [corrected(findings[n : n + 20]) for n in range(0, 2000, 20)]
    wrong = [any(one.corrected < 0.05 for one in family) for family in families]
    assert np.mean(wrong) > 0.15
    assert not any(one.verdict in DIFFER for family in families for one in family)


@pytest.mark.parametrize("num_runs", [2, 3, 6, 8])
@pytest.mark.parametrize("ratio", [1.0, 3.0])
def test_a_family_of_equal_means_is_told_to_differ_as_often_as_the_level_says(
    num_runs, ratio
):
    draw = np.random.default_rng(num_runs)
    families = []
    for _ in range(75):
        findings = [
            mean_of(ratio * draw.normal(size=num_runs), printed(draw.normal(size=10)))
            for _ in range(12)
        ]
        verdicts = [finding.verdict for finding in corrected(findings)]
        families.append(share(verdicts, DIFFER) > 0)
    assert np.mean(families) < 0.05 + 0.089


def test_equal_counts_without_scatter_do_not_differ_of_few_runs():
    draw = np.random.default_rng(3)
    verdicts = []
    for _ in range(800):
        ours, theirs = draw.binomial(50, 0.02, 2) / 50, draw.binomial(50, 0.02, 10) / 50
        if theirs.std() > 0:
            verdicts.append(mean_of(ours, printed(theirs)).verdict)
    assert share(verdicts, DIFFER) < 0.05


@pytest.mark.parametrize("num_runs", range(2, 8))
def test_one_value_like_the_others_is_seldom_contradicted(num_runs):
    draw = np.random.default_rng(num_runs)
    found = [
        Finding(printed(draw.normal(size=num_runs)), {}, draw.normal())
        for _ in range(800)
    ]
    verdicts = [finding.verdict for finding in found]
    assert share(verdicts, ["contradicted"]) < 0.05 + 0.028
    if num_runs == 2:  # three deviations about such a mean would be too few
        far = [abs(finding.scatter) > 3 * math.sqrt(1.5) for finding in found]
        assert np.mean(far) == pytest.approx(0.205, abs=0.05)


@pytest.mark.parametrize("num_runs", [2, 3, 5, 10])
@pytest.mark.parametrize("half", [0.2, 1.0, 3.0])
def test_a_mean_at_its_limit_is_seldom_contradicted(num_runs, half):
    draw = np.random.default_rng(num_runs)
    verdicts = [
        mean_of(draw.normal(half, 1, num_runs), expecting(value=0, within=half)).verdict
        for _ in range(500)
    ]
    # One end of an interval of 95 %, and of narrow limits the other end too.
    assert share(verdicts, ["contradicted"]) < 0.05 + 0.025


@pytest.mark.parametrize("num_runs", [2, 3, 10])
def test_a_sign_is_seldom_wrong(num_runs):
    draw = np.random.default_rng(num_runs)
    verdicts = [
        mean_of(draw.normal(size=num_runs), expecting(at_least=0.0)).verdict
        for _ in range(800)
    ]
    for verdict in ("agrees", "contradicted"):
        assert share(verdicts, [verdict]) < 0.025 + 0.02


def test_what_is_far_off_is_contradicted_by_every_tolerance():
    draw = np.random.default_rng(5)
    for _ in range(200):
        ours = draw.normal(50, 1, draw.integers(5, 20))
        theirs = draw.normal(size=draw.integers(5, 20))
        for expected in (
            printed(theirs),
            expecting(value=0.0, se=0.5),
            expecting(value=0.0, within=draw.uniform(0.1, 5)),
            expecting(at_most=draw.uniform(0, 5)),
        ):
            assert mean_of(ours, expected).verdict == "contradicted"


def judged(measured, error, ends, low, high):
    """Return the verdict by limits, by the words of the documentation."""
    first, last = ends
    if not math.isfinite(measured):
        return "not measured"
    if last < low or first > high:
        return "contradicted"
    if not math.isfinite(error) or not low <= measured <= high:
        return "undecided"
    return "agrees" if error <= (high - low) / 2 else "undecided"


def test_limits_are_judged_by_value_error_and_interval():
    draw = np.random.default_rng(6)
    odd = [math.nan, math.inf, -math.inf, 0.0]
    verdicts = set()
    for _ in range(4000):
        low, high = np.sort(draw.normal(size=2)).tolist()
        measured = draw.normal() if draw.random() < 0.9 else float(draw.choice(odd))
        error = draw.exponential() if draw.random() < 0.8 else abs(draw.choice(odd))
        error = float(error)
        below, above = (2 * error * x for x in draw.exponential(size=2).tolist())
        ends = (measured - below, measured + above)
        ends = (math.nan, math.nan) if draw.random() < 0.1 else ends
        expected = expecting(value=(low + high) / 2, within=(low, high))
        finding = Finding(expected, {}, measured, error, *ends, sort="mean")
        wanted = judged(measured, finding.own_error, ends, low, high)
        verdicts.add(wanted)
        assert finding.verdict == wanted, (finding, finding.reason)
        assert bool(finding.reason) >= (wanted == "undecided")
    assert len(verdicts) == 4


def test_an_exact_value_is_inside_or_contradicted():
    for value, within, measured in ((0.7, 0.1, 0.8), (0.3, 0.1, 0.4), (1.1, 0.1, 1.2)):
        expected = expecting(value=value, within=within)
        assert Finding(expected, {}, measured).verdict == "agrees"  # as decimals are
        assert Finding(expected, {}, measured + 1e-9).verdict == "contradicted"


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
def test_tests_of_means_do_not_depend_on_the_confidence_of_the_table(confidence):
    draw = np.random.default_rng(7)
    for _ in range(50):
        first = draw.normal(size=draw.integers(3, 9))
        second = draw.normal(size=draw.integers(3, 9)) * draw.uniform(0.2, 5)
        expected = printed(draw.normal(size=10))
        rows = []
        for level in (0.95, confidence):
            got = unpaired_difference(first, second, level)
            row = {"quantity": "q", "mean": got.mean, "sem": got.sem, "above": -1}
            row |= dict(zip(("low", "high"), got.limits, strict=True))
            rows.append(row | {"count": len(first), "baseline_count": len(second)})
        usual = found(rows[0], expected)
        other = found(rows[1], expected, confidence)
        assert other.p_means == pytest.approx(usual.p_means, rel=1e-3)
        assert other.verdict == usual.verdict


def test_an_interval_of_another_confidence_states_the_same_error():
    for confidence in (0.5, 0.95, 0.999):
        half = 0.3 * normal_half(confidence)
        row = {"quantity": "q", "correlation": 0.1, "low": 0.1 - half, "count": 9}
        finding = found(row | {"high": 0.1 + half}, expecting(at_least=0.0), confidence)
        assert finding.own_error == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("column", "verdict"),
    [
        ("mean", "undecided"),
        ("median", "undecided"),
        ("max", "agrees"),  # of which no interval is stated
        (None, "undecided"),
    ],
)
def test_a_named_column_has_the_interval_beside_it(column, verdict):
    row = row_of(np.array([-1.0, 0.5, 1.1])) | {"max": 1.1}
    row |= {"median": 0.5, "median_low": -1.0, "median_high": 1.1}
    assert found(row, expecting(at_least=0.0, column=column)).verdict == verdict


@pytest.mark.parametrize(("count", "verdict"), [(4, "undecided"), (5, "agrees")])
@pytest.mark.parametrize("column", ["mean", "median", None])
def test_a_resampled_interval_of_few_runs_supports_no_claim(column, count, verdict):
    row = row_of(1.0 + np.arange(count) / 10)
    row |= {"median": 1.2, "median_low": 1.0, "median_high": 1.4}
    expected = expecting(at_least=0.0, column=column)
    assert found(row, expected, is_resampled=True).verdict == verdict
    assert found(row, expected).verdict == "agrees"


@pytest.mark.parametrize("count", [2, 3, 4])
def test_few_runs_that_are_all_equal_support_no_claim(count):
    row = row_of(np.full(count, 1.0))
    assert found(row, expecting(at_least=0.5)).verdict == "undecided"
    assert found(row, expecting(value=0.5, within=0.1)).verdict == "undecided"
    assert found(row, expecting(value=1.0, within=0.1)).verdict == "agrees"
    ranks = {"quantity": "q", "mean_rank": 1.0, "sem": 0.0, "low": 1.0, "high": 1.0}
    ranked = found(ranks | {"count": count}, expecting(at_most=1.5))
    assert ranked.verdict == "undecided"
    printed_ranks = expecting(value=1.5, sd=0.5, n=10)
    assert found(ranks | {"count": count}, printed_ranks).p_cautious > 0.05


@pytest.mark.parametrize("counts", [(8, 2), (2, 8), (3, 3)])
def test_a_difference_from_few_runs_that_are_all_equal_supports_no_claim(counts):
    row = row_of(np.full(8, 1.0))
    row |= {"count": counts[0], "baseline_count": counts[1]}
    assert found(row, expecting(at_least=0.5)).verdict == "undecided"
    row |= {"count": 8, "baseline_count": 5}
    assert found(row, expecting(at_least=0.5)).verdict == "agrees"


def test_shares_of_few_runs_are_seldom_called_above_theirs():
    draw = np.random.default_rng(8)
    for count in (2, 3, 4):
        verdicts = [
            mean_of((draw.random(count) < 0.5).astype(float), expecting(at_least=0.5))
            for _ in range(400)
        ]
        assert not any(one.verdict in ("agrees", "contradicted") for one in verdicts)


def test_a_claim_that_rests_on_runs_without_scatter_says_so():
    equal, other = np.ones(5), np.array([1.0, 1.0, 1.2])
    for expected, values, is_told in (
        (expecting(at_least=0.9), equal, True),
        (expecting(at_least=0.5), other, False),
        (expecting(value=0.5, within=0.1), equal, True),
        (expecting(value=1.0, within=0.1), equal, False),
    ):
        assert ("all equal" in mean_of(values, expected).notes) is is_told


@pytest.mark.parametrize("sign", [1, -1])
def test_no_difference_supports_no_sign(sign):
    limit = expecting(at_least=0.0) if sign == 1 else expecting(at_most=0.0)
    for values in (np.zeros(6), sign * np.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.0])):
        row = row_of(values)
        row["low" if sign == 1 else "high"] = 0.0  # as of resampled values
        finding = found(row, limit)
        assert finding.verdict == "undecided"
        assert "no sign" in finding.reason
    assert found(row_of(sign + np.zeros(6)), limit).verdict == "agrees"
    assert found(row_of(-sign + np.zeros(6)), limit).verdict == "contradicted"
    # Of a value without an error, as the least of some, the words hold as they stand.
    assert Finding(limit, {}, 0.0).verdict == "agrees"
    # Nor do other limits claim a sign, or two of them.
    for value, ends in ((1.0, {"at_least": 1.0}), (0.0, {"at_least": 0, "at_most": 1})):
        assert found(row_of(np.full(6, value)), expecting(**ends)).verdict == "agrees"
