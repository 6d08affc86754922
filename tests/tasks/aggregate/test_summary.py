import numpy as np
import pytest
from pydantic import ValidationError
from scipy import stats

import curvflow
from curvflow.errors import InputError
from curvflow.schemas.keys import form
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.aggregate.summary import SummaryParams
from curvflow.tasks.statistics.bootstrap import Resampling
from curvflow.tasks.statistics.descriptive import mean_interval
from tests.tasks.measured_nodes import compute, node, toy_kinds

COLUMNS = ["mean", "sd", "sem", "low", "high"]
FURTHER = ["median", "min", "max", "geometric_mean", "interquartile_mean", "mad"]
ALL = {
    "statistics": [*FURTHER, "missing"],
    "quantiles": [0.1, 0.9],
    "interval": "bootstrap",
    "num_resamples": 200,
}
BOOTSTRAP = {"interval": "bootstrap", "bootstrap": "percentile", "num_resamples": 400}
VALUES = np.array([1.0, 2.0, 4.0, 8.0, 3.0, 11.0, 5.0, 0.5])


@pytest.fixture(autouse=True)
def _toys():
    with toy_kinds():
        yield


def table(of, **params):
    """Return the summary's rows by quantity."""
    arrays = compute("aggregate.summary", of, over="seed", **params).arrays
    names = arrays["quantity"].tolist()
    return {
        name: {field: values[row].item() for field, values in arrays.items()}
        for row, name in enumerate(names)
    }


def test_the_statistics_are_those_of_the_values():
    values = [1.0, 2.0, 4.0, 8.0]
    row = table([node({"seed": s}, trace=v) for s, v in enumerate(values)])["trace"]
    low, high = stats.t.interval(0.95, 3, loc=3.75, scale=stats.sem(values))
    expected = [3.75, np.std(values, ddof=1), stats.sem(values), low, high]
    assert [row[name] for name in COLUMNS] == pytest.approx(expected, rel=1e-12)
    assert (row["count"], row["diverged"], row["nonfinite"]) == (4, 0, 0)
    assert row["units"] == "loss / parameter^2"


def test_the_confidence_is_that_requested():
    of = [node({"seed": s}, trace=float(s)) for s in range(5)]
    narrow, wide = (table(of, confidence=c)["trace"] for c in (0.5, 0.99))
    assert wide["low"] < narrow["low"] < narrow["high"] < wide["high"]


def test_every_declared_column_is_there_in_its_type():
    of = [node({"seed": 0}, trace=1.0, eigenvalues=[2.0, 1.0])]
    plain = compute("aggregate.summary", of, over=["seed"]).arrays
    declared = find_kind("aggregate.summary").outputs
    # Of what is judged, and of what has failed.
    others = ("unconverged", "failed")
    outputs = [v for v in declared if v.name not in others]
    assert set(plain) == {v.name for v in outputs if not v.optional}
    arrays = compute("aggregate.summary", of, over=["seed"], **ALL).arrays
    assert set(arrays) == {v.name for v in outputs}
    for variable in outputs:
        array = arrays[variable.name]
        shape = tuple(len(arrays[dim]) for dim in variable.dims)
        assert array.shape == shape
        is_text = variable.dtype == "str"
        assert array.dtype.kind == "U" if is_text else array.dtype == variable.dtype


def test_diverged_nodes_are_counted_and_never_averaged():
    of = [node({"seed": s}, trace=1.0) for s in range(3)]
    of.append(node({"seed": 3}, trace=1e9, diverged=True))
    of.append(node({"seed": 4}, diverged=True))
    row = table(of)["trace"]
    assert (row["mean"], row["sd"], row["count"], row["diverged"]) == (1.0, 0.0, 3, 2)


def test_where_all_diverged_the_row_stays_and_holds_nan():
    of = [node({"seed": s}, diverged=True) for s in range(2)]
    rows = table(of, quantities=["trace", "eigenvalues"])
    assert list(rows) == ["trace", "eigenvalues"]
    for row in rows.values():
        assert (row["count"], row["diverged"]) == (0, 2)
        assert np.isnan([row[name] for name in COLUMNS]).all()


def test_diverged_nodes_keep_the_rows_of_the_elements_they_hold():
    of = [node({"seed": 0}, eigenvalues=[np.nan, np.nan], diverged=True)]
    rows = table(of, quantities="eigenvalues")
    assert list(rows) == ["eigenvalues[0]", "eigenvalues[1]"]


def test_a_value_that_is_not_finite_is_left_out_and_counted():
    values = [1.0, np.nan, 3.0, np.inf]
    row = table([node({"seed": s}, trace=v) for s, v in enumerate(values)])["trace"]
    assert (row["mean"], row["count"], row["nonfinite"]) == (2.0, 2, 2)


@pytest.mark.parametrize("kind", ["bca", "percentile"])
def test_the_bootstrap_of_few_values_is_too_narrow(kind):
    random = np.random.default_rng(0)
    values_NE = random.normal(size=(5, 300))
    low, high = mean_interval(values_NE, 0.95, Resampling(kind, 400, 0))
    assert 0.75 < np.mean((low < 0) & (high > 0)) < 0.9


def test_one_node_has_a_mean_but_no_spread():
    row = table([node({"seed": 0}, trace=2.0)])["trace"]
    assert (row["mean"], row["count"]) == (2.0, 1)
    assert np.isnan([row[name] for name in COLUMNS[1:]]).all()


def test_booleans_become_shares_integers_numbers_and_text_is_skipped():
    of = [
        node({"seed": s}, converged=s > 0, steps=10 * s, note="word") for s in range(4)
    ]
    rows = table(of)
    assert rows["converged"]["mean"] == 0.75
    assert rows["steps"]["mean"] == 15.0
    assert "note" not in rows


def test_elements_are_named_by_their_labels_or_numbered():
    of = [
        node(
            {"seed": s},
            rank=[1, 2],
            eigenvalues=[3.0 + s, 1.0],
            layer=["0.weight", "0.bias"],
            layer_trace=[5.0, 6.0],
            blocks=[[1.0, 2.0], [3.0, 4.0]],
        )
        for s in range(2)
    ]
    rows = table(of)
    means = {name: row["mean"] for name, row in rows.items() if "[" in name}
    assert means == {
        "eigenvalues[1]": 3.5,
        "eigenvalues[2]": 1.0,
        "layer_trace[0.weight]": 5.0,
        "layer_trace[0.bias]": 6.0,
        "blocks[0.weight,0]": 1.0,
        "blocks[0.weight,1]": 2.0,
        "blocks[0.bias,0]": 3.0,
        "blocks[0.bias,1]": 4.0,
    }


def test_elements_of_nodes_with_other_labels_are_set_apart():
    of = [
        node({"seed": s}, epoch=[0, 5 * (s + 1)], train_loss=[1.0, 0.5])
        for s in range(2)
    ]
    rows = table(of, quantities="train_loss")
    counts = {name: row["count"] for name, row in rows.items()}
    assert counts == {"train_loss[0]": 2, "train_loss[5]": 1, "train_loss[10]": 1}


def test_elements_whose_labels_repeat_are_numbered():
    of = [node({"seed": 0}, rank=[1, 1], eigenvalues=[3.0, 2.0])]
    rows = table(of, quantities="eigenvalues")
    means = {name: row["mean"] for name, row in rows.items()}
    assert means == {"eigenvalues[0]": 3.0, "eigenvalues[1]": 2.0}


def test_an_element_that_only_some_nodes_have_counts_those():
    of = [node({"seed": s}, eigenvalues=np.arange(s + 1.0)) for s in range(3)]
    rows = table(of, quantities=["eigenvalues"])
    assert [row["count"] for row in rows.values()] == [3, 2, 1]
    assert [row["nonfinite"] for row in rows.values()] == [0, 0, 0]


def test_series_and_files_are_left_out_unless_named():
    of = [node({"seed": 0}, trace=1.0, train_loss=[1.0, 0.5], picture=[1, 2])]
    assert not [name for name in table(of) if name.startswith(("train", "pic"))]
    assert list(table(of, quantities="train_loss")) == [
        "train_loss[0]",
        "train_loss[1]",
    ]


def test_a_name_that_two_stages_have_bears_the_stage():
    of = [
        node({"seed": 0}, trace=1.0),
        node({"seed": 0}, stage="second", kind="toy.other", trace=2.0, curvature=3.0),
    ]
    rows = table(of, quantities=["trace", "curvature"])
    means = {name: row["mean"] for name, row in rows.items()}
    assert means == {"probe.trace": 1.0, "second.trace": 2.0, "curvature": 3.0}


def test_each_quantity_uses_the_nodes_of_its_own_stage_once():
    of = [node({"seed": s}, trace=float(s)) for s in range(4)]
    alone = node({}, stage="second", kind="toy.other", curvature=3.0, trace=0.0)
    rows = table([*of, alone, alone, *of], quantities=["trace", "curvature"])
    assert rows["probe.trace"]["count"] == 4
    assert rows["curvature"]["count"] == 1


def test_the_order_of_the_nodes_changes_no_bit():
    values = np.random.default_rng(1).lognormal(size=9)
    of = [node({"seed": s}, trace=v) for s, v in enumerate(values)]
    assert table(of, quantities="trace") == table(of[::-1], quantities="trace")


def test_an_unknown_quantity_is_refused_with_the_nearest_name():
    with pytest.raises(InputError) as caught:
        table([node({"seed": 0}, trace=1.0)], quantities=["trase"])
    assert str(caught.value) == (
        "quantities: expected measured variables, got 'trase'. Did you mean 'trace'?"
    )


def test_text_is_no_quantity():
    with pytest.raises(InputError, match=r"quantities: expected .* got 'note'"):
        table([node({"seed": 0}, note="word")], quantities=["note"])


def test_one_axis_and_a_list_of_it_have_one_key():
    assert form(SummaryParams(over="seed")) == form(SummaryParams(over=["seed"]))


@pytest.mark.parametrize("wrong", [{}, {"over": "a", "confidence": 1.0}])
def test_parameters_without_an_axis_or_with_full_confidence_are_refused(wrong):
    with pytest.raises(ValidationError):
        SummaryParams(**wrong)


def rows_of(values, **params):
    of = [node({"seed": s}, trace=v) for s, v in enumerate(values)]
    return compute("aggregate.summary", of, over="seed", quantities="trace", **params)


def test_further_statistics_are_those_of_scipy():
    arrays = rows_of(VALUES, statistics=FURTHER, quantiles=[0.05, 0.5]).arrays
    expected = {
        "median": np.median(VALUES),
        "min": 0.5,
        "max": 11.0,
        "geometric_mean": stats.gmean(VALUES),
        "interquartile_mean": stats.trim_mean(VALUES, 0.25),
        "mad": stats.median_abs_deviation(VALUES),
    }
    for name, value in expected.items():
        assert arrays[name].tolist() == pytest.approx([value], rel=1e-12)
    assert arrays["quantile"].tolist() == [0.05, 0.5]
    np.testing.assert_allclose(arrays["value_at"], [np.quantile(VALUES, [0.05, 0.5])])
    low, high = np.exp(
        stats.t.interval(
            0.95, 7, loc=np.log(VALUES).mean(), scale=stats.sem(np.log(VALUES))
        )
    )
    limits = [arrays[f"geometric_mean_{end}"][0] for end in ("low", "high")]
    assert limits == pytest.approx([low, high], rel=1e-12)
    assert "median_low" not in arrays


@pytest.mark.parametrize("kind", ["bca", "percentile"])
def test_intervals_by_the_bootstrap_are_those_of_scipy(kind):
    given = {**ALL, "bootstrap": kind, "num_resamples": 999, "seed": 5}
    arrays = rows_of(VALUES, **given).arrays

    def known(statistic, values=VALUES):
        return stats.bootstrap(
            (np.sort(values),),
            statistic,
            n_resamples=999,
            method={"bca": "BCa"}.get(kind, kind),
            random_state=np.random.default_rng(5),
        ).confidence_interval

    def found(name):
        return [arrays[f"{name}{end}"].ravel()[0] for end in ("low", "high")]

    assert found("") == pytest.approx(list(known(np.mean)))
    assert found("median_") == pytest.approx(list(known(np.median)), nan_ok=True)
    logs = np.exp(known(np.mean, np.log(VALUES)))
    assert found("geometric_mean_") == pytest.approx(list(logs))
    at = known(lambda x, axis: np.quantile(x, 0.1, axis=axis))
    assert found("value_at_") == pytest.approx(list(at), nan_ok=True)


def test_intervals_by_the_bootstrap_cover_as_often_as_they_say():
    random = np.random.default_rng(0)
    covered, tries = 0, 150
    for _ in range(tries):
        of = random.exponential(1, 40)
        row = rows_of(of, statistics=["median"], **BOOTSTRAP).arrays
        covered += row["median_low"][0] < np.log(2) < row["median_high"][0]
    assert abs(covered / tries - 0.95) < 5 * (0.95 * 0.05 / tries) ** 0.5


def test_a_value_that_is_not_positive_leaves_no_geometric_mean():
    arrays = rows_of([1.0, 0.0, 2.0], statistics=["geometric_mean"]).arrays
    names = ["geometric_mean", "geometric_mean_low", "geometric_mean_high"]
    assert np.isnan([arrays[name][0] for name in names]).all()
    assert arrays["count"].tolist() == [3]


def test_where_all_diverged_further_statistics_are_nan():
    of = [node({"seed": s}, diverged=True) for s in range(2)]
    arrays = compute(
        "aggregate.summary", of, over="seed", quantities="trace", **ALL
    ).arrays
    for name in [*FURTHER, "low", "median_low", "value_at", "value_at_high"]:
        assert np.isnan(arrays[name]).all()
    assert arrays["diverged"].tolist() == [2]


def test_nodes_without_a_value_are_counted_as_missing():
    of = [node({"seed": s}, eigenvalues=np.arange(s + 1.0)) for s in range(3)]
    of.append(node({"seed": 3}, diverged=True))
    row = table(of, quantities="eigenvalues", statistics=["missing"])
    assert [row_of["missing"] for row_of in row.values()] == [0, 1, 2]
    fits = [
        node({"seed": s}, stage="fit", kind="train", reached=True) for s in range(3)
    ]
    del fits[0].arrays["reached"]
    rows = table(fits, quantities="reached", statistics=["missing"])
    assert rows["reached"]["missing"] == 1


@pytest.mark.parametrize("quantities", ["reached", None])
def test_what_diverged_is_counted_for_a_variable_that_not_every_node_has(quantities):
    of = [node({"seed": 0}, stage="fit", kind="train", reached=True)]
    of += [node({"seed": s}, stage="fit", kind="train", diverged=True) for s in (1, 2)]
    row = table(of, quantities=quantities, statistics=["missing"])["reached"]
    assert [row[n] for n in ("count", "diverged", "missing")] == [1, 2, 0]


def test_where_all_diverged_a_variable_that_not_every_node_has_keeps_its_row():
    of = [node({"seed": s}, stage="fit", kind="train", diverged=True) for s in (1, 2)]
    row = table(of, quantities="reached")["reached"]
    assert (row["count"], row["diverged"]) == (0, 2)


def test_parameters_at_their_defaults_leave_the_key_as_it_was():
    assert set(form(SummaryParams(over="seed"))) == {
        "over",
        "quantities",
        "confidence",
    }


@pytest.mark.parametrize("wrong", [[0.5, 0.2], [0.0], [1.0], [0.3, 0.3]])
def test_quantiles_out_of_order_or_range_are_refused(wrong):
    with pytest.raises(ValidationError, match="expected quantiles above 0 and below 1"):
        SummaryParams(over="seed", quantiles=wrong)


ALONE = """
study: single
axes: {axes}
stages:
  data: {{use: data.xor}}
  fit: {{use: train, data: data, model: {{kind: linear}}, epochs: 2, seed: {seed},
        rule: {{rule: sgd, lr: {rate}}}}}
  table: {{use: aggregate.summary, of: fit, over: [], quantities: final_train_loss}}
"""


@pytest.mark.parametrize("axes", ["{}", "{seed: 2}", "{seed: 2, rate: [0.1, 0.2]}"])
def test_over_nothing_each_node_has_a_table_of_its_own(tmp_path, axes):
    named = {"seed": 0, "rate": 1}
    named |= {name: f'"${{{name}}}"' for name in named if name in axes}
    text = ALONE.format(axes=axes, **named)
    (tmp_path / "study.yaml").write_text(text, encoding="utf-8")
    results = curvflow.run(tmp_path / "study.yaml")
    table, fit = results["table"], results["fit"]
    means = table["mean"].squeeze("quantity")
    assert means.dims == fit["final_train_loss"].dims
    np.testing.assert_array_equal(means, fit["final_train_loss"])
    assert (table["count"] == 1).all()
    assert table["sem"].isnull().all()
