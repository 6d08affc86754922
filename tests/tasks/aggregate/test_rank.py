"""Ranks over repetitions: against SciPy and printed values."""

import numpy as np
import pytest
from pydantic import ValidationError
from scipy import stats

from curvflow.errors import InputError, StudyError
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.aggregate.rank import RankParams
from curvflow.schemas.study.study import load_study
from curvflow.tasks.aggregate.rank import critical_difference, friedman, ranks
from tests.tasks.measured_nodes import compute, node, toy_kinds

KIND = "aggregate.rank"
GIVEN = {"along": "rule", "lower_is_better": "trace", "over": "seed"}
RULES = ("sgd", "adam", "ngd")
# Rows are seeds, columns rules.
VALUES = np.array([[3.0, 1.0, 2.0], [3.0, 2.0, 2.0], [1.0, 2.0, 3.0], [9.0, 4.0, 5.0]])
RANKS = np.array([[3.0, 1.0, 2.0], [3.0, 1.5, 1.5], [1.0, 2.0, 3.0], [3.0, 1.0, 2.0]])


@pytest.fixture(autouse=True)
def _toys():
    with toy_kinds():
        yield


def nodes(values=VALUES, rules=RULES, diverged=(), **coords):
    return [
        node(
            {"rule": rules[rule], "seed": seed, **coords},
            trace=values[seed, rule],
            diverged=(seed, rule) in diverged,
        )
        for seed, rule in np.ndindex(values.shape)
    ]


def table(of, **params):
    arrays = compute(KIND, of, **{**GIVEN, **params}).arrays
    names = arrays["quantity"].tolist()
    assert len(set(names)) == len(names)
    return {
        name: {field: values[row].item() for field, values in arrays.items()}
        for row, name in enumerate(names)
    }


def column(rows, name):
    return [row[name] for row in rows.values()]


def test_mean_ranks_are_those_of_the_values_with_ties_shared():
    rows = table(nodes())
    assert list(rows) == ["trace: sgd", "trace: adam", "trace: ngd"]
    assert column(rows, "mean_rank") == pytest.approx(RANKS.mean(axis=0))
    assert column(rows, "place") == [3, 1, 2]
    assert column(rows, "wins") == [1, 3, 1]
    assert column(rows, "mean_value") == pytest.approx(VALUES.mean(axis=0))
    low, high = stats.t.interval(0.95, 3, loc=2.5, scale=stats.sem(RANKS[:, 0]))
    row = rows["trace: sgd"]
    assert [row["low"], row["high"]] == pytest.approx([low, high])
    assert row["sem"] == pytest.approx(stats.sem(RANKS[:, 0]))


def test_the_greatest_may_be_best():
    rows = table(nodes(), lower_is_better=[], higher_is_better="trace")
    assert column(rows, "mean_rank") == pytest.approx((4 - RANKS).mean(axis=0))


def test_friedman_s_test_is_that_of_scipy():
    rows = table(nodes())
    known = stats.friedmanchisquare(*VALUES.T)
    row = rows["trace: sgd"]
    assert row["friedman"] == pytest.approx(known.statistic, rel=1e-12)
    assert row["p_friedman"] == pytest.approx(known.pvalue, rel=1e-12)
    assert row["kendall_w"] == pytest.approx(known.statistic / (4 * 2))


def test_friedman_s_test_is_its_closed_form_without_ties():
    ranked = ranks(np.random.default_rng(3).normal(size=(9, 5)), lower_is_better=True)
    chi2 = 12 * 9 / (5 * 6) * ((ranked.mean(axis=0) - 3) ** 2).sum()
    result = friedman(ranked)
    assert result.chi2 == pytest.approx(chi2, rel=1e-12)
    f = 8 * chi2 / (9 * 4 - chi2)
    assert result.p_iman_davenport == pytest.approx(stats.f.sf(f, 4, 32), rel=1e-12)


def test_the_critical_difference_is_that_of_the_range_of_normals():
    # Of two labels it is that of a sign test's normal approximation.
    known = stats.norm.ppf(0.975) * (2 * 3 / (6 * 10)) ** 0.5
    assert critical_difference(10, 2, 0.95) == pytest.approx(known, rel=1e-6)
    draws = np.ptp(np.random.default_rng(0).normal(size=(200_000, 4)), axis=1)
    q = np.quantile(draws, 0.95) / 2**0.5
    known = q * (4 * 5 / (6 * 14)) ** 0.5
    assert critical_difference(14, 4, 0.95) == pytest.approx(known, rel=5e-3)


def test_alike_labels_exceed_the_critical_difference_as_rarely_as_it_says():
    random = np.random.default_rng(1)
    spread = [
        np.ptp(ranks(random.normal(size=(20, 4)), lower_is_better=True).mean(axis=0))
        for _ in range(500)
    ]
    above = np.mean(np.array(spread) > critical_difference(20, 4, 0.95))
    assert above < 0.05 + 5 * (0.05 * 0.95 / 500) ** 0.5
    assert above > 0


def test_labels_that_are_alike_differ_as_rarely_as_the_test_says():
    random = np.random.default_rng(0)
    tries = 400
    p = np.array(
        [
            friedman(
                ranks(random.normal(size=(12, 4)), lower_is_better=True)
            ).p_iman_davenport
            for _ in range(tries)
        ]
    )
    assert abs((p < 0.05).mean() - 0.05) < 5 * (0.05 * 0.95 / tries) ** 0.5


def test_repetitions_that_all_agree_leave_no_doubt():
    result = friedman(np.tile([1.0, 2.0, 3.0], (6, 1)))
    assert (result.kendall_w, result.p_iman_davenport) == (1.0, 0.0)


@pytest.mark.parametrize("shape", [(1, 3), (5, 2), (0, 3)])
def test_few_labels_or_repetitions_have_no_test(shape):
    assert np.isnan(friedman(np.ones(shape) * np.arange(shape[1])).p)


def test_what_diverged_shares_the_last_ranks_and_is_counted():
    values = VALUES.copy()
    values[0, 1] = np.nan
    rows = table(nodes(values, diverged={(0, 2), (3, 0)}))
    assert column(rows, "mean_rank") == pytest.approx([2, 1.75, 2.25])
    assert column(rows, "diverged") == [1, 0, 1]
    assert column(rows, "nonfinite") == [0, 1, 0]
    assert column(rows, "count") == [4, 4, 4]


def test_repetitions_with_what_diverged_may_be_left_out():
    rows = table(nodes(diverged={(0, 2), (3, 0)}), diverged="leave_out")
    assert column(rows, "mean_rank") == pytest.approx(RANKS[1:3].mean(axis=0))
    assert column(rows, "left_out") == [2, 2, 2]
    assert column(rows, "diverged") == [1, 0, 1]


def test_where_all_diverged_nobody_wins():
    gone = set(np.ndindex(VALUES.shape))
    rows = table(nodes(diverged=gone))
    assert column(rows, "mean_rank") == [2, 2, 2]
    assert column(rows, "wins") == [0, 0, 0]
    rows = table(nodes(diverged=gone), diverged="leave_out")
    assert column(rows, "count") == [0, 0, 0]
    assert np.isnan(column(rows, "mean_rank") + column(rows, "place")).all()


def test_a_repetition_that_a_label_lacks_is_not_ranked():
    rows = table(nodes()[:-1])
    assert column(rows, "mean_rank") == pytest.approx(RANKS[:3].mean(axis=0))
    assert column(rows, "missing") == [0, 0, 1]
    assert column(rows, "left_out") == [1, 1, 1]


def test_seeds_may_be_averaged_before_tasks_are_ranked():
    of = [
        run
        for task, values in enumerate((VALUES, VALUES[:, ::-1]))
        for run in nodes(values, task=task)
    ]
    rows = table(of, over="task", mean_over=["seed"])
    known = stats.rankdata([VALUES.mean(0), VALUES.mean(0)[::-1]], axis=1).mean(axis=0)
    assert column(rows, "mean_rank") == pytest.approx(known)
    assert column(rows, "count") == [2, 2, 2]


def test_a_mean_of_which_one_diverged_is_not_the_mean_of_the_others():
    of = [
        run
        for task in range(2)
        for run in nodes(diverged={(1, 1)} if task == 0 else (), task=task)
    ]
    rows = table(of, over="task", mean_over=["seed"])
    means = np.array([VALUES.mean(axis=0)] * 2)
    means[0, 1] = np.inf
    assert column(rows, "mean_rank") == pytest.approx(
        stats.rankdata(means, axis=1).mean(axis=0)
    )
    assert column(rows, "diverged") == [0, 1, 0]
    assert np.isfinite(column(rows, "mean_value")).all()
    rows = table(of, over="task", mean_over=["seed"], diverged="leave_out")
    assert (column(rows, "count"), column(rows, "left_out")) == ([1] * 3, [1] * 3)


def test_groups_are_ranked_apart():
    of = nodes(data="xor") + nodes(VALUES[:, ::-1], data="digits")
    rows = table(of, within=["data"])
    assert rows["trace: sgd, data=xor"]["place"] == 3
    assert rows["trace: sgd, data=digits"]["place"] == 2


@pytest.mark.parametrize(("epochs", "known"), [("last", [2, 1]), ("best", [1, 2])])
def test_a_curve_is_ranked_by_its_last_value_or_its_best(epochs, known):
    curves = {"sgd": [5.0, 1.0, 4.0], "adam": [5.0, np.nan, 2.0]}
    of = [
        node({"rule": rule, "seed": s}, epoch=[0, 1, 2], train_loss=curve)
        for rule, curve in curves.items()
        for s in range(2)
    ]
    rows = table(of, lower_is_better="train_loss", epochs=epochs)
    assert column(rows, "mean_rank") == known


def test_the_order_of_the_nodes_changes_no_bit():
    rows, other = table(nodes()), table(nodes()[::-1])
    assert rows == {name: other[name] for name in rows}


def test_every_declared_column_is_there_in_its_type():
    arrays = compute(KIND, nodes(), **GIVEN).arrays
    outputs = [v for v in find_kind(KIND).outputs if not v.optional]
    assert set(arrays) == {v.name for v in outputs}
    for variable in outputs:
        array = arrays[variable.name]
        assert array.shape == arrays["quantity"].shape
        is_text = variable.dtype == "str"
        assert array.dtype.kind == "U" if is_text else array.dtype == variable.dtype


def test_a_label_alone_is_refused():
    with pytest.raises(InputError, match="along: expected at least two labels of rule"):
        table(nodes(VALUES[:, :1]))


@pytest.mark.parametrize(
    "wrong",
    [
        {"lower_is_better": []},
        {"higher_is_better": "trace"},
        {"over": []},
        {"diverged": "first"},
    ],
)
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(ValidationError):
        RankParams(**{**GIVEN, **wrong})


STUDY = """
study: ranked
axes: {{seed: 3, rule: {{sgd: {{rule: sgd, lr: 0.1}}, adam: {{rule: adam, lr: 0.1}}}}}}
stages:
  data: {{use: data.xor}}
  fit: {{use: train, data: data, model: {{kind: linear}}, rule: "${{rule}}",
        seed: "${{seed}}", epochs: 2}}
  ranked: {{use: aggregate.rank, of: fit, {given}}}
"""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "along: rules, lower_is_better: final_test_loss, over: seed",
            r"study.yaml:\d+:\d+: stages.ranked.along: expected a dimension of 'fit', "
            "got 'rules'. Did you mean 'rule'",
        ),
        (
            "along: rule, lower_is_better: final_test_los, over: seed",
            r"ranked.lower_is_better: expected a variable of the stages taken, got "
            "'final_test_los'. Did you mean 'final_test_loss'",
        ),
        (
            "along: rule, higher_is_better: weights, over: seed",
            r"ranked.higher_is_better: expected a single number per node, got 'weig",
        ),
    ],
)
def test_wrong_names_are_refused_while_planning(given, message):
    with pytest.raises(StudyError, match=message):
        load_study(STUDY.format(given=given), file="study.yaml")


def test_a_single_label_is_refused_while_planning():
    given = "along: rule, over: seed, lower_is_better: final_test_loss"
    text = STUDY.format(given=given).replace(", adam: {rule: adam, lr: 0.1}", "")
    message = (
        r"study.yaml:\d+:\d+: stages.ranked.along: expected an axis of two labels or "
        r"more, got 'rule' of one. Give 'rule' another, or remove the stage.$"
    )
    with pytest.raises(StudyError, match=message):
        load_study(text, file="study.yaml")
