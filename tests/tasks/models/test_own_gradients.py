"""Modules that take a gradient of their own, as energy models and PINNs do."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from curvflow import ggn, hessian
from curvflow.errors import InputError
from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.problems import pose
from curvflow.testing import assert_operator_is, dense_ggn, dense_hessian
from tests.tasks.toys import (
    blobs,
    matrix_of,
    member,
    train_all,
    train_member,
    weights_of,
)


class Slope(nn.Module):
    """Outputs, and the gradient of an energy by the inputs or by hidden units."""

    def __init__(self, of="inputs", *, create_graph=True, enables=True):
        super().__init__()
        self.hidden, self.last = nn.Linear(3, 3), nn.Linear(3, 3)
        self.of, self.create_graph, self.enables = of, create_graph, enables

    def forward(self, x):
        with torch.enable_grad() if self.enables else nullcontext():
            x = x.detach().requires_grad_() if self.of == "inputs" else x
            hidden = self.hidden(x).tanh()
            if self.enables and not hidden.requires_grad:
                hidden.requires_grad_()
            by = x if self.of == "inputs" else hidden
            energy = hidden.square().sum()
            (slope,) = torch.autograd.grad(energy, by, create_graph=self.create_graph)
        return self.last(hidden) + slope


def factory(**kwargs):
    return {"factory": f"{__name__}:Slope", "kwargs": kwargs}


def fits(**kwargs):
    model = factory(**kwargs)
    return train_all([train_member(blobs(), model=model, seed=s) for s in (0, 1)])


def loss_at(fit):
    module, data = Slope().double(), blobs()
    shapes = {name: p.shape for name, p in module.named_parameters()}
    x = torch.as_tensor(data["inputs"]).double()
    y = torch.as_tensor(data["targets"]).long()

    def loss(w):
        parts = w.split([shape.numel() for shape in shapes.values()])
        pairs = zip(shapes.items(), parts, strict=True)
        named = {name: part.reshape(shape) for (name, shape), part in pairs}
        return F.cross_entropy(functional_call(module, named, (x,)), y)

    return loss, torch.as_tensor(fit.arrays["weights"][-1])


def test_a_gradient_by_inputs_is_trained_and_derived_as_the_function_that_it_is():
    several = fits()
    for fit in several:
        loss, w = loss_at(fit)
        probe = member(
            "probe.trace",
            {"operator": "hessian"},
            weights=weights_of(fit),
            data=blobs(),
        )
        H = torch.autograd.functional.hessian(loss, w)
        torch.testing.assert_close(matrix_of(probe), H, rtol=1e-7, atol=1e-9)
    torch.manual_seed(0)
    module, x, y = Slope().double(), torch.randn(6, 3).double(), torch.arange(6) % 3
    assert_operator_is(
        hessian(module, "cross_entropy", (x, y)),
        dense_hessian(module, F.cross_entropy, x, y),
    )
    assert_operator_is(
        ggn(module, "cross_entropy", (x, y)), dense_ggn(module, F.cross_entropy, x, y)
    )


def test_a_gradient_that_counts_as_a_constant_is_named_where_curvature_is_wanted():
    (fit, _) = fits(of="hidden", create_graph=False)
    network = pose(
        parse_model(factory(of="hidden", create_graph=False)), "auto", blobs()
    ).network
    assert network.derivatives == "first"
    for operator in ("hessian", "ggn"):
        probe = member(
            "probe.trace", {"operator": operator}, weights=weights_of(fit), data=blobs()
        )
        place = r"got test_own_gradients\.py:\d+ with first ones"
        with pytest.raises(InputError, match=place):
            matrix_of(probe)


@pytest.mark.parametrize(
    "how",
    [{"create_graph": False}, {"of": "hidden", "enables": False}],
)
def test_a_gradient_that_lacks_its_graph_is_refused_with_what_to_do(how):
    with pytest.raises(InputError, match=r"test_own_gradients.*create_graph=True"):
        pose(parse_model(factory(**how)), "auto", blobs())


@pytest.mark.parametrize("operator", [hessian, ggn])
def test_the_library_says_what_to_do_where_a_graph_is_freed(operator):
    module, x = Slope(create_graph=False).double(), torch.randn(6, 3).double()
    with pytest.raises(InputError, match="create_graph=True"):
        operator(module, "cross_entropy", (x, torch.arange(6) % 3)) @ torch.ones(24)


class BySelf(nn.Module):
    """Outputs, and the gradient of an energy of each sample by a bias."""

    def __init__(self, *, written=False):
        super().__init__()
        self.hidden, self.last = nn.Linear(3, 3), nn.Linear(3, 3)
        self.written = written

    def forward(self, x):
        with torch.enable_grad():
            hidden = self.hidden(x).tanh()
            if self.written:
                return self.last(hidden) + 2 * hidden * (1 - hidden.square())
            slopes = [
                torch.autograd.grad(e, self.hidden.bias, create_graph=True)[0]
                for e in hidden.square().sum(1)
            ]
        return self.last(hidden) + torch.stack(slopes)


@pytest.mark.parametrize("seeds", [(0, 1), (1,)])
def test_a_gradient_by_parameters_of_its_own_is_what_it_is_written_out(seeds):
    several = []
    for written in (False, True):
        model = {"factory": f"{__name__}:BySelf", "kwargs": {"written": written}}
        members = [train_member(blobs(), model=model, seed=s) for s in seeds]
        several.append(train_all(members))
    for ours, theirs in zip(*several, strict=True):
        weights = [torch.as_tensor(fit.arrays["weights"]) for fit in (ours, theirs)]
        torch.testing.assert_close(*weights, rtol=1e-9, atol=1e-12)
        probes = [
            member("probe.trace", {}, weights=weights_of(fit), data=blobs())
            for fit in (ours, theirs)
        ]
        torch.testing.assert_close(*map(matrix_of, probes), rtol=1e-8, atol=1e-10)


def test_the_library_takes_gradients_by_parameters_too():
    torch.manual_seed(0)
    net, written = BySelf().double(), BySelf(written=True).double()
    written.load_state_dict(net.state_dict())
    x, y = torch.randn(6, 3).double(), torch.arange(6) % 3
    twin = dense_hessian(written, F.cross_entropy, x, y)
    assert_operator_is(hessian(net, "cross_entropy", (x, y)), twin)
