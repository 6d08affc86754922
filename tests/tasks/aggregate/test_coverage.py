"""Coverage of stated intervals: the fraction that contains the true value."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from curvflow.errors import InputError
from curvflow.schemas.nodes import Member, Numbers
from tests.tasks.toys import assert_declared, compute, member

KIND = "aggregate.coverage"


def node(coords, stage="trace", status="ok", *, kind="probe.trace", **arrays):
    plain = {name: np.asarray(value) for name, value in arrays.items()}
    return Numbers(stage, kind, coords, plain, stage, status)


def table(of, truth, **params):
    given = member(KIND, {"repetitions": "seed", "quantities": "trace", **params})
    (outcome,) = compute(KIND, [Member(given.params, {"of": of, "truth": truth})])
    assert_declared(KIND, outcome)
    arrays = outcome.arrays
    return {
        name: {field: values[row].item() for field, values in arrays.items()}
        for row, name in enumerate(arrays["quantity"].tolist())
    }


def estimates(count=400, draws=10, scale=1.0, seed=1):
    """Means of normal draws around 0 with a stated error that is off by a factor."""
    x = np.random.default_rng(seed).normal(size=(count, draws))
    sem = x.std(1, ddof=1) / draws**0.5
    return [
        node({"seed": s}, trace=m, trace_sem=scale * e, num_draws=draws)
        for s, (m, e) in enumerate(zip(x.mean(1), sem, strict=True))
    ]


TRUTH = [node({"seed": s}, "dense", trace=0.0) for s in range(400)]


def test_right_errors_cover_as_they_should():
    row = table(estimates(), TRUTH)["trace"]
    assert 0.92 <= row["coverage"] <= 0.98
    assert row["coverage_low"] < 0.95 < row["coverage_high"]
    assert abs(row["mean_z"]) < 0.2
    assert (row["count"], row["unjudged"]) == (400, 0)


@pytest.mark.parametrize(("scale", "sd"), [(0.5, 2.26), (2.0, 0.57)])
def test_wrong_errors_are_seen(scale, sd):
    row = table(estimates(scale=scale), TRUTH)["trace"]
    assert not row["coverage_low"] <= 0.95 <= row["coverage_high"]
    assert row["sd_z"] == pytest.approx(sd, rel=0.15)


def test_the_error_of_a_mean_is_that_of_what_it_is_the_mean_of():
    of = [
        node({"seed": s}, "llc", kind="probe.llc", llc_mean=mean, llc_sem=0.1)
        for s, mean in enumerate([4.9, 5.15, 5.3])
    ]
    truth = [node({}, "exact", kind="probe.llc_regular", llc_regular=5.0)]
    params = {"quantities": "llc_mean", "truth_variable": "llc_regular"}
    row = table(of, truth, **params)["llc_mean"]
    assert (row["count"], row["coverage"]) == (3, pytest.approx(2 / 3))
    assert row["mean_z"] == pytest.approx((-1 + 1.5 + 3) / 3)


def test_the_interval_of_a_share_is_that_of_clopper_and_pearson():
    of = [node({"seed": s}, trace=float(s > 1), trace_sem=0.1) for s in range(12)]
    truth = [node({"seed": s}, "dense", trace=1.0) for s in range(12)]
    row = table(of, truth)["trace"]
    low, high = stats.binomtest(10, 12).proportion_ci(method="exact")
    assert row["coverage"] == pytest.approx(10 / 12)
    assert row["coverage_low"] == pytest.approx(low, rel=1e-9)
    assert row["coverage_high"] == pytest.approx(high, rel=1e-9)
    every = table(of[2:], truth)["trace"]
    assert every["coverage_high"] == 1


def test_each_element_and_each_stage_is_a_row():
    of = [
        node({"seed": s}, stage, trace=[1.0, 2.0], trace_sem=[0.1, 0.0])
        for s in range(3)
        for stage in ("one", "two")
    ]
    truth = [node({"seed": s}, "dense", trace=[1.05, 2.0]) for s in range(3)]
    result = table(of, truth)
    assert list(result) == [
        "one.trace[0]",
        "one.trace[1]",
        "two.trace[0]",
        "two.trace[1]",
    ]
    assert result["one.trace[1]"]["coverage"] == 1
    assert np.isnan(result["one.trace[1]"]["mean_z"])
    assert result["one.trace[0]"]["mean_z"] == pytest.approx(-0.5)


def test_intervals_that_are_given_are_taken():
    of = [
        node({"seed": s}, trace=1.0, trace_low=0.9, trace_high=1.0 + s)
        for s in range(4)
    ]
    truth = [node({"seed": s}, "dense", trace=1.5) for s in range(4)]
    row = table(of, truth)["trace"]
    assert row["coverage"] == 0.75
    assert np.isnan(row["mean_z"])


def test_bias_and_spread_are_seen_of_intervals_that_are_given_as_well():
    of = estimates(scale=0.5)
    for each in of:
        each.arrays["trace"] = each.arrays["trace"] + each.arrays["trace_sem"]
        each.arrays.update(trace_low=np.array(-9.0), trace_high=np.array(9.0))
    of[0].arrays["trace_sem"] = np.array(np.inf)
    row = table(of, TRUTH)["trace"]
    assert (row["coverage"], row["count"]) == (1, 400)
    assert row["mean_z"] == pytest.approx(1, abs=0.3)
    assert row["sd_z"] == pytest.approx(2.26, rel=0.15)


def test_errors_of_few_draws_have_wider_intervals_if_one_says_so():
    of = [node({"seed": 0}, trace=1.0, trace_sem=0.1)]
    truth = [node({}, "dense", trace=1.25)]
    assert table(of, truth)["trace"]["coverage"] == 0
    assert table(of, truth, draws=5)["trace"]["coverage"] == 1


def test_a_truth_without_the_repeated_axis_serves_all():
    truth = [node({}, "true", kind="weights.known_answer", llc_true=0.0)]
    row = table(estimates(50), truth, truth_variable="llc_true")
    assert row["trace"]["count"] == 50


def test_what_diverged_or_is_unknown_is_counted_and_not_judged():
    of = estimates(4)
    of[0] = node({"seed": 0}, status="diverged")
    of[1] = node({"seed": 1}, trace=np.nan, trace_sem=1.0, num_draws=10)
    truth = [*TRUTH[:3], node({"seed": 3}, "dense", "diverged", trace=0.0)]
    row = table(of, truth)["trace"]
    assert (row["count"], row["unjudged"]) == (1, 3)


GONE = [node({"seed": s}, status="diverged") for s in range(4)]


@pytest.mark.parametrize(
    ("of", "truth"),
    [
        (GONE, TRUTH),
        (estimates(4), [node({}, "dense", "diverged")]),
        (estimates(4), [node({"seed": 9}, "dense", trace=0.0)]),
    ],
    ids=["estimates", "truth", "no common point"],
)
def test_a_row_without_any_interval_judged_says_how_many_there_are(of, truth):
    row = table(of, truth)["trace"]
    assert (row["count"], row["unjudged"]) == (0, 4)
    for name in ("coverage", "coverage_low", "coverage_high", "mean_z", "sd_z"):
        assert np.isnan(row[name])


def test_a_stage_of_which_all_diverged_keeps_its_row_with_another():
    estimate = table(
        [*estimates(4), *(replace(estimate, stage="b") for estimate in GONE)], TRUTH
    )
    assert (estimate["trace.trace"]["count"], estimate["trace.trace"]["unjudged"]) == (
        4,
        0,
    )
    assert (estimate["b.trace"]["count"], estimate["b.trace"]["unjudged"]) == (0, 4)


@pytest.mark.parametrize(
    ("of", "truth", "message"),
    [
        (
            [node({"seed": 0}, kind="probe.norms", norm_l2=1.0)],
            TRUTH,
            "variables of the given stages, got 'tr",
        ),
        (
            [node({"seed": 0}, trace=1.0)],
            TRUTH,
            "with a standard error, such as trace_sem, or",
        ),
        (
            estimates(2),
            [node({}, "true", kind="weights.known_answer", llc_true=1.0)],
            "a stage that holds 'trace'",
        ),
        (estimates(2), [*TRUTH, node({"seed": 1}, "b", trace=1.0)], "got several"),
        (estimates(2), [node({}, "dense", trace=[1.0, 2.0])], "same shape"),
    ],
    ids=["not measured", "no error", "no truth", "two truths", "shapes"],
)
def test_what_cannot_be_judged_is_refused(of, truth, message):
    with pytest.raises(InputError, match=message):
        table(of, truth)


@pytest.mark.parametrize(("how", "count"), [("count", 40), ("exclude", 30)])
def test_estimates_that_are_not_converged_are_judged_or_not(how, count):
    names = ["converged"] * 3 + ["drifting"]
    of = [
        node(
            {"seed": s},
            "llc",
            kind="probe.llc",
            llc_mean=0.0,
            llc_sem=1.0,
            verdict=names[s % 4],
        )
        for s in range(40)
    ]
    truth = [node({"seed": s}, "dense", trace=s % 4 / 2) for s in range(40)]
    row = table(
        of, truth, quantities="llc_mean", truth_variable="trace", unconverged=how
    )["llc_mean"]
    assert (row["count"], row["unjudged"]) == (count, 40 - count)
    assert row["judged"] == count / 40
    assert row["coverage"] == 1.0


def test_another_confidence_than_that_of_the_intervals_is_refused():
    of = [node({"seed": 0}, trace=1.0, trace_sem=0.1, trace_low=0.8, trace_high=1.2)]
    assert table(of, TRUTH)["trace"]["coverage"] == 0
    with pytest.raises(InputError, match=r"^confidence: expected 0\.95, that of trace"):
        table(of, TRUTH, confidence=0.9)
