"""Kronecker factors of modules without a study."""

import pytest
import torch
from torch import nn

import curvflow
from curvflow.errors import InputError

LOSSES = {
    "cross_entropy": nn.CrossEntropyLoss(),
    "mse": "mse",
    "huber": nn.SmoothL1Loss(),
    "poisson": "poisson",
}


def made(loss, samples=6):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Unflatten(1, (1, 5)), nn.Conv1d(1, 2, 3), nn.Tanh(), nn.Flatten(),
            nn.Linear(6, 3),
        ).double()  # fmt: skip
        inputs = torch.randn(samples, 5).double()
        values = torch.rand(samples, 3).double()
        labels = torch.randint(3, (samples,))
    return net, inputs, labels if loss == "cross_entropy" else values


@pytest.mark.parametrize("name", LOSSES)
def test_blocks_are_those_of_the_operator(name):
    net, inputs, targets = made(name)
    given = net, LOSSES[name], (inputs, targets)
    G = curvflow.ggn(*given) @ torch.eye(29).double()
    K = curvflow.kronecker(*given, structure="block", psd="clip")
    dense = K @ torch.eye(29).double()
    for rows in (slice(0, 8), slice(8, 29)):
        torch.testing.assert_close(dense[rows, rows], G[rows, rows])
    assert float(dense[:8, 8:].abs().max()) == 0
    inverse = torch.linalg.inv(dense + 0.1 * torch.eye(29).double())
    torch.testing.assert_close(K.solve(torch.eye(29).double(), 0.1), inverse)
    exact = torch.logdet(dense + 0.1 * torch.eye(29).double())
    assert K.logdet(0.1) == pytest.approx(float(exact))


def test_batches_are_all_samples_together():
    net, inputs, targets = made("mse")
    whole = curvflow.kronecker(net, "mse", (inputs, targets))
    parts = [(inputs[:2], targets[:2]), (inputs[2:], targets[2:])]
    apart = curvflow.kronecker(net, "mse", parts)
    vector = torch.arange(29).double()
    torch.testing.assert_close(whole @ vector, apart @ vector)


def test_the_factored_inverse_is_of_both_damped_factors():
    net, inputs, targets = made("cross_entropy")
    K = curvflow.kronecker(net, "cross_entropy", (inputs, targets), layers=["4.*"])
    (block,) = K.blocks.blocks
    damping, vector = 0.3, torch.arange(21).double()
    left, right = block.left_factor[0, 0], block.right_factor[0, 0]
    ratio = (right.trace() / 7 / (left.trace() / 3)).sqrt()
    eyes = torch.eye(3).double(), torch.eye(7).double()
    whole = torch.kron(
        left + eyes[0] * damping**0.5 / ratio, right + eyes[1] * damping**0.5 * ratio
    )
    # In a block the bias is the last column of its weight.
    places = block.columns
    expected = torch.zeros(21).double()
    expected[places] = torch.linalg.solve(whole, vector[places])
    torch.testing.assert_close(K.solve(vector, damping, pi="trace"), expected)
    excess = whole - torch.kron(left, right) - damping * torch.eye(21).double()
    assert torch.linalg.eigvalsh(excess).min() > -1e-12


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"structure": "low-rank"}, r"^structure: "),
        ({"layers": ["dense.*"]}, r"^params: expected names of parameters"),
        ({"curvature": "hessian"}, r"^fisher_type: expected dense layers"),
        ({"damping": 1.0}, r"^damping: expected one of"),
    ],
    ids=["structure", "layers", "chain", "unknown"],
)
def test_what_cannot_be_taken_is_refused_in_one_line(given, message):
    net, inputs, targets = made("cross_entropy")
    with pytest.raises(InputError, match=message):
        curvflow.kronecker(net, "cross_entropy", (inputs, targets), **given)


def test_negative_damping_and_drawn_labels_of_unknown_losses_are_refused():
    net, inputs, targets = made("huber")
    given = net, nn.SmoothL1Loss(), (inputs, targets)
    with pytest.raises(InputError, match=r"^damping: expected a number of at least 0"):
        curvflow.kronecker(*given).solve(torch.ones(29).double(), -1.0)
    with pytest.raises(InputError, match=r"^fisher_type: mc cannot be combined"):
        curvflow.kronecker(*given, fisher_type="mc")
