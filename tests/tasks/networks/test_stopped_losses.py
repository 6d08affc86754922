"""Losses whose own code stops derivatives: weights of samples that are constants."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.tasks.numerics import fisher, ggn, gradient_covariance, hessian, residual
from curvflow.tasks.numerics.derivatives.differentiation_modes import ORDERS
from curvflow.testing import (
    assert_operator_is,
    dense_ggn,
    dense_hessian,
    sample_gradients,
)
from tests.tasks.toys import (
    as_data,
    matrix_of,
    member,
    train_all,
    train_member,
    weights_of,
)

STOPS = ["no_grad", "decorated", "set", "data", "within"]
OPERATORS = [
    *[{"operator": "hessian", "order": order} for order in ORDERS],
    *[{"operator": name} for name in ("residual", "ggn", "fisher_empirical")],
    {"operator": "gradient_covariance"},
]


def _weights(losses):
    return (1 - (-losses).exp()).square() + losses.square()


def _stopped(losses, how):
    """Return weights of samples by their losses, without derivatives."""
    if how == "decorated":
        return torch.no_grad()(_weights)(losses)
    if how == "set":
        torch.set_grad_enabled(False)
        weights = _weights(losses)
        torch.set_grad_enabled(True)
        return weights
    if how == "data":
        return _weights(losses.data)
    if how == "detach":
        return _weights(losses).detach()
    with torch.no_grad():
        weights = _weights(losses)
        if how == "within":
            with torch.enable_grad():
                weights = weights + losses
    return weights


def focal(outputs, targets, how, reduction="none"):
    """Return losses of which large ones weigh more."""
    losses = F.cross_entropy(outputs, targets, reduction="none")
    weighed = _stopped(losses, how) * losses
    return weighed.mean() if reduction == "mean" else weighed


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("how", STOPS)
def test_weights_without_gradients_are_constant_in_every_matrix(how, reduction):
    torch.manual_seed(STOPS.index(how))
    module = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 3)).double()
    x, y = torch.randn(7, 3).double(), torch.arange(7) % 3

    def loss(outputs, targets):
        return focal(outputs, targets, how, reduction)

    def mean(outputs, targets):
        return focal(outputs, targets, how, "mean")

    of = module, loss, (x, y)
    H, G = (twin(module, mean, x, y) for twin in (dense_hessian, dense_ggn))
    for order in ORDERS:
        assert_operator_is(hessian(*of, order=order), H)
        assert_operator_is(residual(*of, order=order), H - G)
    assert_operator_is(ggn(*of), G)
    rows = sample_gradients(module, mean, x, y)
    assert_operator_is(fisher(*of, kind="empirical"), rows.T @ rows / len(x))
    centred = rows - rows.mean(0)
    assert_operator_is(gradient_covariance(*of), centred.T @ centred / len(x))


@pytest.mark.parametrize("how", STOPS[:4])
def test_they_are_in_studies(how):
    draw = np.random.default_rng(0)
    data = as_data(dataset(draw.normal(size=(9, 3)), np.arange(9) % 3))

    def matrices(name):
        loss = {"factory": f"{__name__}:focal", "kwargs": {"how": name}}
        (outcome,) = train_all([train_member(data, loss=loss)])
        weights = weights_of(outcome)
        for params in OPERATORS:
            probe = member("probe.trace", params, weights=weights, data=data)
            yield matrix_of(probe)

    for params, found, twin in zip(
        OPERATORS, matrices(how), matrices("detach"), strict=True
    ):
        torch.testing.assert_close(found, twin, rtol=1e-9, atol=1e-11, msg=str(params))


def halved(outputs, targets):
    if outputs.requires_grad:
        outputs.register_hook(lambda slope: slope / 2)
    return F.cross_entropy(outputs, targets, reduction="none")


def recorded(outputs, targets):
    if outputs.requires_grad:
        outputs.register_hook(lambda slope: None)
    return F.cross_entropy(outputs, targets, reduction="none")


def drawn(outputs, targets):
    noise = torch.rand_like(outputs)
    return F.cross_entropy(outputs + noise, targets, reduction="none")


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.ones(()))
        self.calls = 0

    def forward(self, outputs, targets):
        self.calls += 1
        losses = F.cross_entropy(outputs, targets, reduction="none")
        return losses / (1 + self.calls)


class Running(Counting):
    def forward(self, outputs, targets):
        losses = F.cross_entropy(outputs, targets, reduction="none")
        self.mean.mul_(0.9).add_(losses.detach().mean())
        return losses / self.mean


SAID = {"halved": "a hook", "drawn": "equal", "Counting": "equal", "Running": "equal"}


@pytest.mark.parametrize("name", SAID)
def test_a_loss_that_is_no_function_or_changes_gradients_is_refused(name):
    torch.manual_seed(0)
    module = nn.Linear(3, 3)
    x, y = torch.randn(6, 3), torch.arange(6) % 3
    loss = globals()[name]
    loss = loss() if isinstance(loss, type) else loss
    with pytest.raises(InputError, match=rf"^loss.*{SAID[name]}"):
        hessian(module, loss, (x, y))
    data = as_data(dataset(x.numpy(), y.numpy()))
    spec = {"factory": f"{__name__}:{name}", "kwargs": {}}
    # A study gives a module the buffers of its own at each call.
    said = "their own sample alone" if name == "Running" else SAID[name]
    with pytest.raises(InputError, match=rf"^loss.*{said}"):
        train_all([train_member(data, loss=spec)])


def test_a_hook_of_a_loss_that_looks_on_is_none_of_it():
    torch.manual_seed(0)
    module = nn.Linear(3, 3).double()
    x, y = torch.randn(6, 3).double(), torch.arange(6) % 3
    H = dense_hessian(module, F.cross_entropy, x, y)
    for order in ORDERS:
        assert_operator_is(hessian(module, recorded, (x, y), order=order), H)
