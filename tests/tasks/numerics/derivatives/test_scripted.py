"""What torch.jit compiles is derived by reverse mode, and refused in studies."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import curvflow
from curvflow.errors import InputError
from curvflow.schemas.models import parse_model
from curvflow.tasks.models.factory import build
from curvflow.tasks.networks.losses import Rows, check_own_loss

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")

X = torch.randn(9, 3, generator=torch.Generator().manual_seed(0)).double()
Y = torch.arange(9) % 3
EYE = torch.eye(38, dtype=torch.float64)


def bent(x):
    return torch.tanh(x) * 2.0 + x * x


class Bent(nn.Module):
    def __init__(self, scripted):
        super().__init__()
        self.first, self.last = nn.Linear(3, 5), nn.Linear(5, 3)
        self.bend = torch.jit.script(bent) if scripted else bent

    def forward(self, x):
        return self.last(self.bend(self.first(x)))


def plain():
    torch.manual_seed(1)
    return Bent(scripted=False).double()


def scripted(how):
    """Return the same module compiled, called as often as compiling takes."""
    net = plain()
    if how == "script":
        net = torch.jit.script(net)
    elif how == "trace":
        net = torch.jit.trace(net, X)
    else:
        net.bend = torch.jit.script(bent)
    for _ in range(3):
        nn.functional.cross_entropy(net(X), Y).backward()
    return net


HOWS = ("script", "trace", "function")


@pytest.mark.parametrize("order", ["reverse_over_reverse", "retained", "auto"])
@pytest.mark.parametrize("how", HOWS)
def test_products_are_those_of_the_module_in_python(how, order):
    data, loss = (X, Y), nn.CrossEntropyLoss()
    expected = curvflow.hessian(plain(), loss, data) @ EYE
    got = curvflow.hessian(scripted(how), loss, data, order=order) @ EYE
    torch.testing.assert_close(got, expected)
    for kind in (curvflow.ggn, curvflow.gradient_covariance):
        got, expected = (
            kind(net, loss, data) @ EYE for net in (scripted(how), plain())
        )
        torch.testing.assert_close(got, expected)


def test_coefficients_are_those_of_the_module_in_python():
    few = {"num_draws": 10, "num_chains": 2, "num_burnin_steps": 10}
    got, expected = (
        curvflow.llc(net, "cross_entropy", (X, Y), **few).llc_mean
        for net in (scripted("function"), plain())
    )
    assert got == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("order", ["forward_over_reverse", "linearised"])
@pytest.mark.parametrize("how", ["script", "function"])
def test_forward_mode_that_leaves_a_part_out_is_refused(how, order):
    net = scripted(how)
    with pytest.raises(InputError, match=f"order: {order} cannot be combined with"):
        curvflow.hessian(net, "cross_entropy", (X, Y), order=order) @ EYE


def make_bent(scripted):
    return Bent(scripted)


def test_a_study_refuses_functions_that_are_compiled():
    for scripts in (False, True):
        spec = parse_model(
            {"factory": f"{__name__}:make_bent", "kwargs": {"scripted": scripts}}
        )
        if not scripts:
            assert build(spec, (3,), 3).num_parameters == 38
            continue
        with pytest.raises(InputError, match="expected a module in Python, got funct"):
            build(spec, (3,), 3)


def distance(outputs: torch.Tensor, targets: torch.Tensor):
    return (torch.tanh(outputs - targets) * (outputs - targets)).sum(1)


def scripted_loss():
    return torch.jit.script(distance)


def test_a_study_refuses_a_loss_that_is_compiled():
    text = json.dumps({"factory": f"{__name__}:scripted_loss", "kwargs": {}})
    with pytest.raises(InputError, match=r"loss: expected .* to be in Python"):
        check_own_loss(text, (2,), Rows.of(np.arange(8.0).reshape(4, 2)))
