"""Functions whose backward calls layers, or takes their weights, once more."""

from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

import curvflow
from curvflow.errors import InputError
from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.problems import pose
from tests.tasks.toys import (
    blobs,
    compute,
    matrix_of,
    member,
    train_all,
    train_member,
    weights_of,
)

STEPS = 40


class Recomputed(torch.autograd.Function):
    """A layer that is called again for its gradient, as a reversible block is."""

    @staticmethod
    def forward(ctx, layer, x, *parameters):
        ctx.layer, ctx.parameters = layer, parameters
        ctx.save_for_backward(x)
        with torch.no_grad():
            return layer(x)

    @staticmethod
    def backward(ctx, along):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            at = x.detach().requires_grad_()
            slopes = torch.autograd.grad(
                ctx.layer(at), (at, *ctx.layer.parameters()), along
            )
        return None, *slopes


class Mapped(torch.autograd.Function):
    """The same of a dense layer, which vmap can hold."""

    generate_vmap_rule = True

    @staticmethod
    def forward(layer, x, weight, bias):
        return x @ weight.T + bias

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.layer = inputs[0]
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, along):
        (x,) = ctx.saved_tensors
        return None, along @ ctx.layer.weight, along.mT @ x, along.sum(0)


class Weighted(torch.autograd.Function):
    """A product with a layer's weight, which its gradient takes from the layer."""

    @staticmethod
    def forward(ctx, layer, x, weight, bias):
        ctx.layer = layer
        ctx.save_for_backward(x)
        return x @ weight.T + bias

    @staticmethod
    def backward(ctx, along):
        (x,) = ctx.saved_tensors
        return None, along @ ctx.layer.weight, along.T @ x, along.sum(0)


class Fixed(torch.autograd.Function):
    """A fixed point z = f(z, u), whose gradient is that of an equilibrium."""

    @staticmethod
    def forward(ctx, step, u, *parameters):
        with torch.no_grad():
            z = torch.zeros_like(u)
            for _ in range(STEPS):
                z = step(z, u)
        ctx.step, ctx.parameters = step, parameters
        ctx.save_for_backward(z, u)
        return z

    @staticmethod
    def backward(ctx, along):
        with torch.enable_grad():
            z, u = (t.detach().requires_grad_() for t in ctx.saved_tensors)
            stepped, through = ctx.step(z, u), along
            for _ in range(STEPS):
                (back,) = torch.autograd.grad(stepped, z, through, retain_graph=True)
                through = along + back
            slopes = torch.autograd.grad(stepped, (u, *ctx.parameters), through)
        return None, *slopes


def unrolled(step, u, *_):
    z = torch.zeros_like(u)
    for _ in range(STEPS):
        z = step(z, u)
    return z


class Net(nn.Module):
    """Layers on both sides of one that is called by a function."""

    def __init__(self, name, *, by_hand):
        super().__init__()
        self.first, self.last = nn.Linear(3, 3), nn.Linear(3, 3)
        self.middle = nn.Linear(3, 3)
        self.name, self.by_hand = name, by_hand

    def step(self, z, u):
        return torch.tanh(0.2 * self.middle(z) + u)

    def forward(self, x):
        x, function = torch.tanh(self.first(x)), globals()[self.name]
        called = self.step if self.name == "Fixed" else self.middle
        otherwise = unrolled if self.name == "Fixed" else lambda _, x, *__: called(x)
        apply = function.apply if self.by_hand else otherwise
        return self.last(torch.tanh(apply(called, x, *self.middle.parameters())))


NAMES = ("Recomputed", "Mapped", "Weighted", "Fixed")


def model(name, *, by_hand):
    kwargs = {"name": name, "by_hand": by_hand}
    return {"factory": f"{__name__}:Net", "kwargs": kwargs}


@cache
def fits(name, *, by_hand, **given):
    given = {"model": model(name, by_hand=by_hand), "epochs": 3} | given
    return train_all([train_member(blobs(), seed=s, **given) for s in (0, 1, 2)])


def pairs(name, **given):
    return zip(*(fits(name, by_hand=b, **given) for b in (True, False)), strict=True)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_function_trains_as_what_it_computes(name, dtype):
    room = {"float32": 1e-5, "float64": 1e-9}[dtype]
    for ours, theirs in pairs(name, dtype=dtype):
        np.testing.assert_allclose(
            ours.arrays["weights"], theirs.arrays["weights"], rtol=room, atol=room
        )


@pytest.mark.parametrize("name", NAMES)
def test_a_function_alone_trains_as_among_siblings(name):
    given = {"model": model(name, by_hand=True), "epochs": 3, "dtype": "float64"}
    (alone,) = train_all([train_member(blobs(), seed=1, **given)])
    np.testing.assert_allclose(
        alone.arrays["weights"],
        fits(name, by_hand=True, dtype="float64")[1].arrays["weights"],
        rtol=1e-12,
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("kind", "params", "variable"),
    [
        ("probe.gradient_variance", {}, "gradient_variance"),
        (
            "probe.llc",
            {
                "calibrate": "none",
                "sampling_method": "sgld",
                "lr": 1e-3,
                "localization": 1.0,
                "num_burnin_steps": 20,
                "num_draws": 8,
                "num_steps_bw_draws": 1,
            },
            "loss_trace",
        ),
    ],
)
def test_probes_by_gradients_find_what_they_find_of_its_twin(
    name, kind, params, variable
):
    several = [
        compute(
            kind,
            [
                member(kind, params, weights=weights_of(fit), data=blobs())
                for fit in fits(name, by_hand=by_hand, dtype="float64")
            ],
        )
        for by_hand in (True, False)
    ]
    for ours, theirs in zip(*several, strict=True):
        np.testing.assert_allclose(
            ours.arrays[variable], theirs.arrays[variable], rtol=1e-7
        )


def test_second_derivatives_take_the_weights_of_their_call():
    for ours, theirs in pairs("Weighted", dtype="float64"):
        matrices = [
            matrix_of(member("probe.trace", {}, weights=weights_of(f), data=blobs()))
            for f in (ours, theirs)
        ]
        torch.testing.assert_close(*matrices, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", ["Recomputed", "Fixed"])
def test_second_derivatives_that_are_not_there_are_refused(name):
    (fit, *_) = fits(name, by_hand=True, dtype="float64")
    probe = member("probe.trace", {}, weights=weights_of(fit), data=blobs())
    with pytest.raises(InputError, match="with first ones alone"):
        compute("probe.trace", [probe])


def test_the_plan_says_why_networks_are_computed_one_by_one():
    problem = pose(parse_model(model("Mapped", by_hand=True)), "auto", blobs())
    assert "a backward calls layers" in problem.network.note


@pytest.mark.parametrize("name", NAMES)
def test_the_library_takes_the_weights_of_each_call(name):
    torch.manual_seed(0)
    nets = [Net(name, by_hand=by_hand).double() for by_hand in (True, False)]
    nets[1].load_state_dict(nets[0].state_dict())
    data = torch.randn(20, 3).double(), torch.arange(20) % 3
    chains = {
        "calibrate": "none",
        "sampling_method": "sgld",
        "lr": 1e-2,
        "localization": 1.0,
        "num_burnin_steps": 10,
        "num_draws": 8,
        "num_chains": 2,
        "num_steps_bw_draws": 1,
    }
    ours, theirs = (
        curvflow.llc(net, "cross_entropy", data, **chains).loss_trace for net in nets
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-7)
    columns = torch.eye(sum(p.numel() for p in nets[0].parameters())).double()
    ours, theirs = (
        curvflow.fisher(net, "cross_entropy", data, kind="empirical") @ columns
        for net in nets
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-10)


class Stale(nn.Module):
    """A function that takes a weight's values from where they were."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 3), nn.Linear(3, 3)
        held = self.last.weight

        class Product(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, weight):
                ctx.save_for_backward(x)
                return x @ weight.T

            @staticmethod
            def backward(ctx, along):
                (x,) = ctx.saved_tensors
                return along @ held, along.T @ x

        self.product = Product

    def forward(self, x):
        return self.product.apply(torch.tanh(self.first(x)), self.last.weight)


def make_stale():
    return Stale()


def test_values_from_elsewhere_are_refused_in_a_backward_too():
    stale = parse_model({"factory": f"{__name__}:make_stale"})
    with pytest.raises(InputError, match=r"takes 'last[.]weight' from elsewhere"):
        pose(stale, "auto", blobs())
    data = torch.randn(8, 3), torch.arange(8) % 3
    with pytest.raises(InputError, match=r"takes 'last[.]weight' from elsewhere"):
        curvflow.llc(Stale(), "cross_entropy", data)
