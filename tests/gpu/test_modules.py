"""Operators of a user's module that is on a GPU, against dense twins there."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from curvflow.tasks.numerics import (
    fisher,
    ggn,
    gradient_covariance,
    hessian,
    residual,
)
from curvflow.tasks.numerics.derivatives.differentiation_modes import ORDERS
from curvflow.testing import (
    assert_operator_is,
    dense_ggn,
    dense_hessian,
    sample_gradients,
)
from tests.gpu.cards import DEVICE, assert_alike, on_a_gpu
from tests.tasks.numerics.derivatives.test_modules import (
    NETS,
    batch_of,
    made,
    operators,
    small,
)
from tests.tasks.toys import Recurrent

pytestmark = on_a_gpu

MORE = {
    "gru": (lambda: Recurrent("GRU"), (4,)),
    "lstm-cell": (lambda: Recurrent("LSTMCell"), (4,)),
}


def twins(name, monkeypatch):
    """Return a module with its batch on the CPU, and a copy of both on the GPU."""
    for more, made_of in MORE.items():
        monkeypatch.setitem(NETS, more, made_of)
    module, x, y = made(name)
    return (module, x, y), (made(name)[0].to(DEVICE), x.to(DEVICE), y.to(DEVICE))


@pytest.mark.parametrize("name", [*NETS, *MORE])
def test_every_operator_is_its_dense_twin(name, monkeypatch):
    (plain, *batch), (module, x, y) = twins(name, monkeypatch)
    take = (module, nn.CrossEntropyLoss(), (x, y))
    H = dense_hessian(plain, F.cross_entropy, *batch)
    G = dense_ggn(plain, F.cross_entropy, *batch)
    rows = sample_gradients(plain, F.cross_entropy, *batch)
    E, g = rows.T @ rows / len(x), rows.mean(0)
    order = "forward_over_reverse"
    assert_operator_is(hessian(*take, order=order), H)
    assert_operator_is(residual(*take, order=order), H - G)
    assert_operator_is(ggn(*take), G)
    assert_operator_is(fisher(*take, kind="type-2"), G)
    assert_operator_is(fisher(*take, kind="empirical"), E)
    assert_operator_is(gradient_covariance(*take), E - torch.outer(g, g))


@pytest.mark.parametrize("name", [*NETS, *MORE])
@pytest.mark.parametrize("order", ["auto", *ORDERS])
def test_every_order_gives_the_same_products(name, order, monkeypatch):
    (plain, *batch), (module, x, y) = twins(name, monkeypatch)
    H = dense_hessian(plain, F.cross_entropy, *batch)
    v = torch.randn(len(H), 2, dtype=H.dtype)
    found = hessian(module, "cross_entropy", (x, y), order=order) @ v.to(DEVICE)
    assert_alike(found, H @ v, rtol=1e-10)


@pytest.mark.parametrize("name", ["conv-norm-skip", "lstm", "transformer"])
def test_products_in_single_precision_are_not_rounded_further(name, monkeypatch):
    # Convolutions of a GPU have 10 bits for their factors unless asked otherwise.
    (plain, *batch), (module, x, y) = twins(name, monkeypatch)
    H = dense_hessian(plain, F.cross_entropy, *batch)
    v = torch.randn(len(H), 2, dtype=H.dtype)
    take = (module.float(), "cross_entropy", (x.float(), y))
    assert_alike(hessian(*take) @ v.float().to(DEVICE), H @ v, rtol=1e-5)
    G = dense_ggn(plain, F.cross_entropy, *batch)
    assert_alike(ggn(*take) @ v.float().to(DEVICE), G @ v, rtol=1e-5)


@pytest.mark.parametrize("loss", ["cross_entropy", "mse", "sse"])
def test_batches_may_stay_on_the_cpu(loss):
    x, y = batch_of(labels=loss == "cross_entropy")
    there = small().to(DEVICE)
    v = torch.randn(43, 2).double()
    loader = DataLoader(TensorDataset(x, y), batch_size=7)
    expected = operators(small(), loss, (x, y))
    for data in ((x, y), loader, (x.to(DEVICE), y.to(DEVICE))):
        for name, operator in operators(there, loss, data).items():
            found = operator @ v.to(DEVICE)
            assert found.device == DEVICE
            assert_alike(found, expected[name] @ v, rtol=1e-10, name=name)


def test_the_streams_of_the_gpu_are_left_as_they_were():
    net = nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.5), nn.Linear(5, 3))
    net = net.double().eval().to(DEVICE)
    before = torch.cuda.get_rng_state(DEVICE), torch.get_rng_state()
    operator = hessian(net, "cross_entropy", batch_of())
    operator @ torch.ones(operator.shape[0], dtype=torch.float64, device=DEVICE)
    after = torch.cuda.get_rng_state(DEVICE), torch.get_rng_state()
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
