"""The local learning coefficient of networks, calibrated or with given settings."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.models import parse_model
from curvflow.schemas.nodes import NodeData, Weights
from curvflow.tasks.llc.outcomes import unpacked_state
from curvflow.tasks.llc.targets import member_targets
from curvflow.tasks.networks.problems import pose
from curvflow.tasks.numerics.sampling import (
    calibration,
    calibration_sweep,
    measured_curvature,
)
from curvflow.tasks.numerics.sampling.chain_results import bias_of_spectrum
from curvflow.tasks.numerics.sampling.measured_curvature import gradient_noise
from curvflow.tasks.numerics.sampling.verdicts import MAX_BIAS, MAX_R_HAT, MIN_ESS
from curvflow.tasks.probes.learning_coefficients.llc import member_bytes
from curvflow.tasks.registry import Machine
from tests.tasks.known import at_truth
from tests.tasks.numerics.sampling.bowls import METHODS
from tests.tasks.probes.checks import probes
from tests.tasks.toys import as_data, assert_declared, compute, member

KIND = "probe.llc"
GIVEN = {
    "calibrate": "none",
    "sampling_method": "sgld",
    "lr": 1e-4,
    "localization": 1.0,
    "num_burnin_steps": 0,
    "num_draws": 12,
}


SHORT = {"num_draws": 8, "num_burnin_steps": 20, "num_steps_bw_draws": 2}
PLAIN = {"nbeta": 200.0, "num_burnin_steps": 500, "num_draws": 300}
PLAIN["num_steps_bw_draws"] = 5


def well(eigenvalues, num_samples=64, noise=0.0, **params):
    """Linear regression at its minimum, whose Hessian has these eigenvalues."""
    size, random = len(eigenvalues), np.random.default_rng(0)
    q = np.linalg.qr(random.normal(size=(num_samples, size)))[0]
    inputs = q * np.sqrt(num_samples * np.asarray(eigenvalues) / 2)
    targets = noise * random.normal(size=(num_samples, 1))
    targets -= q @ (q.T @ targets)  # so that weights of 0 stay the minimum
    data = as_data(dataset(inputs, targets), f"well{eigenvalues}{num_samples}{noise}")
    problem = pose(parse_model({"kind": "linear", "bias": False}), "mse", data)
    arrays = {"weights": np.zeros(size), "network": np.array(problem.text)}
    weights = Weights("fit", "train", {}, arrays, "w")
    return member(KIND, params, weights=weights, data=data)


def regular(eigenvalues, arrays):
    steep = float(arrays["nbeta"]) * np.asarray(eigenvalues)
    return (steep / (steep + float(arrays["localization"]))).sum() / 2


def continued(longer, outcome):
    earlier = NodeData("llc", KIND, {}, outcome.arrays, "d", outcome.status)
    return replace(longer, earlier=earlier)


def given_steps(method, **how):
    """Settings of a well without calibration."""
    return GIVEN | {"sampling_method": method, "num_burnin_steps": 500} | how


@pytest.mark.parametrize(
    "settings",
    [
        {"num_steps_bw_draws": 3},
        {"sampling_method": "sgld", "num_steps_bw_draws": 10},
    ],
)
def test_a_regular_minimum_has_half_its_effective_dimension(settings):
    eigenvalues = [5.0, 2.0, 1.0, 0.3]
    members = [
        well(eigenvalues, nbeta=200.0, num_draws=400, seed=seed, **settings)
        for seed in range(3)
    ]
    for outcome in compute(KIND, members):
        assert_declared(KIND, outcome)
        found, truth = outcome.arrays, regular(eigenvalues, outcome.arrays)
        assert found["predicted"] == pytest.approx(truth, rel=1e-6)
        is_exact = "sampling_method" not in settings
        excess = 0.0 if is_exact else 0.07 * truth
        assert abs(found["llc_mean"] - truth) < 4 * found["llc_sem"] + excess
        assert found["verdict"] == "converged", found["reason"]
        assert is_exact or found["trial_in_plateau"][2]
        assert found["largest_eigenvalue"] == pytest.approx(5.0, rel=1e-6)
        assert (found["sampling_method"] == "multiscale_mala") == is_exact


def test_calibration_takes_batches_of_large_data_and_bounds_what_they_add(monkeypatch):
    monkeypatch.setattr(calibration, "FULL_DATA", 100)
    eigenvalues = [3.0, 1.0]
    (one,) = probes(KIND, "tanh-mse", 1, **SHORT)
    big = well(eigenvalues, num_samples=4000, nbeta=50.0, **SHORT)
    (outcome,) = compute(KIND, [big])
    assert outcome.arrays["sampling_method"] == "sgld"
    (small,) = compute(KIND, [one])
    assert small.arrays["sampling_method"] == "multiscale_mala"


def excess(one, eigenvalues, arrays, friction):
    """Relative excess by steps, and by steps and batches, of the estimate of a well.

    The stationary variance of v <- (1 - a) v - lr / 2 gradient + noise, w <- w + v.
    """
    nbeta, gamma, lr = (float(arrays[name]) for name in ("nbeta", "localization", "lr"))
    data = one.one("data")
    gradients = -2 * data["targets"] * data["inputs"]
    curved = nbeta * np.asarray(eigenvalues) + gamma
    heat = lr * nbeta**2 * gradients.var(0) / (4 * arrays["batch_size"] * friction)
    spread = 1 / (1 - lr * curved / 4 / (2 - friction))
    share = nbeta * np.asarray(eigenvalues) / curved
    return [
        (share * each).sum() / share.sum() - 1 for each in (spread, spread * (1 + heat))
    ]


@pytest.mark.parametrize(("method", "friction"), [("sgld", 1.0), ("sghmc", 0.1)])
def test_batches_and_steps_are_predicted_to_add_what_they_do(method, friction):
    eigenvalues = [3.0, 1.0, 0.5]
    how = {"sampling_method": method, "num_draws": 40, "num_steps_bw_draws": 5}
    how["num_burnin_steps"] = 200
    one = well(eigenvalues, num_samples=2000, noise=0.5, nbeta=50.0, **how)
    (outcome,) = compute(KIND, [one])
    arrays = outcome.arrays
    of_steps, both = excess(one, eigenvalues, arrays, friction)
    assert of_steps * (1 - 1e-6) < arrays["step_bias"] < 0.03
    assert arrays["batch_bias"] == pytest.approx(both - of_steps, rel=0.3)
    assert arrays["batch_bias"] < 1.3 * calibration.HEATING
    assert arrays["batch_size"] < 2000
    data = one.one("data")
    # The weights move little against the noise of the targets.
    variance = (2 * data["targets"] * data["inputs"]).var(0, ddof=1).sum()
    assert arrays["gradient_variance"] == pytest.approx(variance, rel=0.3)
    assert arrays["typical_curvature"] == pytest.approx(1.0)
    assert arrays["trial_lr"] == pytest.approx(arrays["trial_value"])


@pytest.mark.parametrize("method", ["sgld", "sghmc", "adam_sgld", "rmsprop_sgld"])
def test_steps_too_large_by_batches_are_reported_without_calibration(method):
    # Of weights that fit every sample the gradients differ at the draws alone.
    eigenvalues, lr = 10 * [1.0], 2e-5 if method == "sghmc" else 1e-4
    own = {"damping": 100.0} if "_" in method else {}
    lr *= own.get("damping", 1.0)
    how = given_steps(method, lr=lr, nbeta=2000.0, **own)
    how |= {"num_draws": 200, "num_steps_bw_draws": 10, "num_chains": 8}
    how["batch_size"] = 8
    members = [well(eigenvalues, 400, noise, **how) for noise in (0.0, 0.5)]
    for outcome in compute(KIND, members):
        arrays, truth = outcome.arrays, regular(eigenvalues, outcome.arrays)
        added = 1 - truth / float(arrays["llc_mean"])
        told = arrays["step_bias"] + arrays["batch_bias"]
        assert arrays["batch_bias"] > 0.05 < added
        assert 0.75 * added < told
        assert arrays["verdict"] == "step too large"
        assert "batches" in str(arrays["reason"])


@pytest.mark.parametrize("method", METHODS)
def test_what_slow_directions_leave_is_predicted_of_every_method(method):
    eigenvalues = [0.01, 0.02, 0.05, 1.0]
    settings = {
        "nbeta": 1000.0,
        "localization": 1.0,
        "num_burnin_steps": 8,
        "num_draws": 20,
        "num_steps_bw_draws": 2,
        "num_chains": 300,
    }
    if method in ("sghmc", "sgnht"):
        settings["friction"] = 0.3
    one = well(eigenvalues, noise=0.1, sampling_method=method, **settings)
    (outcome,) = compute(KIND, [one])
    lacking = regular(eigenvalues, outcome.arrays) - float(outcome.arrays["llc_mean"])
    slow_error = float(outcome.arrays["slow_error"])
    if method == "multiscale_mala":
        # Half of its chains start where the others have yet to go.
        assert 0.4 * slow_error < lacking < slow_error
    else:
        assert lacking == pytest.approx(slow_error, rel=0.1)


def test_draws_that_do_not_show_their_slow_directions_are_not_called_converged():
    eigenvalues = 2 * np.logspace(-2, 2, 5)
    how = {"sampling_method": "mala", "num_steps_bw_draws": 10}
    members = [well(eigenvalues, num_samples=200, seed=k, **how) for k in (4, 5, 6, 7)]
    outcomes = [outcome.arrays for outcome in compute(KIND, members)]
    assert {str(arrays["verdict"]) for arrays in outcomes} == {"drifting"}
    (slow, *_) = (a for a in outcomes if "too slow" in str(a["reason"]))
    assert slow["r_hat"] < MAX_R_HAT
    assert min(slow["ess_bulk"], slow["ess_tail"]) > MIN_ESS
    assert f"an error of {slow['slow_error']:.2g}" in str(slow["reason"])


def test_a_localization_that_is_given_is_not_judged_beside_one_that_is_not():
    how = {"nbeta": 1000.0, "num_draws": 300, "num_steps_bw_draws": 5}
    how["num_burnin_steps"] = 500
    asked = (None, 3000.0)
    members = [well([4.0, 2.0, 1.0], **how, localization=gamma) for gamma in asked]
    free, strong = (outcome.arrays for outcome in compute(KIND, members))
    assert free["hold_share"] < 0.05
    assert free["verdict"] == "converged", free["reason"]
    share = 1 - regular([4.0, 2.0, 1.0], strong) / 1.5
    assert strong["hold_share"] == pytest.approx(share, abs=0.1)
    assert strong["verdict"] == "converged", strong["reason"]
    assert "of this localization, which takes" in str(strong["reason"])
    unheld = strong["llc_unheld"] - 1.5
    assert abs(unheld) < 3 * strong["llc_unheld_sem"]


def test_rescalings_do_not_hide_that_steps_are_rejected():
    how = {"nbeta": 1e4, "calibrate": "none", "sampling_method": "multiscale_mala"}
    how |= {"localization": 0.0, "num_burnin_steps": 0, "num_draws": 100, "lr": 1e9}
    how["num_steps_bw_draws"] = 5
    (outcome,) = compute(KIND, [well([1.0, 1.0], **how)])
    found = outcome.arrays
    assert found["acceptance"] < 0.05
    assert found["verdict"] == "step too large"


def test_flat_directions_need_no_localization():
    how = {"nbeta": 1e3, "localization": 0.0, "num_draws": 200}
    how |= {"num_burnin_steps": 500, "num_steps_bw_draws": 5}
    (outcome,) = compute(KIND, [well([1.0, 1.0, 0.0], **how)])
    found = outcome.arrays
    assert found["num_failed"] == 0
    assert abs(found["llc_mean"] - 1.0) < 4 * found["llc_sem"]


def test_what_was_not_calibrated_says_nothing_of_the_hold():
    (outcome,) = compute(KIND, [well([1.0, 1.0], **GIVEN)])
    for name in ("hold_share", "llc_unheld", "llc_unheld_sem"):
        assert np.isnan(outcome.arrays[name])


def test_many_parameters_are_whitened_by_some_ritz_vectors():
    eigenvalues = [100.0, 90.0, 30.0, 25.0, 20.0, *np.linspace(0.5, 1.5, 245)]
    how = {"nbeta": 2e4, "num_draws": 60, "num_burnin_steps": 300}
    how["num_steps_bw_draws"] = 5
    (outcome,) = compute(KIND, [well(eigenvalues, num_samples=300, **how)])
    found = outcome.arrays
    assert found["whitening_vectors"].shape == (250, 30)
    *known, rest = found["whitening_curvatures"]
    np.testing.assert_allclose(known[-5:], eigenvalues[4::-1], rtol=1e-3)
    assert rest == pytest.approx((sum(eigenvalues) - np.sum(known)) / 220, rel=0.1)
    truth = regular(eigenvalues, found)
    assert abs(found["llc_mean"] - truth) < 4 * found["llc_sem"]
    assert found["llc_sem"] < 0.05 * truth


def test_short_steps_that_get_about_less_are_no_bias_of_long_ones():
    eigenvalues = list(np.logspace(1, -3, 200))
    how = {"num_samples": 400, "nbeta": 2e4, "num_draws": 100, "seed": 1}
    how |= {"num_burnin_steps": 500, "num_steps_bw_draws": 5}
    (outcome,) = compute(KIND, [well(eigenvalues, sampling_method="sgld", **how)])
    found = outcome.arrays
    tried, errors = found["trial_llc"], found["trial_sem"]
    assert tried[2] - tried[0] > 2 * np.hypot(errors[0], errors[2])
    assert found["trial_in_plateau"].all()
    assert found["lr"] == pytest.approx(found["trial_value"][2])
    assert found["verdict"] == "drifting", found["reason"]


@pytest.mark.parametrize("flat", [0, 40])
def test_a_thermostat_makes_up_for_the_heat_that_all_directions_share(flat):
    eigenvalues = 10 * [1.0] + flat * [1e-6]
    how = given_steps("sgnht", lr=2e-5, nbeta=2000.0, localization=20.0)
    how |= {"num_draws": 200, "num_steps_bw_draws": 10, "batch_size": 8}
    one = well(eigenvalues, 400, 0.1, num_chains=8, **how)
    (outcome,) = compute(KIND, [one])
    arrays, truth = outcome.arrays, regular(eigenvalues, outcome.arrays)
    added = 1 - truth / float(arrays["llc_mean"])
    told = arrays["step_bias"] + arrays["batch_bias"]
    assert (told < 0.05) == (not flat)
    assert added < told + 0.03
    assert (arrays["verdict"] == "converged") == (not flat)


def test_steps_add_no_less_than_gradients_away_from_the_weights_say():
    model = {"kind": "deep_linear", "hidden": [3]}
    data, weights = at_truth(model, rank=1, inputs=4, outputs=4)
    how = {"sampling_method": "sgld", "nbeta": 100.0, "num_draws": 200}
    (outcome,) = compute(KIND, [member(KIND, how, weights=weights, data=data)])
    found = outcome.arrays
    ritz = (torch.as_tensor(found[name]) for name in ("ritz_values", "ritz_weights"))
    held, lr = float(found["localization"]), float(found["lr"])
    of_spectrum = bias_of_spectrum(*ritz, 100.0, held, lr)
    assert of_spectrum < 0.02
    assert found["step_bias"] > 1.5 * of_spectrum


def test_of_a_preconditioned_walk_the_most_that_it_may_add_is_predicted():
    how = {"num_samples": 2000, "noise": 0.5, "nbeta": 200.0, **SHORT}
    plain, scaled = (
        compute(KIND, [well([3.0, 1.0], sampling_method=method, **how)])[0].arrays
        for method in ("sgld", "rmsprop_sgld")
    )
    assert scaled["trial_value"][2] == pytest.approx(0.1 * plain["trial_value"][2])
    assert scaled["batch_size"] == plain["batch_size"]


def test_a_member_does_not_depend_on_its_siblings():
    how = SHORT | {"num_burnin_steps": None}
    members = probes(KIND, "tanh-ce", 3, num_chains=2, **how)
    whole = compute(KIND, members)
    for one, expected in zip(compute(KIND, members[1:]), whole[1:], strict=True):
        names = ("llc_mean", "loss_trace", "lr", "gradient_equivalents")
        for name in (*names, "whitening_curvatures"):
            np.testing.assert_allclose(
                one.arrays[name], expected.arrays[name], rtol=1e-7
            )


@pytest.mark.parametrize(
    "settings", [SHORT | {"num_chains": 2}, GIVEN, GIVEN | {"batch_size": 30}]
)
def test_more_draws_go_on_from_fewer_bit_for_bit(settings):
    few = {**settings, "num_draws": 12, "keep_draws": True}
    shorter = compute(KIND, probes(KIND, "tanh-ce", 2, **few))
    longer = probes(KIND, "tanh-ce", 2, **few | {"num_draws": 30})
    expected = compute(KIND, longer)
    going_on = [continued(m, o) for m, o in zip(longer, shorter, strict=True)]
    for one, other in zip(compute(KIND, going_on), expected, strict=True):
        assert one.arrays["loss_trace"].shape[1] == 30
        for name, array in other.arrays.items():
            # Work is a sum of thirds of gradients.
            rtol = 1e-14 if name in ("gradient_equivalents", "chain_state") else 0
            if array.dtype.kind == "U":
                assert one.arrays[name].tolist() == array.tolist()
            else:
                np.testing.assert_allclose(
                    one.arrays[name], array, rtol=rtol, err_msg=name
                )
        assert_declared(KIND, one)


def test_going_on_where_no_bias_is_predicted_gives_the_same_verdict():
    # Of a Hessian that vanishes none is: the regular coefficient is zero.
    data, weights = at_truth({"kind": "normal_crossing", "powers": [[2]]})
    how = {"sampling_method": "sgld", "nbeta": 1e4, "num_chains": 2}
    how |= {"num_burnin_steps": 100, "num_steps_bw_draws": 2}
    shorter, longer = (
        member(KIND, how | {"num_draws": count}, weights=weights, data=data)
        for count in (100, 110)
    )
    (once,), (first,) = compute(KIND, [longer]), compute(KIND, [shorter])
    (then,) = compute(KIND, [continued(longer, first)])
    assert 0 < then.arrays["step_bias"] == once.arrays["step_bias"]
    assert then.arrays["reason"] == once.arrays["reason"]


@pytest.mark.parametrize(
    ("method", "own"),
    [("sghmc", {"friction": 1.0}), ("rmsprop_sgld", {"damping": 1e6})],
)
def test_trials_walk_as_the_chains_will(method, own):
    # Both are then sgld, at the same step or at one so many times as large.
    how = {"num_chains": 2, **SHORT}
    plain, same = (
        compute(KIND, probes(KIND, "tanh-ce", 1, **how | more))[0].arrays
        for more in ({"sampling_method": "sgld"}, {"sampling_method": method, **own})
    )
    np.testing.assert_allclose(same["trial_llc"], plain["trial_llc"], rtol=1e-4)


@pytest.mark.parametrize(
    ("at_draws", "method"),
    [("full", "multiscale_mala"), ("control_variate", "sgld"), ("batch", "sgld")],
)
def test_losses_of_batches_want_a_sampler_that_takes_them(at_draws, method):
    one = well([1.0, 2.0], noise=0.5, at_draws=at_draws, batch_size=None, **SHORT)
    (outcome,) = compute(KIND, [one])
    assert outcome.arrays["sampling_method"] == method


def test_batches_are_chosen_by_the_gradients_of_what_moves():
    how = {"sampling_method": "sgld", "batch_size": 5, "num_draws": 8}
    found = {}
    for layers in (["layer1.weight"], None):
        members = probes(KIND, "tanh-ce", 2, layers=layers, **how)
        targets, ones_M = member_targets(members, Machine()), torch.ones(2)
        found[bool(layers)] = gradient_noise(targets, ones_M, ones_M)
    assert (found[True] < 0.9 * found[False]).all()
    assert (found[True] > 0).all()


def test_chains_adapt_where_they_are_up_to_the_least_step_of_the_trials():
    # A product is sharper on one arm of its zeros than on the other.
    data, weights = at_truth(
        {"kind": "deep_linear", "hidden": [2]}, inputs=2, outputs=2, rank=0
    )
    how = {"nbeta": 1e5, "num_draws": 100, "num_chains": 8, "sampling_method": "mala"}
    how |= {"num_steps_bw_draws": 4, "num_burnin_steps": 500}
    one = member(KIND, how, weights=weights, data=data)
    (outcome,) = compute(KIND, [one])
    found = outcome.arrays
    steps = found["lr_per_chain"]
    assert len(set(steps)) > 1
    assert steps.max() <= found["trial_lr"][:3].max()
    assert found["lr"] == pytest.approx(steps.mean())
    accepted = found["acceptance_per_chain"]
    assert accepted.min() > 0.1
    assert found["acceptance"] == pytest.approx(accepted.mean())
    told = float(steps.max())
    given = one.params.model_copy(update={"lr": told, "num_draws": 8})
    (outcome,) = compute(KIND, [replace(one, params=given)])
    assert (outcome.arrays["lr_per_chain"] == told).all()
    assert outcome.arrays["lr"] == told


@pytest.mark.parametrize(
    ("varied", "name", "text"),
    [
        ("lr", "step too large", "smaller or larger steps give other estimates"),
        ("localization", "converged", "held less and more give other estimates"),
    ],
)
def test_trials_on_no_plateau_are_reported(monkeypatch, varied, name, text):
    def steep(estimates_T, errors_T, chosen):
        return torch.zeros_like(estimates_T, dtype=torch.bool)

    method = {"lr": "sgld", "localization": "mala"}[varied]
    one = well([5.0, 2.0], sampling_method=method, **PLAIN)
    (flat,) = compute(KIND, [one])
    monkeypatch.setattr(calibration_sweep, "plateau", steep)
    (outcome,) = compute(KIND, [one])
    assert "other estimates" not in str(flat.arrays["reason"])
    assert outcome.arrays["verdict"] == name, outcome.arrays["reason"]
    assert text in str(outcome.arrays["reason"])
    longer = replace(one, params=one.params.model_copy(update={"num_draws": 310}))
    (then,) = compute(KIND, [continued(longer, outcome)])
    assert then.arrays["verdict"] == name


@pytest.mark.parametrize("case", range(4))
def test_directions_that_are_held_do_not_shorten_a_calibrated_step(case):
    # A Metropolis step rejects them as if they were steep; they bias nothing.
    random = np.random.default_rng(case)
    steep = random.uniform(0.5, 4.0, random.integers(1, 4))
    eigenvalues = [*steep, *np.zeros(random.integers(200, 300))]
    how = PLAIN | {"num_burnin_steps": 200, "num_draws": 100, "num_chains": 8}
    how["localization"] = random.uniform(0.5, 2.0) * PLAIN["nbeta"]
    one = well(eigenvalues, len(eigenvalues), sampling_method="sgld", **how)
    (outcome,) = compute(KIND, [one])
    found = outcome.arrays
    assert found["lr"] == pytest.approx(found["trial_value"][2])
    assert found["step_bias"] < 0.04
    assert found["verdict"] != "step too large"
    excess = found["llc_mean"] - regular(eigenvalues, found)
    assert abs(excess) < 4 * found["llc_sem"] + 0.04 * found["llc_mean"]


@pytest.mark.parametrize("case", range(4))
def test_a_calibrated_step_biases_no_more_than_a_verdict_allows(case):
    random = np.random.default_rng(case)
    eigenvalues = [*random.uniform(0.5, 4.0, 20), *np.zeros(random.integers(0, 50))]
    method = ("sgld", "sghmc")[case % 2]
    how = PLAIN | {"num_burnin_steps": 200, "num_draws": 100, "num_chains": 8}
    how |= {"localization": 40.0, "batch_size": int(random.integers(4, 32))}
    one = well(eigenvalues, 400, 0.5, sampling_method=method, **how)
    (free,) = compute(KIND, [one])
    found = free.arrays
    assert found["lr"] < 0.9 * found["trial_value"][2]
    assert found["step_bias"] + found["batch_bias"] < MAX_BIAS
    assert found["verdict"] != "step too large"
    excess = found["llc_mean"] - regular(eigenvalues, found)
    assert abs(excess) < 4 * found["llc_sem"] + MAX_BIAS * found["llc_mean"]

    lr = float(found["trial_value"][2])
    given = one.params.model_copy(update={"lr": lr, "num_draws": 8})
    (kept,) = compute(KIND, [replace(one, params=given)])
    assert kept.arrays["lr"] == lr


def test_a_given_step_above_the_plateau_is_too_large(monkeypatch):
    def below(estimates_T, errors_T, chosen):
        trials_T = torch.arange(len(estimates_T))
        return trials_T <= 1 if chosen <= 1 else trials_T >= 2

    one = well([5.0, 2.0], sampling_method="sgld", **PLAIN)
    monkeypatch.setattr(calibration_sweep, "plateau", below)
    (free,) = compute(KIND, [one])
    given = one.params.model_copy(update={"lr": float(2 * free.arrays["lr"])})
    (outcome,) = compute(KIND, [replace(one, params=given)])
    assert free.arrays["verdict"] == "converged", free.arrays["reason"]
    assert (outcome.arrays["trial_value"] == free.arrays["trial_value"]).all()
    assert outcome.arrays["verdict"] == "step too large"


def test_only_named_tensors_move():
    how = {"layers": ["*.bias"], "keep_draws": True, **SHORT}
    (one,) = probes(KIND, "tanh-ce", 1, **how)
    (outcome,) = compute(KIND, [one])
    start = one.one("weights")["weights"]
    moved = (outcome.arrays["draws"] != start).any((0, 1))
    assert moved.sum() == outcome.arrays["num_parameters"] < len(start)


def test_chains_that_fail_are_counted_and_judged():
    steep = well([4.0, 1.0], nbeta=100.0, **GIVEN | {"lr": 1e9, "num_draws": 60})
    (outcome,) = compute(KIND, [steep])
    assert outcome.status == "diverged"
    assert "4 of 4 chains left the finite numbers" in outcome.reason
    assert outcome.arrays["num_failed"] == 4
    assert np.isnan(outcome.arrays["llc_mean"])


def test_numbers_are_of_the_chains_that_did_not_fail():
    # Steps that a loss of fourth power throws out now and then.
    data, weights = at_truth({"kind": "normal_crossing", "powers": [[2]]})
    how = GIVEN | {"lr": 0.008, "num_draws": 200, "num_chains": 6, "nbeta": 1e3}
    how |= {"num_steps_bw_draws": 1, "keep_draws": True}
    one = member(KIND, how, weights=weights, data=data)
    (outcome,) = compute(KIND, [one])
    found, fine = outcome.arrays, outcome.arrays["failed_at"] < 0
    assert 0 < found["num_failed"] < 6
    assert found["verdict"] == "failed"
    state = unpacked_state(outcome.arrays)
    accepted = (state["accepted"] / state["asked"]).numpy()
    assert found["acceptance"] == pytest.approx(accepted[fine].mean(), rel=1e-12)
    assert found["distance"] == found["distance_trace"][fine, -1].mean()
    assert found["llc_mean"] == pytest.approx(found["llc_per_chain"][fine].mean())
    lost = np.isnan(found["loss_trace"])
    assert np.isnan(found["draws"][lost]).all()
    assert np.isfinite(found["draws"][~lost]).all()


def test_a_point_that_is_no_minimum_is_called_negative():
    how = {"num_burnin_steps": 500, "num_draws": 100, "num_steps_bw_draws": 2}
    one = well([4.0, 1.0], nbeta=2000.0, **how)
    weights = one.one("weights")
    moved = {**weights.arrays, "weights": np.ones(2)}
    away = replace(
        one, inputs={**one.inputs, "weights": [replace(weights, arrays=moved)]}
    )
    (outcome,) = compute(KIND, [away])
    assert outcome.arrays["verdict"] == "negative"
    assert outcome.arrays["llc_mean"] < 0


def test_chains_that_leave_a_minimum_are_called_escaped():
    data = as_data(dataset(np.ones((8, 1)), np.zeros((8, 10))), "crater")
    made = {"factory": "tests.tasks.probes.craters:crater"}
    made["kwargs"] = {"inputs": 1, "outputs": 10}
    problem = pose(parse_model(made), "sse", data)
    arrays = {"weights": np.zeros(10), "network": np.array(problem.text)}
    weights = Weights("fit", "train", {}, arrays, "w")
    how = GIVEN | {"sampling_method": "mala", "lr": 0.01, "nbeta": 20.0}
    how |= {"num_burnin_steps": 100, "num_draws": 200, "num_steps_bw_draws": 4}
    members = [
        member(KIND, how | {"localization": held}, weights=weights, data=data)
        for held in (1e-6, 50.0)
    ]
    free, held = (outcome.arrays for outcome in compute(KIND, members))
    assert free["verdict"] == "escaped", free["reason"]
    assert held["verdict"] == "converged", held["reason"]
    # Held, it is the bottom; let go, it is of the plain, which is 20 above it.
    assert free["llc_mean"] > 10 >= held["llc_mean"]


def test_the_temperature_is_that_of_the_data_or_of_the_batch():
    names = {"auto": 30 / np.log(30), "devinterp": 5 / np.log(5), 7.0: 7.0}
    for nbeta, expected in names.items():
        (one,) = probes(KIND, "tanh-ce", 1, **GIVEN | {"nbeta": nbeta, "batch_size": 5})
        (outcome,) = compute(KIND, [one])
        assert outcome.arrays["nbeta"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"batch_size": 31}, "batch_size: expected at most the 30 samples"),
        ({"layers": ["no.*"]}, "layers: expected names of parameter tensors"),
    ],
)
def test_what_does_not_fit_is_refused(params, message):
    with pytest.raises(InputError, match=message):
        compute(KIND, probes(KIND, "tanh-ce", 1, **GIVEN | params))


def test_the_exact_sampler_takes_no_batches():
    with pytest.raises(ValueError, match="batch_size cannot be combined with sampling"):
        member(KIND, {"sampling_method": "mala", "batch_size": 5})


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"friction": 0.5}, "friction cannot be combined .* null, which takes multi"),
        (
            {"friction": 0.5, "sampling_method": "sgld"},
            "with sampling_method sgld. Rem",
        ),
        (
            {"decay": 0.9, "sampling_method": "mala"},
            "take sampling_method rmsprop_sgld or adam_sgld",
        ),
        (
            {"damping": 1.0, "sampling_method": "sghmc"},
            "Remove damping, or take sampling_method",
        ),
        (
            {"at_draws": "batch", "sampling_method": "mala"},
            "at_draws batch cannot be combined",
        ),
    ],
)
def test_settings_that_the_method_does_not_use_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        member(KIND, params)
    # What is as it would be anyway is not.
    member(KIND, {"friction": 0.1, "sampling_method": "sgld"})


@pytest.mark.parametrize("batch_size", [None, 1])
def test_the_temperature_of_a_batch_wants_one(batch_size):
    with pytest.raises(ValueError, match="Set batch_size to 2 or more"):
        member(KIND, {"nbeta": "devinterp", "batch_size": batch_size})


def test_two_samples_have_no_temperature_whichever_member_asks():
    told = well([1.0], num_samples=2, **GIVEN | {"nbeta": 5.0})
    asking = replace(told, params=told.params.model_copy(update={"nbeta": "auto"}))
    with pytest.raises(InputError, match="nbeta: expected a number with 2 samples"):
        compute(KIND, [told, asking])


def test_what_calibration_does_not_find_must_be_given():
    with pytest.raises(ValueError, match=r"expected sampling_method, .* got null"):
        member(KIND, {"calibrate": "none"})


def test_memory_counts_the_traces():
    few, many = (probes(KIND, "tanh-ce", 1, num_draws=n)[0] for n in (500, 5000))
    assert member_bytes(many) - member_bytes(few) == 8 * 2 * 4 * 4500 * 3


def test_memory_counts_the_draws_that_are_kept():
    (plain,) = probes(KIND, "tanh-ce", 1)
    (kept,) = probes(KIND, "tanh-ce", 1, keep_draws=True)
    size = len(plain.one("weights")["weights"])
    assert member_bytes(kept) - member_bytes(plain) == 8 * 2 * 4 * 500 * size


def test_memory_counts_what_calibration_measures():
    # A wide network: one chain's vectors are less than the basis of Lanczos' runs.
    wide = dataset(np.ones((8, 40)), np.ones((8, 1)))
    data = as_data(wide, "wide")
    model = {"kind": "mlp", "hidden": [300], "activation": "tanh"}
    problem = pose(parse_model(model), "mse", data)
    size = problem.network.num_parameters
    arrays = {"weights": np.zeros(size), "network": np.array(problem.text)}
    taken = {"weights": Weights("fit", "train", {}, arrays, "w"), "data": data}
    found, told = (member(KIND, params, **taken) for params in ({}, GIVEN))
    basis = 8 * measured_curvature.RUNS * measured_curvature.STEPS * size
    assert member_bytes(found) > basis > member_bytes(told)


def test_float32_samples_the_same_posterior():
    how = {"num_draws": 300, "num_steps_bw_draws": 3, "dtype": "float32"}
    how["num_burnin_steps"] = 500
    (one,) = compute(KIND, [well([5.0, 1.0], nbeta=100.0, **how)])
    truth = regular([5.0, 1.0], one.arrays)
    assert abs(one.arrays["llc_mean"] - truth) < 4 * one.arrays["llc_sem"]
