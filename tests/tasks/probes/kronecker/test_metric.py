"""Learning coefficients by chains in the metric of Kronecker factors."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from curvflow.errors import InputError, StudyError
from curvflow.schemas.study.study import load_study
from curvflow.tasks.llc.targets import member_targets
from curvflow.tasks.numerics.sampling.measured_curvature import gradient_noise
from curvflow.tasks.registry import Machine
from tests.tasks.probes.kronecker.nets import as_factors, probed, trained
from tests.tasks.probes.learning_coefficients.test_llc import (
    GIVEN,
    continued,
    regular,
    well,
)
from tests.tasks.toys import assert_declared, compute, member

KIND = "probe.llc"
STEEP = [30.0, 3.0, 0.3, 0.03]


def factors_of(one):
    """The factors of a well, which are exact."""
    inputs = {name: one.one(name) for name in ("weights", "data")}
    return as_factors(
        compute("probe.factors", [member("probe.factors", {}, **inputs)])[0]
    )


def beside(one, factors):
    return replace(one, inputs={**one.inputs, "preconditioner": [factors]})


def reversed_well():
    """Factors that are large where the curvature of STEEP is small."""
    return factors_of(well(STEEP[::-1]))


BRIEF = {
    "nbeta": 2e3,
    "num_draws": 40,
    "num_chains": 2,
    "num_steps_bw_draws": 4,
    "num_burnin_steps": 150,
}


@pytest.mark.parametrize("method", ["mala", "sgld"])
def test_calibration_takes_exact_factors_and_chains_mix(method):
    longer = BRIEF | {"num_draws": 60, "num_steps_bw_draws": 8}
    plain = well(STEEP, sampling_method=method, **longer)
    both = [beside(plain, factors_of(plain)), plain]
    found, without = (compute(KIND, [each])[0] for each in both)
    assert_declared(KIND, found)
    found, without = found.arrays, without.arrays
    assert found["metric"] == "factors"
    np.testing.assert_allclose(found["metric_values"], 1.0, rtol=1e-9)
    assert found["factors_condition"] < 1.2
    assert found["condition"] > 50
    assert "teps take the metric of the factors" in str(found["reason"])
    assert "metric" not in without
    apart = found["llc_mean"] - regular(STEEP, found)
    assert abs(apart) < 4 * found["llc_sem"] + 2 * found["step_bias"]
    assert found["ess_bulk"] > 2 * without["ess_bulk"]
    assert found["localization"] < without["localization"]


@pytest.mark.parametrize("method", ["mala", "sgld"])
def test_a_metric_that_is_worse_is_not_taken_and_said(method):
    brief = BRIEF | {"num_draws": 12, "num_steps_bw_draws": 1, "keep_draws": True}
    plain = well(STEEP, sampling_method=method, **brief)
    both = [beside(plain, reversed_well()), plain]
    found, without = (compute(KIND, [each])[0].arrays for each in both)
    assert found["metric"] == "none"
    assert found["factors_condition"] > 100 * found["condition"]
    assert "he metric of the factors is not taken" in str(found["reason"])
    np.testing.assert_array_equal(found["draws"], without["draws"])
    assert found["calibration_equivalents"] > without["calibration_equivalents"]


def test_known_eigenvectors_are_better_than_factors():
    plain = well(STEEP, **BRIEF)
    both = [beside(plain, factors_of(plain)), plain]
    found, without = (compute(KIND, [each])[0].arrays for each in both)
    assert found["metric"] == "eigenvectors"
    np.testing.assert_array_equal(found["loss_trace"], without["loss_trace"])


def test_factors_are_better_than_some_eigenvectors():
    h = np.geomspace(1.0, 1e-4, 250)
    plain = well(h.tolist(), num_samples=300, **BRIEF)
    (found,) = compute(KIND, [beside(plain, factors_of(plain))])
    found = found.arrays
    assert found["metric"] == "factors"
    assert found["factors_condition"] < 1.2 < found["condition"]
    assert "whitening_vectors" not in found
    assert (found["metric_parts"] == 1).all()  # a bound


EXPLICIT = GIVEN | {
    "localization": 5.0,
    "nbeta": 50.0,
    "num_chains": 40,
    "num_draws": 30,
    "num_steps_bw_draws": 4,
    "num_burnin_steps": 100,
    "keep_draws": True,
    "lr": 0.5,
}
MILD = [2.0, 1.0, 0.5]


def test_a_metric_that_is_given_changes_no_law():
    one = well(MILD, **EXPLICIT | {"sampling_method": "mala"})
    wrong = factors_of(well(MILD[::-1]))
    (outcome,) = compute(KIND, [beside(one, wrong)])
    found = outcome.arrays
    assert found["metric"] == "factors"
    assert 0.2 < found["acceptance"] < 0.999
    assert abs(found["llc_mean"] - regular(MILD, found)) < 4 * found["llc_sem"]
    inputs = one.one("data")["inputs"]
    hessian = 2 * inputs.T @ inputs / len(inputs)
    exact = np.linalg.inv(50.0 * hessian + 5.0 * np.eye(3)).diagonal()
    squares = (found["draws"] ** 2).mean(1)
    sem = squares.std(0) / len(squares) ** 0.5
    assert (abs(squares.mean(0) - exact) < 4 * sem).all()


@pytest.mark.parametrize("method", ["mala", "sgld", "multiscale_mala"])
def test_draws_in_a_metric_go_on_bit_for_bit_whatever_their_siblings(method):
    given = EXPLICIT | {"num_chains": 2, "sampling_method": method, "lr": 0.05}
    one = well(MILD, **given)
    members = [beside(one, factors_of(well(h))) for h in (MILD, MILD[::-1])]
    longer = [
        replace(each, params=each.params.model_copy(update={"num_draws": 45}))
        for each in members
    ]
    whole = compute(KIND, longer)
    alone = compute(KIND, longer[1:])[0].arrays
    then = compute(
        KIND,
        [
            continued(more, outcome)
            for more, outcome in zip(longer, compute(KIND, members), strict=True)
        ],
    )
    for name in ("draws", "chain_state", "llc_mean", "acceptance"):
        for outcome, further in zip(whole, then, strict=True):
            np.testing.assert_array_equal(outcome.arrays[name], further.arrays[name])
        np.testing.assert_array_equal(whole[1].arrays[name], alone[name])
    assert (whole[0].arrays["draws"] != whole[1].arrays["draws"]).any()


def test_siblings_of_either_metric_are_calibrated_as_they_are_alone():
    brief = BRIEF | {"num_draws": 12, "num_steps_bw_draws": 1}
    one = well(STEEP, sampling_method="mala", **brief)
    members = [beside(one, each) for each in (factors_of(one), reversed_well())]
    both = compute(KIND, members)
    assert [str(each.arrays["metric"]) for each in both] == ["factors", "none"]
    for member_, outcome in zip(members, both, strict=True):
        (alone,) = compute(KIND, [member_])
        np.testing.assert_array_equal(
            outcome.arrays["loss_trace"], alone.arrays["loss_trace"]
        )
        longer = member_.params.model_copy(update={"num_draws": 15})
        (then,) = compute(KIND, [continued(replace(member_, params=longer), outcome)])
        assert then.arrays["metric"] == outcome.arrays["metric"]
        np.testing.assert_array_equal(
            then.arrays["loss_trace"][:, :12], outcome.arrays["loss_trace"]
        )


def test_layers_move_in_the_metric_of_their_factors():
    layers = ["layer1.*"]
    factors = as_factors(probed("labels", layers=layers))
    data, (weights, _) = trained("labels")
    how = EXPLICIT | {"num_chains": 2, "layers": layers, "sampling_method": "mala"}
    inputs = {"weights": weights, "data": data, "preconditioner": factors}
    (outcome,) = compute(KIND, [member(KIND, how, **inputs)])
    moved = (outcome.arrays["draws"] != weights["weights"]).any((0, 1))
    assert moved.sum() == outcome.arrays["num_parameters"] == len(factors["columns"])
    whole = {**inputs, "preconditioner": as_factors(probed("labels"))}
    with pytest.raises(InputError, match=r"^preconditioner: expected factors of"):
        compute(KIND, [member(KIND, how, **whole)])


@pytest.mark.parametrize("layers", [None, ["layer1.*"]])
def test_the_noise_of_samples_in_plain_coordinates_is_that_without(layers):
    data, (weights, _) = trained("labels")
    one = member(KIND, {"layers": layers}, weights=weights, data=data)
    targets = member_targets([one], Machine())
    one_M = torch.ones(1, dtype=torch.float64)
    plain = gradient_noise(targets, one_M, 50 * one_M)
    same = gradient_noise(targets, one_M, 50 * one_M, lambda vectors: vectors)
    twice = gradient_noise(targets, one_M, 200 * one_M, lambda vectors: 2 * vectors)
    torch.testing.assert_close(same, plain)
    torch.testing.assert_close(twice, 4 * plain)  # at the same positions


STUDY = """
study: s
stages:
  digits: {use: data.digits, num_train: 60}
  fit: {use: train, data: digits, model: {kind: mlp, hidden: [4]},
        rule: {rule: sgd, lr: 0.1}, epochs: 1}
  other: {use: train, data: digits, model: {kind: mlp, hidden: [4]},
          rule: {rule: sgd, lr: 0.2}, epochs: 1}
  k: {use: probe.factors, weights: %s}
  llc: {use: probe.llc, weights: fit, preconditioner: k%s}
"""
TOLD = "calibrate: none, lr: 1, localization: 1, num_burnin_steps: 1"
REFUSED = {
    "weights": ("other", "", r"weights 'fit' that 'llc' is of"),
    "layers": ("fit", ", layers: [layer1.*]", r"expected factors of layers layer1"),
    "method": (
        "fit",
        f", sampling_method: sghmc, {TOLD}",
        r"sampling_method: sghmc cannot be combined with factors 'k'",
    ),
    "units": ("fit", ", lr: 0.1", r"lr: 0.1 cannot be combined with factors 'k'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_metric_goes_with_is_refused_while_planning(name):
    *parts, message = REFUSED[name]
    with pytest.raises(StudyError, match=message):
        load_study(STUDY % tuple(parts), file="study.yaml")


@pytest.mark.parametrize("given", ["", f", sampling_method: mala, {TOLD}"])
def test_what_goes_with_a_metric_is_planned(given):
    stage = load_study(STUDY % ("fit", given), file="study.yaml").stages["llc"]
    assert stage.inputs["preconditioner"] == ("k",)
