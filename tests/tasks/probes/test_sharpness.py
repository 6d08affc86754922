"""Sharpness as the learning rule sees it."""

from functools import cache

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.schemas.nodes import Preconditioned
from curvflow.tasks.networks.problems import load_samples, read
from tests.tasks.toys import (
    TANH_NET,
    assert_declared,
    blobs,
    compute,
    dense_of,
    member,
    train_all,
    train_member,
    waves,
    weights_of,
)

RULES = {
    "sgd": {"rule": "sgd", "lr": 0.1},
    "heavy": {"rule": "sgd", "lr": 0.1, "momentum": 0.9},
    "nesterov": {"rule": "sgd", "lr": 0.1, "momentum": 0.5, "nesterov": True},
    "adam": {"rule": "adam", "lr": 0.01},
    "adamw": {"rule": "adamw", "lr": 0.01, "amsgrad": True},
    "padam": {"rule": "padam", "lr": 0.05},
    "rmsprop": {"rule": "rmsprop", "lr": 0.003, "momentum": 0.5},
    "adagrad": {"rule": "adagrad", "lr": 0.05, "lr_decay": 0.1},
    "spectral": {"rule": "spectral_sgd", "max_momentum": 0.5},
}
BOUNDS = {"sgd": 2, "heavy": 3.8, "nesterov": 1.5, "adam": 38, "rmsprop": 3}


def kept(outcome, checkpoint=-1):
    """Return the weights of a checkpoint with their preconditioner."""
    plain = weights_of(outcome, checkpoint)
    arrays = dict(plain.arrays)
    for name in ("preconditioner", "preconditioned_lr", "stable_up_to"):
        arrays[name] = outcome.arrays[name][checkpoint]
    return Preconditioned("fit", "train", {}, arrays, "w")


@cache
def trained(loss="cross_entropy", count=1):
    data = blobs() if loss == "cross_entropy" else waves()
    made = [
        train_member(
            data,
            model=TANH_NET,
            loss=loss,
            rule=rule if loss != "sse" else rule | {"lr": 0.002},
            seed=seed,
            epochs=4,
            checkpoints={"every": 2},
            keep_preconditioner=True,
        )
        for rule in RULES.values()
        for seed in range(count)
    ]
    return data, dict(zip(RULES, train_all(made)[::count], strict=True))


def probe(data, outcome, checkpoint=-1, **params):
    weights = kept(outcome, checkpoint)
    return member("probe.sharpness", params, weights=weights, data=data)


@pytest.mark.parametrize("loss", ["cross_entropy", "sse"])
def test_it_is_the_largest_eigenvalue_of_the_dense_matrix(loss):
    data, fits = trained(loss)
    probes = [probe(data, fits[name]) for name in RULES]
    for name, probed, outcome in zip(
        RULES, probes, compute("probe.sharpness", probes), strict=True
    ):
        assert_declared("probe.sharpness", outcome)
        share = len(data["inputs"]) if loss == "sse" else 1
        root = torch.as_tensor(probed.one("weights")["preconditioner"]).rsqrt()
        matrix = share * root[:, None] * dense_of(probed) * root
        largest = torch.linalg.eigvalsh(matrix)[-1].item()
        result = outcome.arrays
        assert result["converged"], name
        assert result["sharpness"] == pytest.approx(largest, rel=1e-6), name
        scaled = result["rule_lr"] * result["sharpness"]
        assert result["edge"] == pytest.approx(scaled / result["stable_up_to"])


def test_bounds_are_those_of_each_rules_momentum():
    _, fits = trained()
    for name, bound in BOUNDS.items():
        assert fits[name].arrays["stable_up_to"][-1] == pytest.approx(bound), name


@pytest.mark.parametrize("name", ["sgd", "heavy", "nesterov", "adam", "rmsprop"])
def test_steps_grow_beyond_the_bound_and_shrink_below_it(name):
    """A quadratic of one parameter under the rule's own linear recurrence."""
    fields = RULES[name]
    rho = fields.get("momentum", 0.9 if name == "adam" else 0.0)
    for factor, grows in ((0.999, False), (1.001, True)):
        curvature = factor * BOUNDS[name]  # at P = 1 and a rate of 1
        w, v = torch.ones(2).double().unbind()
        for _ in range(30_000):
            share = 1 - rho if name == "adam" else 1
            v = rho * v + share * curvature * w
            w = w - (curvature * w + rho * v if fields.get("nesterov") else v)
            if not 1e-9 < w.abs() < 1e9:
                break
        assert (w.abs() > 1) == grows


def test_the_preconditioner_is_what_the_step_divides_by():
    _, fits = trained()
    rates = {"adam": 0.01, "adamw": 0.01}
    for name, lr in rates.items():
        state = fits[name].arrays["rule_state"]
        size = len(fits[name].arrays["preconditioner"][-1])
        mean, square = state[:size], state[size : 2 * size]
        if name == "adamw":
            square = state[2 * size : 3 * size]
        step = lr * mean / (1 - 0.9**4) / (np.sqrt(square / (1 - 0.999**4)) + 1e-8)
        result = lr * mean / fits[name].arrays["preconditioner"][-1]
        np.testing.assert_allclose(result, step, rtol=1e-10)


def test_before_the_first_step_of_an_adaptive_rule_there_is_none():
    data, fits = trained()
    names = ["sgd", "adam", "rmsprop", "adagrad"]
    result = compute("probe.sharpness", [probe(data, fits[n], 0) for n in names])
    assert result[0].arrays["converged"]
    for outcome in result[1:]:
        assert np.isnan(outcome.arrays["sharpness"])
        assert np.isnan(outcome.arrays["critical_sharpness"])
        assert outcome.arrays["converged"]  # absent, and so not in doubt
        assert outcome.arrays["critical_converged"]


def test_the_critical_rate_is_where_the_loss_is_that_of_no_step():
    data, fits = trained()
    probes = [
        probe(data, fits[name], critical_tol=1e-4) for name in ("sgd", "adam", "heavy")
    ]
    for probed, outcome in zip(probes, compute("probe.sharpness", probes), strict=True):
        result, weights = outcome.arrays, probed.one("weights")
        assert result["critical_converged"]
        w = torch.as_tensor(weights["weights"]).requires_grad_()
        problem = read(str(weights["network"]))
        samples = load_samples(problem, [data], "", "cpu", torch.float64)

        def loss(at, problem=problem, samples=samples):
            return problem.losses(at[None], samples.inputs, samples.targets).mean()

        (slope,) = torch.autograd.grad(loss(w), w)
        step = slope / torch.as_tensor(weights["preconditioner"])
        rate = float(result["critical_lr"])
        assert loss(w - 0.999 * rate * step) < loss(w) < loss(w - 1.001 * rate * step)
        assert result["critical_sharpness"] == pytest.approx(2 / rate)


def test_on_a_quadratic_the_critical_sharpness_is_a_rayleigh_quotient():
    data = waves()
    made = train_member(
        data,
        model={"kind": "linear"},
        rule=RULES["sgd"],
        epochs=2,
        keep_preconditioner=True,
    )
    probed = probe(data, train_all([made, made])[0], critical_tol=1e-5)
    result = compute("probe.sharpness", [probed, probed])[0].arrays
    H = dense_of(probed)
    problem = read(str(probed.one("weights")["network"]))
    samples = load_samples(problem, [data], "", "cpu", torch.float64)
    w = torch.as_tensor(probed.one("weights")["weights"]).requires_grad_()
    mean = problem.losses(w[None], samples.inputs, samples.targets).mean()
    (g,) = torch.autograd.grad(mean, w)
    quotient = (g @ H @ g / (g @ g)).item()
    assert result["critical_sharpness"] == pytest.approx(quotient, rel=1e-4)
    assert result["critical_sharpness"] <= result["sharpness"] * (1 + 1e-4)


def test_training_that_kept_no_preconditioner_is_refused_with_the_remedy():
    made = train_member(blobs())
    plain = weights_of(train_all([made, made])[0])
    bare = Preconditioned("fit", "train", {}, plain.arrays, "w")
    probed = member("probe.sharpness", {}, weights=bare, data=blobs())
    with pytest.raises(InputError, match=r"'fit'.*keep_preconditioner: true"):
        compute("probe.sharpness", [probed])
