"""Shampoo, against a plain loop with the powers of dense matrices."""

import numpy as np
import pytest
import torch

from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.problems import pose
from curvflow.tasks.rules.matrices import inverse_root
from curvflow.tasks.training.updates import Updates
from tests.tasks.rules.checks import rule, started, step_at
from tests.tasks.toys import blobs, random_symmetric
from tests.tasks.training.test_convolutional_training import NORM, images

# For the tests that hold for all rules.
SETTINGS = [
    {"lr": 0.1},
    {"lr": 0.02, "momentum": 0.9, "beta2": 0.9, "eps": 0.01, "update_every": 3},
    {"lr": 0.1, "max_size": 4, "weight_decay": 0.01},
]

EXACT = {"rtol": 1e-9, "atol": 1e-12}
DEEP = {"kind": "mlp", "hidden": [5, 4], "activation": "tanh"}


def slope(weights, step):
    return weights**3 - torch.cos(weights * 2 + step)


def coursed(rules, problem, start, steps=8, first=0):
    weights, updates = start, Updates(rules, start, problem)
    course = []
    for count in range(first, steps):
        now = step_at(count, len(rules), problem=problem)
        weights = updates.step(slope(weights, count), weights, now)
        course.append(weights)
    return course


def power(H, exponent):
    values, vectors = np.linalg.eigh(H)
    return vectors @ np.diag(values**exponent) @ vectors.T


def looped(
    start, shapes, lr, momentum=0.0, beta2=1.0, eps=1e-4, weight_decay=0.0,
    update_every=1, max_size=1024, steps=8,
):  # fmt: skip
    """Step one model, tensor by tensor and axis by axis."""
    bounds = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)])
    w = start.numpy().copy()
    v, H, roots = np.zeros_like(w), {}, {}
    for count in range(steps):
        g = slope(torch.tensor(w), count).numpy()
        for n, shape in enumerate(shapes):
            rows = slice(bounds[n], bounds[n + 1])
            G = g[rows].reshape(shape or (1,))
            axes = [axis for axis, size in enumerate(G.shape) if size <= max_size]
            scaled = G
            for axis in axes:
                others = [other for other in range(G.ndim) if other != axis]
                product = np.tensordot(G, G, axes=(others, others))
                old = H.get((n, axis), np.zeros_like(product))
                new = (
                    old + product if beta2 == 1 else beta2 * old + (1 - beta2) * product
                )
                H[n, axis] = new
                if count % update_every == 0:
                    eye = np.eye(len(new))
                    roots[n, axis] = power(new + eps * eye, -1 / (2 * len(axes)))
                moved = np.tensordot(roots[n, axis], scaled, axes=(1, axis))
                scaled = np.moveaxis(moved, 0, axis)
            v[rows] = momentum * v[rows] + scaled.ravel()
        w = (1 - lr * weight_decay) * w - lr * v
        yield torch.tensor(w)


@pytest.mark.parametrize(
    ("data", "model"), [(blobs(), DEEP), (images(), NORM)], ids=["mlp", "convolutions"]
)
def test_every_step_is_that_of_a_plain_loop(data, model):
    problem = pose(parse_model(model), "auto", data)
    start = started(len(SETTINGS), problem.network.num_parameters)
    course = coursed([rule(rule="shampoo", **s) for s in SETTINGS], problem, start)
    for row, fields in enumerate(SETTINGS):
        expected = looped(start[row], problem.network.layout.shapes, **fields)
        for weights, wanted in zip(course, expected, strict=True):
            torch.testing.assert_close(weights[row], wanted, **EXACT)


def test_models_of_several_rates_share_a_program():
    problem = pose(parse_model(DEEP), "auto", blobs())
    start = started(3, problem.network.num_parameters)
    settings = [{"lr": 0.1}, {"lr": 0.02, "momentum": 0.5}, {"lr": 0.1, "beta2": 0.5}]
    course = coursed([rule(rule="shampoo", **s) for s in settings], problem, start)
    for row, fields in enumerate(settings):
        *_, expected = looped(start[row], problem.network.layout.shapes, **fields)
        torch.testing.assert_close(course[-1][row], expected, **EXACT)


def test_of_long_axes_none_is_scaled():
    problem = pose(parse_model(DEEP), "auto", blobs())
    start = started(2, problem.network.num_parameters)
    few = coursed([rule(rule="shampoo", lr=0.1, max_size=1)] * 2, problem, start)
    plain = coursed([rule(rule="sgd", lr=0.1)] * 2, problem, start)
    torch.testing.assert_close(few[-1], plain[-1], **EXACT)


@pytest.mark.parametrize("exponent", [2, 4, 8])
def test_a_root_raised_to_its_power_is_the_inverse(exponent):
    A = random_symmetric(6, seed=3)
    H = torch.stack([A @ A, torch.zeros(6, 6, dtype=torch.float64)])
    H[0, 5], H[0, :, 5] = 0.0, 0.0
    eps = torch.tensor([[0.1], [0.5]], dtype=torch.float64)
    root = inverse_root(H, exponent, eps)
    shifted = H + eps[:, :, None] * torch.eye(6, dtype=torch.float64)
    product = torch.linalg.matrix_power(root, exponent) @ shifted
    eye = torch.eye(6, dtype=torch.float64).expand(2, 6, 6)
    torch.testing.assert_close(product, eye, rtol=0, atol=1e-11)


def test_a_model_whose_gradient_is_not_finite_diverges_alone():
    problem = pose(parse_model(DEEP), "auto", blobs())
    start = started(2, problem.network.num_parameters)
    gradient = slope(start, 0)
    gradient[0] = torch.inf
    now = step_at(0, 2, problem=problem)
    new = Updates([rule(rule="shampoo", lr=0.1)] * 2, start, problem).step(
        gradient, start, now
    )
    assert not new[0].isfinite().any()
    assert new[1].isfinite().all()


def test_memory_counts_the_squares_of_the_scaled_axes():
    spec = rule(rule="shampoo", lr=0.1, max_size=4)
    assert spec.scratch([(4, 3), (5,), (), (4, 9)], 8, 2) == 4 * (16 + 9 + 1 + 16)
