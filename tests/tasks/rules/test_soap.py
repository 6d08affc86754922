"""SOAP, against a plain loop with the eigenvectors of dense matrices."""

import numpy as np
import pytest
import torch

from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.problems import pose
from curvflow.tasks.rules.matrices import RAMP, eigenvectors
from curvflow.tasks.training.updates import Updates
from tests.tasks.rules.checks import rule, started, step_at
from tests.tasks.rules.test_shampoo import DEEP, coursed, slope
from tests.tasks.toys import blobs, random_symmetric
from tests.tasks.training.test_convolutional_training import NORM, images

# For the tests that hold for all rules.
SETTINGS = [
    {"lr": 0.02},
    {"lr": 0.01, "beta1": 0.5, "beta2": 0.8, "update_every": 2, "weight_decay": 0.2},
    {"lr": 0.02, "eps": 0.01, "max_size": 4, "update_every": 1},
]

# Where gradients have been zero, eigenvectors are as sharp as the ramp is steep.
CLOSE = {"rtol": 1e-7, "atol": 1e-8}


def basis(H):
    ramp = np.diag(np.linspace(0, RAMP, len(H)) * np.trace(H) / len(H))
    return np.linalg.eigh(H + ramp)[1]


def looped(
    start, shapes, lr, beta1=0.95, beta2=0.95, eps=1e-8, weight_decay=0.01,
    update_every=10, max_size=1024, steps=8,
):  # fmt: skip
    """Step one model, matrix by matrix."""
    pieces = [piece.numpy() for piece in start.split([int(np.prod(s)) for s in shapes])]
    flat = [(s[0], int(np.prod(s[1:]))) if len(s) > 1 else (1, *s) for s in shapes]
    turns = [
        [len(s) > 1 and size <= max_size for size in f]
        for s, f in zip(shapes, flat, strict=True)
    ]
    W = [piece.reshape(f).copy() for piece, f in zip(pieces, flat, strict=True)]
    M, V = [np.zeros(f) for f in flat], [np.zeros(f) for f in flat]
    L, R = [np.zeros((r, r)) for r, _ in flat], [np.zeros((c, c)) for _, c in flat]
    QL, QR = [np.eye(r) for r, _ in flat], [np.eye(c) for _, c in flat]
    for t in range(steps):
        for n in range(len(W)):
            G = slope(torch.tensor(W[n]), t).numpy()
            L[n] = beta2 * L[n] + (1 - beta2) * G @ G.T
            R[n] = beta2 * R[n] + (1 - beta2) * G.T @ G
            if t > 0:
                M[n] = beta1 * M[n] + (1 - beta1) * G
                V[n] = beta2 * V[n] + (1 - beta2) * (QL[n].T @ G @ QR[n]) ** 2
                mean = QL[n].T @ M[n] @ QR[n] / (1 - beta1**t)
                N = QL[n] @ (mean / (np.sqrt(V[n] / (1 - beta2**t)) + eps)) @ QR[n].T
                W[n] = (1 - lr * weight_decay) * W[n] - lr * N
            if t % update_every == 0:
                QL[n] = basis(L[n]) if turns[n][0] else QL[n]
                QR[n] = basis(R[n]) if turns[n][1] else QR[n]
        yield torch.tensor(np.concatenate([w.ravel() for w in W]))


@pytest.mark.parametrize(
    ("data", "model"), [(blobs(), DEEP), (images(), NORM)], ids=["mlp", "convolutions"]
)
def test_every_step_is_that_of_a_plain_loop(data, model):
    problem = pose(parse_model(model), "auto", data)
    start = started(len(SETTINGS), problem.network.num_parameters)
    course = coursed([rule(rule="soap", **s) for s in SETTINGS], problem, start)
    for row, fields in enumerate(SETTINGS):
        expected = looped(start[row], problem.network.layout.shapes, **fields)
        for weights, wanted in zip(course, expected, strict=True):
            torch.testing.assert_close(weights[row], wanted, **CLOSE)


def test_without_any_rotation_it_is_adamw_a_step_later():
    problem = pose(parse_model(DEEP), "auto", blobs())
    start = started(2, problem.network.num_parameters)
    fields = {"lr": 0.02, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1}
    few = coursed([rule(rule="soap", max_size=1, **fields)] * 2, problem, start)
    plain = coursed([rule(rule="adamw", **fields)] * 2, problem, start, first=1)
    assert torch.equal(few[0], start)
    torch.testing.assert_close(few[-1], plain[-1], rtol=1e-12, atol=1e-14)


def test_rotated_gradients_take_rotated_steps():
    problem = pose(parse_model({"kind": "linear"}), "auto", blobs())
    size, steps = problem.network.num_parameters, 12
    drawn = torch.Generator().manual_seed(5)
    G = torch.randn(steps, 3, 3, generator=drawn, dtype=torch.float64)
    U, V = (torch.linalg.qr(random_symmetric(3, seed=n)).Q for n in (1, 2))
    spec = rule(rule="soap", lr=0.1, update_every=3)
    weights = torch.zeros(2, size, dtype=torch.float64)
    updates = Updates([spec] * 2, weights, problem)
    for count in range(steps):
        gradient = torch.zeros_like(weights)
        gradient[:, :9] = torch.stack([G[count], U @ G[count] @ V]).flatten(1)
        now = step_at(count, 2, problem=problem)
        weights = updates.step(gradient, weights, now)
    plain, turned = weights[:, :9].unflatten(1, (3, 3))
    torch.testing.assert_close(turned, U @ plain @ V, rtol=0, atol=1e-4)
    assert plain.abs().min() > 1e-3


def test_eigenvectors_diagonalise_and_equal_eigenvalues_do_not_leave_them_open():
    A = random_symmetric(5, seed=1)
    low = A[:, :2] @ A[:, :2].T
    H = torch.stack([A @ A, low, torch.zeros_like(low)])
    Q = eigenvectors(H)
    eye = torch.eye(5, dtype=torch.float64)
    torch.testing.assert_close(Q.mT @ Q, eye.expand(3, 5, 5), rtol=0, atol=1e-12)
    inside = Q.mT @ H @ Q
    rest = inside - torch.diag_embed(inside.diagonal(dim1=1, dim2=2))
    assert rest.abs().max() < 10 * RAMP * H.abs().max()
    noise = 1e-15 * random_symmetric(5, seed=2) * low.norm()
    other = eigenvectors((low + noise)[None])[0]
    torch.testing.assert_close((Q[1].T @ other).abs(), eye, rtol=0, atol=1e-6)
    torch.testing.assert_close(Q[2], eye, rtol=0, atol=0)


def test_a_model_whose_gradient_is_not_finite_diverges_alone():
    problem = pose(parse_model(DEEP), "auto", blobs())
    start = started(2, problem.network.num_parameters)
    gradient = slope(start, 0)
    gradient[0] = torch.nan
    updates, new = Updates([rule(rule="soap")] * 2, start, problem), start
    for count in range(2):
        now = step_at(count, 2, problem=problem)
        new = updates.step(gradient, new, now)
    assert not new[0].isfinite().any()
    assert new[1].isfinite().all()


def test_memory_counts_the_squares_of_rotated_sides():
    spec = rule(rule="soap", max_size=20)
    assert spec.scratch([(4, 3), (5,), (2, 3, 9)], 8, 2) == 4 * (16 + 9 + 4)
