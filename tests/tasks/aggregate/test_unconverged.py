"""Values that are not converged, by the verdict or the flag of their nodes.

All tables count them, and leave them out if asked; captions of figures tell of them.
"""

import numpy as np
import pytest

from curvflow.flows.graph.graph import expand
from curvflow.flows.graph.open_study import open_study
from curvflow.schemas.kinds import find_kind
from curvflow.tasks.statistics.measurements import drop_unjudged_counts, measurements
from tests.tasks.measured_nodes import compute, node, toy_kinds

RULES, SEEDS = ("sgd", "adam"), range(4)
# At seed 1 that of adam drifts, at seed 2 those of both.
DRIFTING = {("adam", 1), ("adam", 2), ("sgd", 2)}
ASKED = {
    "aggregate.summary": {"over": ["rule", "seed"], "quantities": "wbic"},
    "aggregate.compare": {
        "along": "rule",
        "baseline": "sgd",
        "over": "seed",
        "quantities": "wbic",
        "num_resamples": 100,
    },
    "aggregate.correlate": {
        "x": "training_loss",
        "y": "wbic",
        "over": "seed",
        "within": ["rule"],
        "coefficients": ["kendall"],
        "num_resamples": 100,
    },
    "aggregate.rank": {"along": "rule", "over": "seed", "lower_is_better": "wbic"},
    "aggregate.best": {
        "along": "rule",
        "by": "training_loss",
        "goal": "min",
        "report": "wbic",
        "over": "seed",
    },
    "aggregate.scaling": {
        "y": "wbic",
        "along": "seed",
        "label": "rule",
        "num_resamples": 100,
    },
}
# Of each row: values counted, and those that are not converged.
KNOWN = {
    "aggregate.summary": ([8], [3], [5]),
    "aggregate.compare": ([4], [2], [2]),
    "aggregate.correlate": ([4, 4], [1, 2], [3, 2]),
    "aggregate.rank": ([4, 4], [1, 2], [4, 4]),
    "aggregate.best": ([4, 4], [0, 1], [4, 3]),
    "aggregate.scaling": ([4, 4], [1, 2], [3, 2]),
}


@pytest.fixture(autouse=True)
def _toys():
    with toy_kinds():
        yield


def nodes(drifting=DRIFTING):
    return [
        node(
            {"rule": rule, "seed": seed + 1},
            stage="wbic",
            kind="probe.wbic",
            wbic=1e6 if (rule, seed) in drifting else 2.0 + seed + len(rule),
            wbic_sem=0.1,
            training_loss=1.0 + seed * (seed - 2.5) + len(rule),
            verdict="drifting" if (rule, seed) in drifting else "converged",
        )
        for rule in RULES
        for seed in SEEDS
    ]


@pytest.mark.parametrize("name", sorted(ASKED))
def test_what_is_not_converged_is_counted_and_taken_as_it_is(name):
    count, unconverged, _ = KNOWN[name]
    table = compute(name, nodes(), **ASKED[name]).arrays
    assert table["count"].tolist() == count
    assert table["unconverged"].tolist() == unconverged
    assert (table["nonfinite"] == 0).all()


@pytest.mark.parametrize("name", sorted(ASKED))
def test_what_is_not_converged_is_left_out_on_request_and_still_counted(name):
    _, unconverged, count = KNOWN[name]
    table = compute(name, nodes(), **ASKED[name], unconverged="exclude").arrays
    assert table["count"].tolist() == count
    assert table["unconverged"].tolist() == unconverged
    assert table["nonfinite"].tolist() == unconverged
    for column in ("mean", "mean_value", "label_mean", "prefactor"):
        assert np.nanmax(table.get(column, [0])) < 1e3


@pytest.mark.parametrize("name", sorted(ASKED))
def test_tables_of_what_has_no_verdict_are_as_they_were(name):
    renamed = {"wbic": "curvature", "training_loss": "trace"}
    asked = {
        field: renamed.get(value, value) if isinstance(value, str) else value
        for field, value in ASKED[name].items()
    }
    of = [
        node(run.coords, kind="toy.other", curvature=run["wbic"], trace=run["wbic"])
        for run in nodes()
    ]
    plain, excluded = (
        compute(name, of, **asked, unconverged=how).arrays
        for how in ("count", "exclude")
    )
    declared = {v.name for v in find_kind(name).outputs if not v.optional}
    assert set(plain) == declared
    for column, values in plain.items():
        np.testing.assert_array_equal(values, excluded[column])


def test_the_candidates_of_a_choice_say_what_is_not_converged():
    asked = {**ASKED["aggregate.best"], "by": "wbic", "report": "penalty"}
    table = compute("aggregate.best", nodes(), **asked).arrays
    assert table["candidate_unconverged"].tolist() == [1, 2]


def test_means_of_unpaired_labels_count_both_sides():
    asked = {**ASKED["aggregate.compare"], "paired": False}
    assert compute("aggregate.compare", nodes(), **asked).arrays["unconverged"] == [3]


def test_what_diverged_is_not_counted_twice():
    of = nodes()
    gone = node(
        {"rule": "sgd", "seed": 9},
        stage="wbic",
        kind="probe.wbic",
        diverged=True,
        verdict="failed",
    )
    table = compute("aggregate.summary", [*of, gone], **ASKED["aggregate.summary"])
    assert table.arrays["unconverged"].tolist() == [3]
    assert table.arrays["diverged"].tolist() == [1]


DRAWN = {
    "figure.bars": {"y": ["wbic", "wbic_sem"], "label": "rule", "over": "seed"},
    "figure.lines": {"y": "wbic", "x": "seed", "label": "rule"},
    "figure.heatmap": {"z": "wbic", "x": "seed", "y": "rule"},
    "figure.scaling": {"y": "wbic", "along": "seed", "label": "rule"},
    "figure.scatter": {"x": "wbic", "y": "training_loss", "label": "rule"},
}


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_captions_say_what_is_not_converged_if_anything_is(name):
    partly, none = (
        str(compute(name, of, **DRAWN[name]).arrays["caption"])
        for of in (nodes(), nodes(drifting=()))
    )
    hollow = name in ("figure.lines", "figure.scatter")
    what = "drawn hollow" if hollow else "drawn all the same"
    assert f"Not converged, {what}: 3 of 8 nodes." in partly
    assert "onverged" not in none


# Of the first two of three eigenvalues at four seeds.
FOUND = [(True, True), (True, False), (True, False), (True, True)]


def spectra():
    return [
        node(
            {"seed": seed, "rule": rule},
            stage="eigen",
            kind="probe.eigenvalues",
            rank=[1, 2, 3],
            eigenvalues=[9.0, 5.0 if second else 1e6, 1.0],
            converged=[first, second, False],
        )
        for rule in RULES
        for seed, (first, second) in enumerate(FOUND)
    ]


def test_every_eigenvalue_is_judged_by_its_own_flag():
    asked = {"over": ["rule", "seed"], "quantities": "eigenvalues"}
    kept, excluded = (
        compute("aggregate.summary", spectra(), **asked, unconverged=how).arrays
        for how in ("count", "exclude")
    )
    for table in (kept, excluded):
        assert table["unconverged"].tolist() == [0, 4, 8]
    assert kept["count"].tolist() == [8, 8, 8]
    assert excluded["count"].tolist() == [8, 4, 0]
    np.testing.assert_array_equal(excluded["mean"], [9, 5, np.nan])


def test_pairs_of_eigenvalues_are_judged_by_their_own_flags():
    asked = {**ASKED["aggregate.compare"], "quantities": "eigenvalues"}
    kept, excluded = (
        compute("aggregate.compare", spectra(), **asked, unconverged=how).arrays
        for how in ("count", "exclude")
    )
    for table in (kept, excluded):
        assert table["unconverged"].tolist() == [0, 2, 4]
    assert excluded["count"].tolist() == [4, 2, 0]


def test_each_number_is_judged_by_the_flag_that_is_about_it():
    of = [
        node(
            {"seed": seed},
            kind="probe.sharpness",
            converged=seed > 0,
            critical_converged=seed > 1,
        )
        for seed in range(4)
    ]
    names = ["sharpness", "residual", "critical_lr"]
    table = compute("aggregate.summary", of, over="seed", quantities=names).arrays
    assert table["quantity"].tolist() == names
    assert table["unconverged"].tolist() == [1, 0, 2]


def test_where_nothing_is_judged_the_columns_that_count_it_go_and_no_others():
    table = {name: np.zeros(1) for name in ("mean", "unconverged", "num_unconverged")}
    plain = measurements([node({}, kind="toy.other")])
    assert [*drop_unjudged_counts(plain, table)] == ["mean", "num_unconverged"]


STUDY = """
study: judged
axes: {seed: 3, two: 2}
stages:
  xor: {use: data.xor}
  fit: {use: train, data: xor, model: {kind: mlp, hidden: [3]}, seed: "${seed}",
        rule: {rule: sgd, lr: 0.1}, epochs: 2}
  llc: {use: probe.llc, weights: fit, seed: "${two}"}
  judged: {use: aggregate.summary, of: llc, over: [seed, two], quantities: llc_mean}
  axis: {use: aggregate.compare, of: llc, along: seed, baseline: 0, over: two,
         quantities: llc_mean}
  sure: {use: aggregate.summary, of: llc, over: [seed, two], quantities: init_loss}
  drawn: {use: figure.bars, of: llc, y: llc_mean, over: [seed, two]}
  joined: {use: aggregate.join, of: [llc], rows: [seed, two], quantities: llc_mean}
  eigen: {use: probe.eigenvalues, weights: fit, k: 2}
  values: {use: aggregate.summary, of: eigen, over: seed, quantities: eigenvalues}
  bounds: {use: aggregate.summary, of: eigen, over: seed, quantities: residuals}
"""


def test_verdicts_are_taken_where_they_are_reported_and_nowhere_else(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    opened = open_study(path, store="memory:")
    graph = expand(opened.study, opened.files)
    parts = {
        stage: graph.nodes[stage][0].inputs["of"][0].parts
        for stage in ("judged", "axis", "sure", "drawn", "joined", "values", "bounds")
    }
    assert parts == {
        "judged": ("llc_mean", "verdict"),
        "axis": ("llc_mean", "verdict", "nbeta", "localization"),
        "sure": ("init_loss",),
        "drawn": ("llc_mean", "verdict", "localization"),
        "joined": ("llc_mean",),
        "values": ("rank", "eigenvalues", "converged"),
        "bounds": ("rank", "residuals"),
    }
