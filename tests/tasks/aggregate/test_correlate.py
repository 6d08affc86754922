"""Correlations of nodes' numbers: against SciPy and closed forms."""

import math

import numpy as np
import pytest
from pydantic import ValidationError
from scipy import stats

from curvflow.errors import InputError, StudyError
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.aggregate.correlate import CorrelateParams
from curvflow.schemas.study.study import load_study
from curvflow.tasks.statistics.correlations import _weighted, correlation_interval
from tests.tasks.measured_nodes import compute, node, toy_kinds

KIND = "aggregate.correlate"
TESTS = {
    "pearson": stats.pearsonr,
    "spearman": stats.spearmanr,
    "kendall": stats.kendalltau,
}


@pytest.fixture(autouse=True)
def _toys():
    with toy_kinds():
        yield


def table(of, **params):
    given = {"x": "steps", "y": "curvature", "over": "seed", "num_resamples": 200}
    arrays = compute(KIND, of, **{**given, **params}).arrays
    names = arrays["quantity"].tolist()
    assert len(set(names)) == len(names)
    return {
        name: {field: values[row].item() for field, values in arrays.items()}
        for row, name in enumerate(names)
    }


def pair(seed, x, y, **coords):
    at = {"seed": seed, **coords}
    return [
        node(at, steps=x, trace=x**2),
        node(at, stage="other", kind="toy.other", curvature=y, trace=y / 2),
    ]


def cloud(count=12, seed=0, *, ties=False):
    random = np.random.default_rng(seed)
    x = random.normal(size=count)
    y = x + random.normal(size=count)
    return (x.round(), y.round()) if ties else (x, y)


def nodes(x, y, **coords):
    return [
        measured
        for s, (a, b) in enumerate(zip(x, y, strict=True))
        for measured in pair(s, a, b, **coords)
    ]


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("name", list(TESTS))
def test_coefficients_and_tests_are_those_of_scipy(name, ties):
    x, y = cloud(ties=ties)
    row = table(nodes(x, y))[f"curvature against steps: {name}"]
    known = TESTS[name](x, y)
    assert row["correlation"] == pytest.approx(known.statistic, rel=1e-12)
    assert row["p"] == pytest.approx(known.pvalue, rel=1e-9)
    assert row["bootstrap_low"] < row["correlation"] < row["bootstrap_high"]
    counts = [row[n] for n in ("count", "diverged", "nonfinite", "missing")]
    assert counts == [12, 0, 0, 0]
    assert (row["x_units"], row["y_units"]) == ("epoch", "1 / parameter")


def test_intervals_are_those_of_fisher_and_of_the_sources():
    x, y = cloud()
    rows = table(nodes(x, y), confidence=0.9)
    known = stats.pearsonr(x, y).confidence_interval(0.9)
    row = rows["curvature against steps: pearson"]
    assert [row["low"], row["high"]] == pytest.approx([*known], rel=1e-12)
    for name, variance, freedom in (
        ("spearman", 1 + stats.spearmanr(x, y)[0] ** 2 / 2, 9),
        ("kendall", 0.437, 8),
    ):
        row = rows[f"curvature against steps: {name}"]
        half = stats.norm.ppf(0.95) * math.sqrt(variance / freedom)
        z = [math.atanh(row[name]) for name in ("low", "correlation", "high")]
        assert np.diff(z) == pytest.approx([half, half], rel=1e-9)


@pytest.mark.parametrize("name", list(TESTS))
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("outlier", [0.0, 1e9])
def test_the_bootstrap_is_that_of_resampled_points(name, ties, outlier):
    x, y = cloud(9, ties=ties)
    x[0] += outlier
    drawn = np.random.default_rng(3).integers(9, size=(300, 9))
    varying = [i for i in drawn if np.ptp(x[i]) and np.ptp(y[i])]
    slow = [TESTS[name](x[i], y[i]).statistic for i in varying]
    known = np.quantile(slow, [0.025, 0.975])
    result = correlation_interval(
        name, x, y, confidence=0.95, num_resamples=300, seed=3
    )
    assert result == pytest.approx(known, rel=1e-9 if not outlier else 1e-6)


@pytest.mark.parametrize("name", list(TESTS))
def test_resamples_of_one_point_alone_have_no_correlation(name):
    x, y = np.array([0.1, 0.3, 0.7]), np.array([1 / 3, 0.2, 0.6])
    result = _weighted(name, x, y, np.array([[0.0, 3.0, 0.0], [1.0, 1.0, 1.0]]))
    assert np.isnan(result[0])
    assert result[1] == pytest.approx(TESTS[name](x, y).statistic)


@pytest.mark.parametrize("name", list(TESTS))
def test_intervals_hold_the_truth_as_often_as_they_say(name):
    # Of a bivariate normal law: 2/pi asin(r) for Kendall, 6/pi asin(r/2) for Spearman.
    true = {
        "pearson": 0.6,
        "spearman": 6 / math.pi * math.asin(0.3),
        "kendall": 2 / math.pi * math.asin(0.6),
    }[name]
    random = np.random.default_rng(1)
    held = {"": 0, "bootstrap_": 0}
    tries = 200
    for _ in range(tries):
        x, y = random.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], size=40).T
        (row,) = table(nodes(x, y), coefficients=[name]).values()
        for kind in held:
            held[kind] += row[f"{kind}low"] < true < row[f"{kind}high"]
    for kind, lowest in (("", 0.95), ("bootstrap_", 0.93)):
        assert held[kind] / tries > lowest - 5 * math.sqrt(0.95 * 0.05 / tries)


def test_the_bootstrap_of_few_points_is_too_narrow():
    random = np.random.default_rng(3)
    held = []
    for _ in range(300):
        x, noise = random.normal(size=(2, 5))
        how = {"confidence": 0.95, "num_resamples": 400, "seed": 0}
        low, high = correlation_interval("pearson", x, 0.75 * x + noise, **how)
        held.append(low < 0.6 < high)
    assert 0.8 < np.mean(held) < 0.93


def test_unrelated_numbers_have_no_correlation_at_the_level():
    random = np.random.default_rng(2)
    tries = 200
    below = 0
    for _ in range(tries):
        x, y = random.normal(size=(2, 15))
        (row,) = table(nodes(x, y), coefficients=["kendall"]).values()
        below += row["p"] < 0.05
    assert below / tries < 0.05 + 5 * math.sqrt(0.05 * 0.95 / tries)


def test_points_may_be_means_over_an_axis():
    x, y = cloud(18)
    of = [
        measured
        for s in range(3)
        for w in range(6)
        for measured in pair(s, x[6 * s + w], y[6 * s + w], width=w)
    ]
    row = table(of, over="width", mean_over=["seed"])
    means = [v.reshape(3, 6).mean(axis=0) for v in (x, y)]
    result = row["curvature against steps: pearson"]
    assert result["correlation"] == pytest.approx(stats.pearsonr(*means)[0])
    assert result["count"] == 6


def test_groups_have_rows_of_their_own_and_holm_is_taken_per_coefficient():
    of = nodes(*cloud(8), rule="sgd") + nodes(*cloud(8, seed=4), rule="adam")
    rows = table(of, within=["rule"], coefficients=["pearson", "kendall"])
    assert list(rows) == [
        "curvature against steps: pearson, rule=sgd",
        "curvature against steps: kendall, rule=sgd",
        "curvature against steps: pearson, rule=adam",
        "curvature against steps: kendall, rule=adam",
    ]
    pearson_rows = [row for row in rows.values() if row["coefficient"] == "pearson"]
    assert min(r["p_holm"] for r in pearson_rows) == pytest.approx(
        2 * min(r["p"] for r in pearson_rows)
    )


def test_what_is_taken_off_y_is_of_the_same_node():
    x, y = cloud()
    rows = table(nodes(x, y), minus="trace", coefficients=["pearson"])
    row = rows["curvature - trace against steps: pearson"]
    assert row["correlation"] == pytest.approx(stats.pearsonr(x, y / 2)[0])
    assert row["y_variable"] == "curvature - trace"


def test_what_is_left_out_is_counted():
    x, y = cloud(9)
    of = nodes(x, y)
    of[0] = node({"seed": 0}, diverged=True)
    of[3].arrays["curvature"] = np.array(np.inf)
    del of[5]  # the partner of seed 2
    row = table(of)["curvature against steps: pearson"]
    counts = [row[n] for n in ("count", "diverged", "nonfinite", "missing")]
    assert counts == [6, 1, 1, 1]
    assert row["correlation"] == pytest.approx(stats.pearsonr(x[3:], y[3:])[0])


def test_where_all_diverged_the_rows_stay_and_hold_nan():
    of = [node({"seed": s}, diverged=True) for s in range(4)]
    rows = table(of, x="steps", y="trace")
    assert len(rows) == 3
    for row in rows.values():
        assert (row["count"], row["diverged"]) == (0, 4)
        assert np.isnan([row["correlation"], row["low"], row["p"]]).all()


@pytest.mark.parametrize(
    ("x", "y"),
    [([0.1] * 3, [1.0, 2, 3]), ([1.0, 1, 1, 1], [1.0, 2, 3, 4]), ([1.0], [2.0])],
)
def test_what_does_not_vary_has_no_correlation(x, y):
    for row in table(nodes(x, y)).values():
        names = ["correlation", "low", "bootstrap_low", "p", "p_holm"]
        assert np.isnan([row[name] for name in names]).all()


def test_perfect_order_has_no_interval():
    x = np.arange(8.0)
    for row in table(nodes(x, x)).values():
        assert row["correlation"] == pytest.approx(1)
        assert np.isnan([row["low"], row["bootstrap_low"]]).all()


@pytest.mark.parametrize("count", [3, 5, 7])
@pytest.mark.parametrize("ties", [False, True])
def test_ranks_of_few_points_are_tested_exactly(count, ties):
    x, y = cloud(count, ties=ties)
    y = y + np.arange(count)  # with ties too, x and y vary
    ranks = stats.zscore(stats.rankdata(y))
    known = stats.permutation_test(
        (x,),
        lambda x, axis: (
            stats.zscore(stats.rankdata(x, axis=axis), axis) @ ranks / count
        ),
        permutation_type="pairings",
        vectorized=True,
        n_resamples=np.inf,
    )
    assert known.statistic == pytest.approx(stats.spearmanr(x, y).statistic)
    row = table(nodes(x, y))["curvature against steps: spearman"]
    assert row["p"] == pytest.approx(_two_sided(known), rel=1e-12)


def _two_sided(statistic):
    return np.mean(
        np.abs(statistic.null_distribution) > abs(statistic.statistic) - 1e-9
    )


def test_three_points_in_perfect_order_prove_nothing():
    row = table(nodes([0.0, 1.0, 2.0], [1.0, 2.0, 5.0]))
    assert row["curvature against steps: spearman"]["p"] == pytest.approx(1 / 3)


def test_a_group_without_pairs_has_a_row_of_none():
    of = nodes(*cloud(8), rule="sgd")
    lonely = [
        point for point in nodes(*cloud(8), rule="adam") if point.stage != "other"
    ]
    rows = table([*of, *lonely], within=["rule"], coefficients=["kendall"])
    row = rows["curvature against steps: kendall, rule=adam"]
    assert [row[n] for n in ("count", "diverged", "missing")] == [0, 0, 8]
    columns = ("correlation", "low", "high", "bootstrap_low", "p", "p_holm")
    assert np.isnan([row[name] for name in columns]).all()
    assert rows["curvature against steps: kendall, rule=sgd"]["count"] == 8


def test_stages_whose_labels_never_agree_are_refused():
    of = nodes(*cloud(4))
    apart = [
        point for point in of if (point.stage == "other") == (point.coords["seed"] < 2)
    ]
    with pytest.raises(InputError, match=r"^x, y: expected nodes with equal labels"):
        table(apart)


def test_the_order_of_the_nodes_changes_no_bit():
    of = nodes(*cloud())
    assert table(of) == table(of[::-1])


def test_every_declared_column_is_there_in_its_type():
    given = {"x": "steps", "y": "curvature", "over": "seed", "num_resamples": 100}
    arrays = compute(KIND, nodes(*cloud()), **given).arrays
    outputs = [v for v in find_kind(KIND).outputs if not v.optional]
    assert set(arrays) == {v.name for v in outputs}
    for variable in outputs:
        array = arrays[variable.name]
        assert array.shape == arrays["quantity"].shape
        is_text = variable.dtype == "str"
        assert array.dtype.kind == "U" if is_text else array.dtype == variable.dtype


def test_a_variable_of_several_numbers_is_refused():
    with pytest.raises(InputError, match="x: expected a single number per node"):
        table(nodes(*cloud()), x="eigenvalues")


@pytest.mark.parametrize(
    "wrong", [{"x": []}, {"coefficients": []}, {"coefficients": ["pearsons"]}]
)
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(ValidationError):
        CorrelateParams(**{"x": "a", "y": "b", "over": "seed", **wrong})


STUDY = """
study: correlated
axes: {{seed: 3}}
stages:
  data: {{use: data.xor}}
  fit: {{use: train, data: data, model: {{kind: linear}}, rule: {{rule: sgd, lr: 0.1}},
        seed: "${{seed}}", epochs: 2}}
  eigen: {{use: probe.eigenvalues, weights: fit, k: 2}}
  together: {{use: aggregate.correlate, of: [fit, eigen], {given}}}
"""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "x: final_norm_l3, y: final_test_loss, over: seed",
            r"study.yaml:\d+:\d+: stages.together.x: expected a variable of the stages "
            "taken, got 'final_norm_l3'. Did you mean 'final_norm_l2'",
        ),
        (
            "x: final_norm_l2, y: final_test_loss, over: sed",
            r"together.over: expected a dimension of 'fit', got 'sed'. Did you mean",
        ),
        (
            "x: eigenvalues, y: final_test_loss, over: seed",
            r"together.x: expected a single number per node, got 'eigenvalues' with "
            "rank",
        ),
        (
            "x: final_norm_l2, y: final_test_loss, minus: num_matvecs, over: seed",
            r"together.minus: expected a variable of 'fit', which has final_test_loss",
        ),
        (
            "x: final_norm_l2, y: final_test_loss, minus: train_loss, over: seed",
            r"together.minus: expected a single number per node, got 'train_loss' with "
            "epoch",
        ),
        (
            "x: final_norm_l2, y: final_test_loss, minus: final_train_accuracy, "
            "over: seed",
            r"together.minus: expected a variable in the units of final_test_loss, "
            r"\w+, got 'final_train_accuracy' in 1\.",
        ),
    ],
)
def test_wrong_names_are_refused_while_planning(given, message):
    with pytest.raises(StudyError, match=message):
        load_study(STUDY.format(given=given), file="study.yaml")
