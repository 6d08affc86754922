"""Curvature of a network in training: statistics of batches, and masks that stay."""

from functools import cache, partial

import numpy as np
import pytest
import torch
from torch import nn

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.operators import OperatorParams
from curvflow.schemas.kinds.shared.vectors import VectorsParams
from curvflow.schemas.nodes import Member
from curvflow.tasks.curvature.operators import (
    block_sizes,
    product_bytes,
    sample_means,
    tile_operator,
)
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.registry import Machine
from tests.tasks.probes.test_sharpness import kept
from tests.tasks.toys import (
    blobs,
    compute,
    member,
    train_all,
    train_member,
    weights_of,
)

CHANCE = 0.25
DATA = blobs(num_samples=12, num_test=0)
CPU = Machine()


def make_net():
    """A batch norm and a dropout between two dense layers."""
    return nn.Sequential(
        nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Dropout(CHANCE),
        nn.Linear(4, 3),
    )  # fmt: skip


@cache
def fits():
    model = {"factory": f"{__name__}:make_net"}
    several = [
        train_member(DATA, model=model, seed=s, epochs=2, keep_preconditioner=True)
        for s in (0, 1)
    ]
    return train_all(several)


def members(seeds=(5, 6), kind=OperatorParams, **params):
    given = {"mode": "train", "train_batch_size": 5, **params}
    return [
        Member(kind(seed=seed, **given), {"weights": [weights_of(fit)], "data": [DATA]})
        for seed, fit in zip(seeds, fits(), strict=True)
    ]


def dense(several):
    operator = tile_operator(several, CPU, columns=4).operator
    eye = torch.eye(operator.shape[1], dtype=operator.dtype)
    return operator @ eye.expand(len(several), -1, -1)


def batches(seed, size):
    """Yield samples and outputs of each batch by formulas, and the loss of outputs.

    The norm is that of the batch, and masks are of the seed's stream.
    """
    count = 12
    x, labels = (torch.as_tensor(DATA[name]) for name in ("inputs", "targets"))
    shapes = [p.shape for p in make_net().parameters()]
    sizes = [p.numel() for p in make_net().parameters()]

    def outputs(w, rows, kept):
        pieces = zip(w.split(sizes), shapes, strict=True)
        W1, b1, scale, shift, W2, b2 = (p.reshape(s) for p, s in pieces)
        h = x[rows] @ W1.T + b1
        spread = (h - h.mean(0)).square().mean(0)
        h = torch.tanh((h - h.mean(0)) / (spread + 1e-5).sqrt() * scale + shift)
        return h * kept / (1 - CHANCE) @ W2.T + b2

    def loss(f, rows):
        return nn.functional.cross_entropy(f, labels[rows].long(), reduction="sum")

    for number, first in enumerate(range(0, count, size)):
        rows = slice(first, min(first + size, count))
        draws = stream(seed, f"dropout:{number}")
        shape = len(x[rows]), 4
        kept = torch.rand(shape, generator=draws, dtype=torch.float64) >= CHANCE
        yield partial(outputs, rows=rows, kept=kept), partial(loss, rows=rows)


def parameters(fit):
    size = sum(p.numel() for p in make_net().parameters())
    return torch.as_tensor(fit.arrays["weights"][-1])[:size]


def loss_by_hand(w, seed, size):
    return sum(loss(f(w)) for f, loss in batches(seed, size)) / 12


def by_hand(fit, seed, size, *, is_ggn=False):
    """The matrix by formulas for the norm, with masks of the seed's stream."""
    w = parameters(fit)
    if not is_ggn:
        return torch.autograd.functional.hessian(
            lambda w: loss_by_hand(w, seed, size), w
        )
    total = torch.zeros(len(w), len(w), dtype=torch.float64)
    for f, loss in batches(seed, size):
        J = torch.autograd.functional.jacobian(f, w).flatten(0, 1)
        B = torch.autograd.functional.hessian(loss, f(w))
        total += J.T @ B.reshape(len(J), len(J)) @ J
    return total / 12


@pytest.mark.parametrize("size", [5, None])
def test_the_hessian_is_that_of_the_mean_loss_of_batches(size):
    got = dense(members(train_batch_size=size))
    for matrix, fit, seed in zip(got, fits(), (5, 6), strict=True):
        twin = by_hand(fit, seed, size or 12)
        torch.testing.assert_close(matrix, twin, rtol=0, atol=1e-10)


def test_the_ggn_goes_through_the_statistics_as_well():
    got = dense(members(operator="ggn"))
    twin = by_hand(fits()[0], 5, 5, is_ggn=True)
    torch.testing.assert_close(got[0], twin, rtol=0, atol=1e-10)
    rest = dense(members(operator="residual"))
    torch.testing.assert_close(got + rest, dense(members()), rtol=0, atol=1e-10)


@pytest.mark.parametrize("order", ["reverse_over_reverse", "retained", "linearised"])
def test_orders_of_differentiation_take_the_same_masks(order):
    torch.testing.assert_close(
        dense(members(order=order)), dense(members()), rtol=0, atol=1e-10
    )


def test_a_model_is_measured_alike_whatever_its_siblings_and_however_often():
    operator = tile_operator(members(), CPU, columns=1).operator
    v = torch.ones(2, operator.shape[1], dtype=torch.float64)
    assert torch.equal(operator @ v, operator @ v)
    alone = operator.select(torch.tensor([1]))
    torch.testing.assert_close(alone @ v[:1], (operator @ v)[1:], rtol=0, atol=1e-14)
    other = tile_operator(members(seeds=(5, 7)), CPU, columns=1).operator
    changed = (operator @ v - other @ v).abs().amax(1)
    assert changed[0] < 1e-14
    assert changed[1] > 1e-3


def test_layers_take_their_block_of_it():
    part = members(layers=("0.*", "4.bias"))
    sizes = list(block_sizes(members()[0]).values())
    index = torch.arange(sum(sizes)).split(sizes)
    index = torch.cat([index[0], index[1], index[5]])
    whole = dense(members())[:, index][:, :, index]
    torch.testing.assert_close(dense(part), whole, rtol=0, atol=1e-14)


def test_it_is_recorded_how_a_network_was_measured_and_memory_is_counted():
    said = []

    class Partial:
        record = staticmethod(said.append)

    tile_operator(members(), Machine(partial=Partial()), columns=1)
    assert any("batches of 5 in the order of the data" in line for line in said)
    small, large = (product_bytes(members(train_batch_size=n)[0], 8) for n in (2, 12))
    assert np.isfinite(small)
    assert small < large


def probed(kind, **params):
    """Return results of both networks in training, and in evaluation."""
    given = dict(params)
    modes = ({"mode": "train", "train_batch_size": 5}, {})
    several = [
        member(kind, {**given, **mode, "seed": seed}, weights=kept(fit), data=DATA)
        for mode in modes
        for fit, seed in zip(fits(), (5, 6), strict=True)
    ]
    return compute(kind, several[:2]), compute(kind, several[2:])


def test_the_hessian_trace_is_that_of_the_matrix_in_training():
    params = {"num_probes": 400, "distribution": "gaussian"}
    training, evaluation = probed("probe.hessian_trace", **params)
    for got, used, fit, seed in zip(training, evaluation, fits(), (5, 6), strict=True):
        truth, sem = by_hand(fit, seed, 5).trace().item(), got.arrays["trace_sem"]
        assert abs(got.arrays["trace"] - truth) < 4 * sem
        assert abs(used.arrays["trace"] - truth) > 4 * sem


def test_sharpness_and_critical_rate_are_those_of_the_loss_in_training():
    training, evaluation = probed("probe.sharpness", critical_tol=1e-4, tol=1e-8)
    for got, used, fit, seed in zip(training, evaluation, fits(), (5, 6), strict=True):
        w = parameters(fit).requires_grad_()
        largest = torch.linalg.eigvalsh(by_hand(fit, seed, 5))[-1].item()
        assert got.arrays["sharpness"] == pytest.approx(largest, rel=1e-6)
        assert abs(used.arrays["sharpness"] / largest - 1) > 0.01
        here = loss_by_hand(w, seed, 5)
        (slope,) = torch.autograd.grad(here, w)
        with torch.no_grad():
            rate = got.arrays["critical_lr"].item()
            ends = [
                loss_by_hand(w - part * rate * slope, seed, 5) - here
                for part in (0.999, 1.001)
            ]
        assert ends[0] < 0 < ends[1]


def test_means_over_other_samples_are_refused():
    operator = sample_means(members(), CPU).operator
    rows = torch.zeros(2, 2, dtype=torch.int64)
    with pytest.raises(InputError, match="samples that meet in their batch"):
        operator.of_samples(torch.arange(2), rows)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"train_batch_size": 4},
            "train_batch_size cannot be combined with mode eval",
        ),
        (
            {"mode": "train", "operator": "gradient_covariance"},
            "mode train cannot be combined with operator gradient_covariance",
        ),
        (
            {"mode": "train", "probes_per": "batch"},
            "probes_per batch cannot be combined with mode train",
        ),
    ],
)
def test_what_has_no_meaning_is_refused(params, message):
    with pytest.raises(ValueError, match=message):
        VectorsParams.model_validate(params)
