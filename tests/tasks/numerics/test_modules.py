"""Curvature of any module: against dense twins made with plain autograd."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from curvflow.tasks.numerics import (
    fisher,
    ggn,
    gradient_covariance,
    hessian,
    residual,
)
from curvflow.tasks.numerics.orders import ORDERS
from tests.tasks.toys import Attention, Recurrent


class Skip(nn.Module):
    """Convolutions with batch norm and a skip around them."""

    def __init__(self):
        super().__init__()
        self.conv1, self.norm = nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2)
        self.conv2, self.out = nn.Conv2d(2, 2, 3, padding=1), nn.Linear(8, 3)

    def forward(self, x):
        x = self.conv1(x)
        x = x + self.conv2(torch.tanh(self.norm(x)))
        return self.out(F.avg_pool2d(x, 2).flatten(1))


class Shared(nn.Module):
    """One layer used twice, under two names."""

    def __init__(self):
        super().__init__()
        self.first, self.out = nn.Linear(4, 4), nn.Linear(4, 3)
        self.second = self.first

    def forward(self, x):
        return self.out(torch.tanh(self.second(torch.tanh(self.first(x)))))


def make_transformer():
    layer = nn.TransformerEncoderLayer(4, 2, 4, dropout=0.0, batch_first=True)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(12, 3))


NETS = {
    "conv-norm-skip": (Skip, (1, 4, 4)),
    "shared": (Shared, (4,)),
    "attention": (Attention, (4,)),
    "lstm": (Recurrent, (4,)),
    "transformer": (make_transformer, (3, 4)),
}


def made(name, samples=7, dtype=torch.float64):
    make, shape = NETS[name]
    torch.manual_seed(0)
    module = make().to(dtype)
    x = torch.randn(samples, *shape, dtype=dtype)
    module(x)  # moves running statistics away from their beginning
    return module.eval(), x, torch.arange(samples) % 3


def flat(tensors):
    return torch.cat([t.flatten() for t in tensors])


def rows_of(values, module):
    """Return the gradients of some numbers, one row each, (R, D)."""
    leaves = list(module.parameters())
    rows = [
        flat(
            torch.autograd.grad(
                v, leaves, retain_graph=True, materialize_grads=True, allow_unused=True
            )
        )
        for v in values.flatten()
    ]
    return torch.stack(rows)


def dense_hessian(module, x, y, loss=F.cross_entropy):
    with sdpa_kernel(SDPBackend.MATH):
        slopes = torch.autograd.grad(
            loss(module(x), y), list(module.parameters()), create_graph=True
        )
        return rows_of(flat(slopes), module)


def dense_ggn(module, x, y):
    """Cross entropy's, from the Jacobian and diag p - p p'."""
    with sdpa_kernel(SDPBackend.MATH):
        outputs = module(x)
        J_NCD = rows_of(outputs, module).view(*outputs.shape, -1)
    p = outputs.softmax(-1).detach()
    B_NCC = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    return torch.einsum("nci,ncd,ndj->ij", J_NCD, B_NCC, J_NCD) / len(x)


def dense_rows(module, x, y):
    with sdpa_kernel(SDPBackend.MATH):
        return rows_of(F.cross_entropy(module(x), y, reduction="none"), module)


def columns_of(operator):
    return operator @ torch.eye(operator.shape[0], dtype=operator.dtype)


def assert_equal(found, expected, rtol=1e-10):
    near = {"rtol": 0, "atol": rtol * float(expected.abs().max())}
    torch.testing.assert_close(found, expected, **near)


@pytest.mark.parametrize("name", NETS)
def test_every_operator_is_its_dense_twin(name):
    module, x, y = made(name)
    take = (module, nn.CrossEntropyLoss(), (x, y))
    H, G = dense_hessian(module, x, y), dense_ggn(module, x, y)
    rows = dense_rows(module, x, y)
    E, g = rows.T @ rows / len(x), rows.mean(0)
    order = "forward_over_reverse"
    assert_equal(columns_of(hessian(*take, order=order)), H)
    assert_equal(columns_of(residual(*take, order=order)), H - G)
    assert_equal(columns_of(ggn(*take)), G)
    assert_equal(columns_of(fisher(*take, kind="type-2")), G)
    assert_equal(columns_of(fisher(*take, kind="empirical")), E)
    assert_equal(columns_of(gradient_covariance(*take)), E - torch.outer(g, g))


@pytest.mark.parametrize("order", [o for o in ORDERS if o != "forward_over_reverse"])
@pytest.mark.parametrize("name", NETS)
def test_every_order_gives_the_same_hessian(name, order):
    module, x, y = made(name)
    v = torch.randn(sum(p.numel() for p in module.parameters()), 2).double()
    found, expected = (
        hessian(module, "cross_entropy", (x, y), order=o) @ v
        for o in (order, "forward_over_reverse")
    )
    assert_equal(found, expected)


@pytest.mark.parametrize("name", ["lstm", "transformer"])
def test_single_precision_takes_differentiable_routes_too(name):
    exact = made(name)
    module, x, y = made(name, dtype=torch.float32)
    module.load_state_dict(exact[0].state_dict())
    x = exact[1].float()
    H, G = (twin(exact[0], exact[1], y) for twin in (dense_hessian, dense_ggn))
    order = "forward_over_reverse"
    found = columns_of(hessian(module, F.cross_entropy, (x, y), order=order))
    assert_equal(found.double(), H, rtol=1e-4)
    found = columns_of(ggn(module, F.cross_entropy, (x, y)))
    assert_equal(found.double(), G, rtol=1e-4)
