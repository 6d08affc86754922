"""Slips of a first user, refused in one line, and modules of all sorts that pass."""

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import nn
from torch.func import functional_call

import curvflow
from curvflow.errors import InputError
from curvflow.tasks.numerics import from_scipy

Y = torch.tensor([0, 1, 2, 0, 1])


def drawn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).double()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (np.ones(12), r"expected a tensor, got ndarray\. Pass torch\.as_tensor"),
        ([1.0] * 12, r"expected a tensor, got list\. Pass torch\.as_tensor"),
        (torch.ones(11), r"expected shape \(12,\) or \(12, S\), got \(11,\)"),
        (torch.ones(2, 12), r"expected shape \(12,\) or \(12, S\), got \(2, 12\)"),
        (torch.ones(12) * 1j, r"expected real numbers, got torch\.complex64\. Mul"),
    ],
)
def test_what_an_operator_cannot_multiply_is_refused(columns, message):
    data = drawn(5, 3), Y
    net = nn.Linear(3, 3).double()
    factors = curvflow.kronecker(net, "cross_entropy", data)
    hessian = curvflow.hessian(net, "cross_entropy", data)
    for product in (
        hessian.__matmul__,
        curvflow.from_matrix(np.eye(12)).__matmul__,
        factors.__matmul__,
        factors.solve,
    ):
        with pytest.raises(InputError, match=f"columns: {message}"):
            product(columns)


def test_complex_vectors_are_refused_beside_scipy():
    ones = torch.ones(3).double() * 1j
    foreign = from_scipy(sparse.eye_array(3))
    for of, columns in (
        (curvflow.from_matrix(np.eye(3)).to_scipy(), ones.numpy()),
        (foreign.to_scipy(), ones.numpy()),
        (foreign, ones),
    ):
        with pytest.raises(InputError, match="columns: expected real numbers, got"):
            of @ columns


def test_vectors_of_another_precision_are_taken_in_that_of_the_operator():
    data, ones = (drawn(5, 3), Y), torch.ones(12)
    net = nn.Linear(3, 3).double()
    for operator in (
        curvflow.hessian(net, "cross_entropy", data),
        curvflow.from_matrix(np.diag(np.arange(12.0))),
        curvflow.kronecker(net, "cross_entropy", data),
    ):
        expected = operator @ ones.double()
        for given in (ones, ones.long()):
            assert torch.equal(operator @ given, expected)


def test_weights_without_numbers_are_named_until_they_have_some():
    with torch.device("meta"):
        net = nn.Sequential(nn.Linear(4, 3))
    data = (drawn(5, 4), Y)
    for take in (curvflow.hessian, curvflow.llc, curvflow.Monitor):
        with pytest.raises(InputError, match=r"got '0\.weight' on .* meta\. Move it"):
            take(net, "cross_entropy", data)
    net.to_empty(device="cpu").to(torch.float64)
    for weights in net.parameters():
        nn.init.ones_(weights)
    assert curvflow.hessian(net, "cross_entropy", data).shape == (15, 15)


def test_a_lazy_layer_is_named_until_it_is_called():
    net, data = nn.Sequential(nn.LazyLinear(3)), (drawn(5, 4), Y)
    for door in (curvflow.hessian, curvflow.llc, curvflow.Monitor):
        with pytest.raises(InputError, match=r"got '0\.weight', which a first call"):
            door(net, "cross_entropy", data)
    net.double()(data[0])
    assert curvflow.hessian(net, "cross_entropy", data).shape == (15, 15)


def test_data_that_require_a_gradient_are_data_as_well():
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    x = drawn(5, 3)
    for door in (curvflow.hessian, curvflow.ggn):
        expected, got = (
            door(net, "cross_entropy", (given, Y))
            for given in (x, x.clone().requires_grad_())
        )
        eye = torch.eye(expected.shape[0]).double()
        assert torch.equal(got @ eye, expected @ eye)
        assert got.trace().value == expected.trace().value


class Recurrent(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.cell = layer(2, 3, batch_first=True, bidirectional=True)
        self.last = nn.Linear(6, 3)

    def forward(self, x):
        return self.last(self.cell(x)[0][:, -1])


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("batch_size", [None, 3])
def test_a_recurrent_layer_has_a_coefficient(layer, batch_size):
    torch.manual_seed(0)
    net, x = Recurrent(layer).double(), drawn(5, 4, 2)
    how = {"num_draws": 8, "num_chains": 2, "num_burnin_steps": 4, "calibrate": "none"}
    given = {"sampling_method": "sgld", "lr": 1e-3, "localization": 1.0}
    fit = curvflow.llc(
        net,
        "cross_entropy",
        (x, Y),
        batch_size=batch_size,
        at_draws="full",
        keep_draws=True,
        **how,
        **given,
    )
    names = dict(net.named_parameters())
    for chain, draw in ((0, 0), (1, 7)):
        flat = torch.as_tensor(fit.draws[chain, draw])
        parts = torch.split(flat, [p.numel() for p in names.values()])
        tensors = {
            name: part.view_as(names[name])
            for name, part in zip(names, parts, strict=True)
        }
        loss = nn.functional.cross_entropy(functional_call(net, tensors, (x,)), Y)
        assert fit.loss_trace[chain, draw] == pytest.approx(float(loss), rel=1e-10)
