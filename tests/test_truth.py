"""The harness that holds kinds against known truths notices what it should."""

import math
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from benchmarks import truth
from benchmarks.posteriors import model
from curvflow.schemas.kinds import all_kinds, find_kind

POSTERIOR = 46  # a case whose chains are short
CASE = truth.Compared("trace.trace", 7, 3.0, 2.0, 0.5, 2.2, 3.8, True)


@pytest.fixture(scope="module")
def numbers():
    """Return the numbers of some cases of each sort."""
    left, found = {"data": 1, "matrix": 2, "graph": 1}, truth.run(POSTERIOR)
    for case in range(100):
        sort = next(iter(truth.study(case)[0]["stages"]))
        if left.get(sort, 0) > 0:
            left[sort] -= 1
            found += truth.run(case)
    return found


def test_every_kind_that_declares_its_truth_is_compared(numbers):
    compared = {one.variable.partition(".")[0] for one in numbers}
    declared = {
        name.removeprefix("probe.")
        for name, kind in all_kinds().items()
        if kind.truth is not None
    }
    assert declared - {"hessian_trace", "sharpness"} <= compared - {"llc"} <= declared
    assert "llc" in compared


def test_stated_errors_are_of_the_size_of_true_ones(numbers):
    assert np.mean([one.is_covered for one in numbers]) > 0.85
    assert np.median([one.z for one in numbers]) < 1.5


def test_an_interval_that_misses_is_noticed():
    assert not CASE.is_covered
    assert CASE.z == pytest.approx(2, abs=1e-5)
    assert CASE.is_right
    near = truth.Compared("trace.trace", 7, 3.0, 2.5, 0.5, 2.2, 3.8, True)
    assert near.is_covered
    exact = truth.Compared("trace.trace", 7, 3.0, 2.0, 0.0, 3.0, 3.0, True)
    assert math.isinf(exact.z)
    assert not exact.is_right


def test_the_table_has_shares_with_binomial_intervals_and_the_worst_case(capsys):
    truth.report([CASE, truth.Compared("trace.trace", 9, 2.0, 2.0, 0.5, 1, 3, None)])
    *_, row = capsys.readouterr().out.splitlines()
    assert row == (
        "| trace.trace | 2 | 50.0 (1.3 to 98.7) | 1.00 | 50 | 0.0 (0.0 to 97.5) "
        "| 100.0 (2.5 to 100.0) | 100.0 (2.5 to 100.0) | 2.0 | `--case 7` |"
    )


def test_a_flag_of_a_rule_is_held_to_what_it_says_of_the_rule():
    says = {"x": 3.0, "x_vectors": 0.1}
    near, far = (
        truth.off((1.0, 0.01), "x", says, {"x": exact}) for exact in (3.05, 3.2)
    )
    assert truth.off((1.0, 0.01), "x", {"x": 0.0, "x_vectors": 0.0}, {"x": 0.0}) == [0]
    assert near == [pytest.approx(0.5, abs=1e-5)]
    assert far == [pytest.approx(2.0, abs=1e-5)]
    for (off,), is_right in ((near, True), (far, False)):
        assert replace(CASE, off=off).is_right == is_right


def test_rules_are_exact_where_they_should_be(numbers):
    judged = [one for one in numbers if not math.isnan(one.off)]
    assert {one.variable.partition(".")[0] for one in judged} == {
        "effective_dimension",
        "logdet",
        "graph_functionals",
    }
    assert all(one.off <= 1 for one in judged if one.converged)


def test_random_posteriors_are_of_every_law_and_size():
    drawn = [model(np.random.default_rng(case)) for case in range(60)]
    kinds = {spec["kind"] for spec, _ in drawn}
    assert kinds == {"normal_crossing", "quadratic_well", "deep_linear"}
    ranks = [sizes["rank"] for _, sizes in drawn if sizes]
    assert 0 in ranks
    assert max(ranks) > 1


def test_equal_cases_are_equal_studies():
    for case in range(20):
        assert truth.study(case)[0] == truth.study(case)[0]


def test_cases_of_one_sort_are_those_of_all_without_the_others():
    drawn = list(islice(truth.cases(3, None), 40))
    kept = [
        [case for case in drawn if "graph" in truth.study(case)[0]["stages"]],
        list(islice(truth.cases(3, "graphs"), 2)),
    ]
    assert kept[0][:2] == kept[1]


def test_a_bound_that_does_not_hold_what_is_wanted_is_a_wrong_flag():
    kind = find_kind("probe.eigenvalues")
    stated = {"eigenvalues": [3.0, 2.0], "residuals": [1e-3, 1e-3]}
    stated["converged"] = [True, True]
    top, second = truth.compared(1, kind, "eigenvalues", stated, [3.0005, 2.0015])
    assert top.is_right
    assert not second.is_right


FORMULAS = {
    "logdet": ({"damping": 1.0}, np.log(2 * 3 * 5)),
    "effective_dimension": ({"prior_precision": [1.0]}, [1 / 2 + 2 / 3 + 4 / 5]),
    "moments": ({"basis": "power", "num_moments": 2}, [1, 7 / 3, 7]),
    "eigenvalues": ({"k": 2, "which": "SA", "method": "lanczos"}, [1, 2]),
    "sharpness": ({}, 4),
    "cumulative": ({}, [0, 1 / 3, 1]),
    "heat_trace": ({"times": [1.0]}, [np.exp(-np.array([1, 2, 4])).sum()]),
}
KINDS = {"cumulative": "kpm", "heat_trace": "graph_functionals"}


@pytest.mark.parametrize("name", FORMULAS)
def test_truths_are_those_of_the_formula(name):
    values = np.array([1.0, 2.0, 4.0])
    given, expected = FORMULAS[name]
    declared = find_kind(f"probe.{KINDS.get(name, name)}")
    params = declared.params.model_validate(given)
    found = declared.truth(params, values, {"grid": np.array([0.5, 1.5, 5.0])})
    np.testing.assert_allclose(found[name], expected)


def test_trees_and_resistances_of_a_path_are_those_of_its_laplacian():
    declared = find_kind("probe.graph_functionals")
    names = ["log_trees", "kirchhoff_index"]
    given = {"operator": "laplacian", "functionals": names}
    params = declared.params.model_validate(given)
    found = declared.truth(params, np.array([0.0, 1.0, 3.0]), {})  # of three nodes
    assert found["log_trees"] == pytest.approx(0, abs=1e-12)  # one tree
    assert found["kirchhoff_index"] == pytest.approx(1 + 1 + 2)
