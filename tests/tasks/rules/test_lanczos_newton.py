"""Newton's method within a Krylov space."""

import numpy as np
import pytest
import torch

from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.problems import load_samples, pose
from curvflow.tasks.numerics import dense_hessian
from tests.tasks.rules.checks import rule, started, trained_on
from tests.tasks.toys import TANH_NET, blobs, train_all, train_member, waves

# For the tests that hold for all rules.
SETTINGS = [
    {"damping": 1.0, "num_steps": 3},
    {"lr": 0.5, "damping": 5.0, "num_steps": 2, "start": "random"},
    {"num_steps": 3, "matrix": "hessian", "damping_follows_lr": False},
    {"num_steps": 3, "eigenvalue_factor": 3.0},
]

LOSSES = ["cross_entropy", "mse", "sse"]
TINY = {"kind": "mlp", "hidden": [2], "activation": "tanh"}


def posed(loss):
    data = blobs(num_samples=12) if loss == "cross_entropy" else waves(num_samples=12)
    problem = pose(parse_model(TINY), loss, data)
    return data, load_samples(problem, [data], "", "cpu", torch.float64)


def parts(data, loss, start):
    """Return gradients and Hessians of the loss that is minimised."""
    problem = pose(parse_model(TINY), loss, data)
    samples = load_samples(problem, [data], "", "cpu", torch.float64)
    share = samples.count if loss == "sse" else 1

    def mean(weights):
        losses = problem.losses(weights[None], samples.inputs, samples.targets)
        return share * losses.mean()

    inputs, targets = samples.inputs[0], samples.targets[0]
    H = [share * dense_hessian(problem.losses, w, inputs, targets) for w in start]
    return torch.stack([torch.func.grad(mean)(w) for w in start]), torch.stack(H)


def beginning(data, loss, models=2):
    size = pose(parse_model(TINY), loss, data).network.num_parameters
    return started(models, size)


@pytest.mark.parametrize("begin", ["gradient", "random"])
@pytest.mark.parametrize("loss", LOSSES)
def test_with_all_steps_and_no_damping_it_is_newtons_method_in_modulus(loss, begin):
    data, _ = posed(loss)
    start = beginning(data, loss)
    fields = {"matrix": "hessian", "num_steps": 100, "start": begin}
    newton = rule(rule="lanczos_newton", lr=0.5, damping=1e-3, **fields)
    decayed = rule(rule="lanczos_newton", damping=2e-3, weight_decay=0.1, **fields)
    (end,), _ = trained_on(data, TINY, [newton, decayed], 1, loss=loss, start=start)
    g, H = parts(data, loss, start)
    for model, (lr, damping, decay) in enumerate([(0.5, 5e-4, 0.0), (1.0, 2e-3, 0.1)]):
        values, vectors = torch.linalg.eigh(H[model])
        slope = g[model] + decay * start[model]
        along = vectors.T @ slope / ((values + decay).abs() + damping)
        expected = start[model] - lr * vectors @ along
        torch.testing.assert_close(end[model], expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("loss", ["mse", "sse"])
def test_gauss_newton_solves_a_linear_regression_in_one_step(loss):
    data = waves()
    # Rounding that the space leaves of g is divided by the damping.
    rules = [rule(rule="lanczos_newton", damping=1e-7)] * 2
    (end,), problem = trained_on(data, {"kind": "linear"}, rules, 1, loss=loss)
    x = np.c_[data["inputs"], np.ones(len(data["inputs"]))]
    best = np.linalg.lstsq(x, data["targets"], rcond=None)[0]
    tensors = problem.network.layout.named(end)
    solution = torch.cat(
        [tensors["layer1.weight"].mT, tensors["layer1.bias"][:, None]], 1
    )
    for model in solution:
        np.testing.assert_allclose(model, best, rtol=1e-5, atol=1e-6)


def test_what_the_space_does_not_hold_moves_by_the_gradient_over_the_damping():
    data, _ = posed("mse")
    start = beginning(data, "mse")
    newton = rule(rule="lanczos_newton", num_steps=1, damping=0.7, matrix="hessian")
    # From the gradient alone the space is the gradient, whose Ritz value is g.Hg / g.g.
    (end,), _ = trained_on(data, TINY, [newton] * 2, 1, loss="mse", start=start)
    g, H = parts(data, "mse", start)
    ritz = torch.einsum("md,mde,me->m", g, H, g) / g.square().sum(1)
    expected = start - g / (ritz.abs() + 0.7)[:, None]
    torch.testing.assert_close(end, expected, rtol=1e-9, atol=1e-11)


def test_damping_is_a_multiple_of_lr_unless_it_is_a_number():
    data, _ = posed("mse")
    start = beginning(data, "mse")
    fields = {"rule": "lanczos_newton", "lr": 0.1}
    pairs = [
        rule(**fields, damping=10.0),
        rule(**fields, damping=1.0, damping_follows_lr=False),
    ]
    (end,), _ = trained_on(data, TINY, pairs, 1, loss="mse", start=start[[0, 0]])
    torch.testing.assert_close(end[0], end[1], rtol=1e-12, atol=1e-12)


def test_a_factor_of_the_eigenvalues_leaves_flat_directions_as_they_are():
    data, _ = posed("mse")
    start = beginning(data, "mse")
    fields = {"rule": "lanczos_newton", "matrix": "hessian", "num_steps": 100}
    rules = [
        rule(**fields, damping=0.3, eigenvalue_factor=3.0),
        # The same step as c |theta| + delta = c (|theta| + delta / c).
        rule(**fields, damping=0.1, lr=1 / 3, damping_follows_lr=False),
    ]
    (end,), _ = trained_on(data, TINY, rules, 1, loss="mse", start=start[[0, 0]])
    g, H = parts(data, "mse", start)
    values, vectors = torch.linalg.eigh(H[0])
    along = vectors.T @ g[0] / (3.0 * values.abs() + 0.3)
    torch.testing.assert_close(end[0], start[0] - vectors @ along, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(end[1], end[0], rtol=1e-6, atol=1e-8)


def test_a_model_that_diverges_touches_no_sibling():
    fields = {"rule": "lanczos_newton", "num_steps": 4, "matrix": "hessian"}
    calm = fields | {"damping": 1.0}
    wild = calm | {"lr": 1e200, "damping_follows_lr": False}
    both = [train_member(blobs(), rule=spec) for spec in (calm, wild)]
    outcomes = train_all(both)
    assert [spec.status for spec in outcomes] == ["ok", "diverged"]
    (alone, _) = train_all([both[0], both[0]])
    np.testing.assert_allclose(
        outcomes[0].arrays["weights"], alone.arrays["weights"], rtol=1e-10
    )


@pytest.mark.parametrize("matrix", ["ggn", "hessian"])
def test_curvature_is_that_of_the_loss_with_this_steps_dropout(matrix):
    net = TANH_NET | {"dropout": 0.5}
    made = [
        train_member(
            blobs(),
            model=net,
            rule={"rule": "lanczos_newton", "num_steps": steps, "matrix": matrix},
            epochs=3,
            batch_size=10,
        )
        for steps in (3, 6)
    ]
    for outcome in train_all(made):
        assert outcome.status == "ok"
        assert outcome.arrays["train_loss"][-1] < outcome.arrays["train_loss"][0]
