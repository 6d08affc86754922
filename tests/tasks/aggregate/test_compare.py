"""Differences from a baseline, as a table of nodes."""

import numpy as np
import pytest
from pydantic import ValidationError
from scipy import stats

from curvflow.errors import InputError, StudyError
from curvflow.schemas.keys import form
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.aggregate.compare import CompareParams
from curvflow.schemas.nodes import Absent, Member
from curvflow.schemas.study.study import load_study
from curvflow.tasks.registry import Machine, find
from tests.tasks.measured_nodes import compute, node, toy_kinds

KIND = "aggregate.compare"
FEW = {"num_resamples": 100}
BASE = np.array([1.0, 2.0, 4.0, 3.0, 2.5])
ABOVE = np.array([0.5, 0.1, 0.9, -0.2, 0.3])


@pytest.fixture(autouse=True)
def _toys():
    with toy_kinds():
        yield


def table(of, **params):
    """Return the rows by quantity."""
    given = {"along": "rule", "baseline": "sgd", "over": "seed", **FEW, **params}
    arrays = compute(KIND, of, **given).arrays
    names = arrays["quantity"].tolist()
    assert len(set(names)) == len(names)
    return {
        name: {field: values[row].item() for field, values in arrays.items()}
        for row, name in enumerate(names)
    }


def trace(rule, seed, value, **coords):
    return node({"rule": rule, "seed": seed, **coords}, trace=value)


def pairs(rule="ngd", base=BASE, above=ABOVE, **coords):
    sgd = [trace("sgd", s, v, **coords) for s, v in enumerate(base)]
    ngd = [trace(rule, s, v, **coords) for s, v in enumerate(base + above)]
    return sgd + ngd


def test_pairs_are_compared_seed_by_seed():
    row = table(pairs(), quantities="trace")["trace: ngd - sgd"]
    test = stats.ttest_rel(BASE + ABOVE, BASE)
    low, high = test.confidence_interval(0.95)
    assert row["p_t"] == pytest.approx(test.pvalue, rel=1e-9)
    assert [row["low"], row["high"]] == pytest.approx([low, high])
    assert row["mean"] == pytest.approx(ABOVE.mean())
    assert row["label_mean"] - row["baseline_mean"] == pytest.approx(row["mean"])
    assert row["bootstrap_low"] < row["mean"] < row["bootstrap_high"]
    assert (row["count"], row["baseline_count"], row["above"]) == (5, 5, 4)
    assert (row["label"], row["units"]) == ("ngd", "loss / parameter^2")


@pytest.mark.parametrize("unit", [1e-18, 1e18])
def test_a_comparison_does_not_depend_on_the_unit(unit):
    (here,) = table(pairs(), quantities="trace").values()
    scaled = pairs(base=BASE * unit, above=ABOVE * unit)
    (there,) = table(scaled, quantities="trace").values()
    assert there["p_t"] == pytest.approx(here["p_t"], rel=1e-9)
    assert there["mean"] == pytest.approx(here["mean"] * unit, rel=1e-9)


def llc(rule, seed, gamma, nbeta=30.0, value=1.0, verdict="converged"):
    return node(
        {"rule": rule, "seed": seed},
        stage="llc",
        kind="probe.llc",
        llc_mean=value,
        verdict=verdict,
        localization=gamma,
        nbeta=nbeta,
    )


def sides(gammas, nbetas=(30.0, 30.0)):
    return [
        llc(rule, seed, gamma, nbeta, value=1.0 + seed)
        for rule, rule_gammas, nbeta in zip(("sgd", "ngd"), gammas, nbetas, strict=True)
        for seed, gamma in enumerate(rule_gammas)
    ]


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize(
    ("of", "text"),
    [
        (sides([(2.0, 2.0, 2.0), (2.0, 2.0, 2.0 * (1 + 1e-14))]), ""),
        (sides([(2.0, 0.25, 2.0), (2.0, 40.0, 2.0)]), "localization 0.25 to 40"),
        (sides([(2.0, 2.0)] * 2, (30.0, 60.0)), "nbeta 30 to 60"),
        (
            sides([(0.0, 2.0)] * 2, (30.0, 60.0)),
            "localization 0 to 2; nbeta 30 to 60",
        ),
    ],
)
def test_estimates_made_at_different_settings_are_reported(of, text, paired):
    asked = {"quantities": ["llc_mean", "r_hat"], "paired": paired}
    rows = table(of, **asked)
    assert rows["llc_mean: ngd - sgd"]["differing_settings"] == text
    # It is the estimates that depend on them.
    assert rows["r_hat: ngd - sgd"]["differing_settings"] == ""


def test_settings_of_what_is_not_compared_are_not_reported():
    of = sides([(2.0, 2.0, 2.0), (2.0, 2.0, 9.0)])
    of[2] = llc("sgd", 2, 2.0, value=np.nan)
    assert (
        table(of, quantities="llc_mean")["llc_mean: ngd - sgd"]["differing_settings"]
        == ""
    )
    assert (
        "differing_settings"
        not in compute(
            KIND,
            of,
            **{"along": "rule", "baseline": "sgd", "over": "seed", **FEW},
            quantities="r_hat",
        ).arrays
    )


def test_the_order_of_the_nodes_changes_no_bit():
    assert table(pairs()[::-1], quantities="trace") == table(
        pairs(), quantities="trace"
    )


def test_unpaired_means_are_compared_by_welch():
    of = [*pairs(), trace("ngd", 9, 7.0)]
    row = table(of, quantities="trace", paired=False)["trace: ngd - sgd"]
    test = stats.ttest_ind([*(BASE + ABOVE), 7.0], BASE, equal_var=False)
    assert row["p_t"] == pytest.approx(test.pvalue, rel=1e-9)
    assert (row["count"], row["baseline_count"], row["above"]) == (6, 5, -1)
    assert np.isnan(row["sd"])


@pytest.mark.parametrize("paired", [True, False])
def test_what_is_left_out_is_counted(paired):
    of = pairs()
    of[1] = node({"rule": "sgd", "seed": 1}, trace=9.0, diverged=True)
    of[7] = trace("ngd", 2, np.nan)
    of.append(trace("ngd", 7, 1.0))
    row = table(of, quantities="trace", paired=paired)["trace: ngd - sgd"]
    counts = [row[name] for name in ("count", "diverged", "nonfinite", "missing")]
    assert counts == ([3, 1, 1, 1] if paired else [5, 1, 1, 0])


def test_elements_that_one_side_lacks_are_missing():
    of = [
        node({"rule": r, "seed": s}, eigenvalues=np.arange(1.0, 2 + (r == "ngd")))
        for r in ("sgd", "ngd")
        for s in range(3)
    ]
    rows = table(of, quantities="eigenvalues")
    counts = {n: (r["count"], r["missing"]) for n, r in rows.items()}
    assert counts == {
        "eigenvalues[0]: ngd - sgd": (3, 0),
        "eigenvalues[1]: ngd - sgd": (0, 3),
    }


def test_where_all_diverged_the_row_stays_and_holds_nan():
    of = [
        node({"rule": r, "seed": s}, diverged=True)
        for r in ("sgd", "ngd")
        for s in range(2)
    ]
    row = table(of, quantities="trace")["trace: ngd - sgd"]
    assert (row["count"], row["diverged"]) == (0, 2)
    assert np.isnan([row["mean"], row["low"], row["p_t"], row["p_t_holm"]]).all()


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("baseline", ["none", "low"])
def test_a_label_without_an_optional_variable_counts_as_missing(paired, baseline):
    of = [
        node({"until": until, "seed": s}, stage="fit", kind="train", final_train_loss=s)
        for until in ("none", "low")
        for s in range(3)
    ]
    for row_node in of[:3]:
        del row_node.arrays["reached"]
    for row_node in of[3:]:
        row_node.arrays["reached"] = np.array(True)
    given = {"along": "until", "baseline": baseline, "quantities": "reached"}
    (row,) = table(of, paired=paired, **given).values()
    assert (row["missing"], row["diverged"]) == (3, 0)
    assert np.isnan([row["mean"], row["p_t"]]).all()


def test_a_baseline_alone_is_refused_by_the_name_of_its_axis():
    with pytest.raises(InputError, match="along: expected at least two labels of rule"):
        table([trace("sgd", 0, 1.0), trace("sgd", 1, 2.0)], quantities="trace")


@pytest.mark.parametrize("lost", ["sgd", "ngd"])
def test_a_side_of_which_all_failed_is_named_with_the_reason(lost):
    of = [one for one in pairs() if one.coords["rule"] != lost]
    absent = [Absent(of[0].stage, {"rule": lost, "seed": seed}) for seed in range(5)]
    params = CompareParams(along="rule", baseline="sgd", over="seed", **FEW)
    member = Member(params, {"of": of}, absent={"of": absent})
    message = f"results of probe to compare at rule {lost}, got none: 5 nodes failed"
    with pytest.raises(InputError, match=message):
        find(KIND).compute([member], Machine())


def test_labels_and_groups_have_rows_of_their_own_in_one_family():
    random = np.random.default_rng(2)
    of = [
        trace(rule, seed, 0.4 * (rule != "sgd") + random.normal(), width=width)
        for width in (8, 16)
        for rule in ("sgd", "ngd", "adam")
        for seed in range(6)
    ]
    rows = table(of, quantities="trace", within=["width"])
    assert list(rows) == [
        "trace: ngd - sgd, width=8",
        "trace: adam - sgd, width=8",
        "trace: ngd - sgd, width=16",
        "trace: adam - sgd, width=16",
    ]
    p = sorted(row["p_t"] for row in rows.values())
    holm = sorted(row["p_t_holm"] for row in rows.values())
    assert holm[0] == pytest.approx(min(1, 4 * p[0]))
    alone = table([n for n in of if n.coords["width"] == 8], quantities="trace")
    assert alone["trace: ngd - sgd"]["p_t"] == rows["trace: ngd - sgd, width=8"]["p_t"]


def test_every_declared_column_is_there_in_its_type():
    given = {"along": "rule", "baseline": "sgd", "over": "seed", **FEW}
    arrays = compute(KIND, pairs(), **given).arrays
    outputs = [v for v in find_kind(KIND).outputs if not v.optional]
    assert set(arrays) == {v.name for v in outputs}
    for variable in outputs:
        array = arrays[variable.name]
        assert array.shape == arrays["quantity"].shape
        is_text = variable.dtype == "str"
        assert array.dtype.kind == "U" if is_text else array.dtype == variable.dtype


def test_a_name_that_two_stages_have_bears_the_stage():
    of = [*pairs(), *(node(n.coords, stage="b", trace=0.0) for n in pairs())]
    assert set(table(of, quantities="trace")) == {
        "probe.trace: ngd - sgd",
        "b.trace: ngd - sgd",
    }


def test_a_baseline_that_no_node_has_is_refused():
    with pytest.raises(InputError, match="baseline: expected a label of rule, got 's'"):
        table(pairs(), baseline="s")


def test_one_axis_and_a_list_of_it_have_one_key():
    given = {"along": "rule", "baseline": "sgd"}
    as_text, several = (
        CompareParams(over=over, **given) for over in ("seed", ["seed"])
    )
    assert form(as_text) == form(several)


@pytest.mark.parametrize(
    "wrong", [{"over": []}, {"confidence": 1.0}, {"num_resamples": 10}, {"along": None}]
)
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(ValidationError):
        CompareParams(**{"along": "rule", "baseline": "sgd", "over": "seed", **wrong})


STUDY = """
study: compared
axes: {{seed: 3, rule: {{sgd: {{rule: sgd, lr: 0.1}}, adam: {{rule: adam, lr: 0.1}}}}}}
stages:
  data: {{use: data.xor}}
  fit: {{use: train, data: data, model: {{kind: linear}}, rule: "${{rule}}",
        seed: "${{seed}}", epochs: 2}}
  compared: {{use: aggregate.compare, of: fit, {given}}}
"""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "along: rule, baseline: sdg, over: seed",
            r"study.yaml:\d+:\d+: stages.compared.baseline: expected a label of axis "
            "'rule', got 'sdg'. Did you mean 'sgd'",
        ),
        (
            "along: epoch, baseline: 0, over: seed",
            r"stages.compared.along: expected a dimension of 'fit', got 'epoch'",
        ),
        (
            "along: rule, baseline: sgd, over: seed, within: [rule]",
            r"within.0: expected each axis once, got 'rule'",
        ),
        (
            "along: seed, baseline: '0', over: rule",
            r"stages.compared.baseline: expected a label of axis 'seed', got '0'. "
            r"Write 0\.",
        ),
        (
            "along: rule, baseline: sgd, over: seed, quantities: network",
            r"quantities: expected a number of the stages taken, got 'network'",
        ),
    ],
)
def test_wrong_names_are_refused_while_planning(given, message):
    with pytest.raises(StudyError, match=message):
        load_study(STUDY.format(given=given), file="study.yaml")


def test_an_axis_of_one_label_is_refused_while_planning():
    given = "along: rule, baseline: sgd, over: seed"
    text = STUDY.format(given=given).replace(", adam: {rule: adam, lr: 0.1}", "")
    message = (
        r"study.yaml:\d+:\d+: stages.compared.along: expected an axis of two labels"
    )
    with pytest.raises(StudyError, match=message):
        load_study(text, file="study.yaml")


def test_axes_compared_and_averaged_over_are_no_dimensions_any_more():
    given = "along: rule, baseline: sgd, over: seed"
    study = load_study(STUDY.format(given=given), file="study.yaml")
    assert study.stages["compared"].dims == ()
