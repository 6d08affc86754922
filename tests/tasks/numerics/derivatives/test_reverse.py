"""Products by derivatives back alone, and by gradients of samples one by one."""

import math

import pytest
import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call

from curvflow.errors import InputError
from curvflow.tasks.numerics import fisher, ggn, gradient_covariance, hessian
from curvflow.tasks.numerics.derivatives.gauss_newton import MOST_SAMPLES, sandwich
from curvflow.testing import assert_operator_is, dense_ggn, dense_hessian
from tests.tasks.numerics.derivatives.test_gauss_newton import assert_equal


def acting(backward, forward=torch.tanh):
    """Return a layer whose gradient is written by hand, of input and gradient."""

    class ByHand(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx, slope):
            return backward(*ctx.saved_tensors, slope)

    class Layer(nn.Module):
        def forward(self, x):
            return ByHand.apply(x)

    return Layer()


def rise(x):
    return 1 - x.tanh().square()


# What is no derivative of tanh, or is none of what it returns.
WRONG = {
    "detached": lambda x, g: g.detach() * rise(x),
    "half": lambda x, g: (g + g.detach()) / 2 * rise(x),
    "rectified": lambda x, g: g.relu() * rise(x),
    "leaky": lambda x, g: torch.where(g > 0, g, g / 2) * rise(x),
    "normed": lambda x, g: g / g.norm() * rise(x),
    "squared": lambda x, g: g * g.abs() * rise(x),
    "sign": lambda x, g: g.sign() * rise(x),
}


def flat(net):
    """Return a module as a function of one vector, that vector, and its sizes."""
    named = dict(net.named_parameters())
    sizes = [p.numel() for p in named.values()]

    def called(weights, x):
        parts = zip(named, weights.split(sizes), strict=True)
        views = {name: part.view(named[name].shape) for name, part in parts}
        return functional_call(net, views, (x,))

    weights = torch.cat([p.detach().flatten() for p in named.values()])
    return called, weights, sizes


def back(net, x, middle=lambda _: lambda tangent: tangent, **settings):
    called, weights, sizes = flat(net)
    settings = {"derivatives": "reverse", "sizes": sizes} | settings
    return sandwich(lambda w: called(w, x), weights, middle, **settings)


def with_layer(place, layer, width, dtype):
    head = [nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 3)]
    layers = [nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU(), *head]
    layers.insert(place, layer)
    return nn.Sequential(*layers).to(dtype)


# In half precision the others may be within the rounding of so small a part of J'u.
FOUND = [
    (wrong, dtype)
    for wrong in WRONG
    for dtype in (torch.float64, torch.float32, torch.bfloat16)
    if dtype != torch.bfloat16 or wrong in ("detached", "sign")
]


@pytest.mark.parametrize(("wrong", "dtype"), FOUND)
def test_a_wrong_gradient_by_hand_is_found_among_many_parameters(wrong, dtype):
    for seed, place in enumerate((1, 3, 7, 8)):
        torch.manual_seed(seed)
        net = with_layer(place, acting(WRONG[wrong]), 300, dtype)
        assert sum(p.numel() for p in net.parameters()) > 1e5
        with pytest.raises(InputError, match="linear in that of the outputs"):
            back(net, torch.randn(9, 4).to(dtype))


def in_single(x, slope):
    return (slope.float() * rise(x.float())).to(slope.dtype)


class Autocast(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.net(x).float()


class Dead(nn.Module):
    """Has parameters without a gradient, with one of zero, and with a small one."""

    def __init__(self):
        super().__init__()
        self.unused, self.zero, self.small = (
            nn.Parameter(torch.randn(5)) for _ in range(3)
        )

    def forward(self, x):
        return x + 0 * self.zero.sum() + 1e-9 * self.small.sum()


RIGHT = {
    "by hand": lambda: acting(lambda x, g: g * rise(x)),
    "single": lambda: acting(in_single),
    "constant": lambda: acting(lambda x, g: 0 * g, torch.zeros_like),
    "layer norm": lambda: nn.LayerNorm(64),
    "batch norm": lambda: nn.BatchNorm1d(64),
    "group norm": lambda: nn.GroupNorm(4, 64),
    "steep": lambda: acting(lambda x, g: 1e6 * g, lambda x: 1e6 * x),
    "dead": Dead,
    "softmax": lambda: nn.Softmax(1),
    "dropout": lambda: nn.Dropout(1.0),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_gradient_passes_of_small_and_of_no_size(name, dtype):
    for seed, width in enumerate((8, 300)):
        torch.manual_seed(seed)
        net, x = with_layer(1, RIGHT[name](), width, dtype), torch.randn(50, 4)
        product = back(net, x.to(dtype))
        if dtype == torch.float32:
            back(Autocast(net), x)
        if dtype == torch.float64 and name != "single" and width == 8:
            called, weights, _ = flat(net)
            J = torch.autograd.functional.jacobian(
                lambda w, called=called, x=x: called(w, x.double()), weights
            ).flatten(0, 1)
            block = torch.randn(len(weights), 3).double()
            assert_equal(product(block), J.T @ (J @ block))


class Counted(torch.autograd.Function):
    """The identity, whose gradient is derived once, and counts its samples."""

    @staticmethod
    def forward(ctx, x, counts):
        ctx.counts = counts
        return x.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx, slope):
        ctx.counts.append(len(slope))
        return slope, None


class Counting(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.net, self.counts = nn.Sequential(*layers).double(), []

    def forward(self, x):
        return Counted.apply(self.net(x), self.counts)


def rows_of(net, x, y):
    """Return the gradients of the losses of samples that are called together."""
    losses = nn.functional.cross_entropy(net(x), y, reduction="none")
    rows = []
    for loss in losses:
        slopes = torch.autograd.grad(loss, list(net.parameters()), retain_graph=True)
        rows.append(torch.cat([slope.flatten() for slope in slopes]))
    return torch.stack(rows)


def labelled(samples, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 4, generator=generator).double()
    return x, torch.arange(samples) % 3


def moments(net, batch, **settings):
    second = fisher(net, nn.CrossEntropyLoss(), batch, kind="empirical", **settings)
    covariance = gradient_covariance(net, nn.CrossEntropyLoss(), batch, **settings)
    eye = torch.eye(second.shape[0], dtype=torch.float64)
    return second @ eye, covariance @ eye


def assert_moments(found, rows, rtol=1e-10):
    second, slope = rows.T @ rows / len(rows), rows.mean(0)
    assert_equal(found[0], second, rtol)
    assert_equal(found[1], second - slope[:, None] * slope, rtol)


@pytest.mark.parametrize("samples", [65, 200, 400])
def test_gradients_one_by_one_are_derived_through_few_samples_each(samples):
    torch.manual_seed(samples)
    net = Counting(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    x, y = labelled(samples)
    rows = rows_of(net, x, y)
    net.counts.clear()
    fisher(net, nn.CrossEntropyLoss(), (x, y), kind="empirical") @ torch.ones(
        len(rows.T), dtype=torch.float64
    )
    assert max(net.counts) == samples  # to see that no samples meet
    assert sum(net.counts) <= (MOST_SAMPLES + 4) * samples
    assert_moments(moments(net, (x, y)), rows)


class Meeting(nn.Module):
    """Takes a part of the mean of the batch away from each sample."""

    def forward(self, x):
        return x - 1e-3 * x.mean(0)


class Placed(nn.Module):
    """Scales samples by their place in the batch."""

    def forward(self, x):
        return x * torch.linspace(1, 2, len(x), dtype=x.dtype)[:, None]


class Whole(nn.Module):
    """Takes batches of 80 samples alone."""

    def forward(self, x):
        return x.view(80, -1)


MEETING = {
    "batch norm": lambda: nn.BatchNorm1d(5),
    "meeting": Meeting,
    "placed": Placed,
    "whole": Whole,
}


@pytest.mark.parametrize("name", MEETING)
def test_gradients_of_samples_that_meet_are_those_of_the_whole_batch(name):
    torch.manual_seed(1)
    net = Counting(nn.Linear(4, 5), MEETING[name](), nn.Tanh(), nn.Linear(5, 3))
    x, y = labelled(80)
    rows = rows_of(net, x, y)
    assert_moments(moments(net, (x, y), allow=["batch_norm"]), rows, rtol=1e-9)


class Masked(Counting):
    def forward(self, ids, mask, scale):
        assert scale == 2
        return super().forward(scale * ids * mask)


def test_gradients_one_by_one_are_those_of_batches_in_dictionaries():
    torch.manual_seed(2)
    net = Masked(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    x, y = labelled(100)
    mask = (x > -1).double()
    rows = rows_of(Counting(*net.net), 2 * x * mask, y)
    batch = {"ids": x, "mask": mask, "scale": 2, "targets": y}
    assert_moments(moments(net, batch), rows)
    net.counts.clear()
    moments(net, batch)
    assert sum(net.counts) <= 3 * (MOST_SAMPLES + 4) * len(x)


def with_jvp(backward, jvp):
    """Return a layer of a sine with derivatives both ways, written by hand."""

    class ByHand(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x.sin()

        @staticmethod
        def setup_context(ctx, inputs, _):
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx, slope):
            return backward(*ctx.saved_tensors, slope)

        @staticmethod
        def jvp(ctx, tangent):
            return jvp(*ctx.saved_tensors, tangent)

    class Layer(nn.Module):
        def forward(self, x):
            return ByHand.apply(x)

    return Layer()


def along(x, v):
    return v * x.cos()


BOTH_WAYS = {
    "right": (along, along),
    "double": (along, lambda x, v: 2 * along(x, v)),
    "constant": (along, lambda x, v: v),
    "deaf": (lambda x, g: g.detach() * x.cos(), along),
    "deaf to x": (lambda x, g: g * x.detach().cos(), along),
    "straight": (lambda x, g: g, lambda x, v: v),
}
# Of gradients that are not derived as they change there is no Hessian.
NO_HESSIAN = {"deaf", "deaf to x", "straight"}


@pytest.mark.parametrize("several", [True, False])
@pytest.mark.parametrize("name", BOTH_WAYS)
def test_derivatives_by_hand_are_those_of_the_gradient_or_refused(name, several):
    torch.manual_seed(7)
    layers = nn.Linear(4, 5), nn.Linear(5, 3)
    net = nn.Sequential(layers[0], with_jvp(*BOTH_WAYS[name]), layers[1]).double()
    (x, y), loss = labelled(12), nn.CrossEntropyLoss()
    data = [(x[:7], y[:7]), (x[7:], y[7:])] if several else (x, y)
    rows = rows_of(net, x, y)
    assert_moments(moments(net, data), rows)
    if name in NO_HESSIAN:
        with pytest.raises(InputError, match="changes of the gradient, got others of"):
            hessian(net, loss, data) @ torch.ones(len(rows.T)).double()
    else:
        H = dense_hessian(net, loss, x, y)
        for products in (2, math.inf):
            assert_operator_is(hessian(net, loss, data, num_products=products), H)
        assert_operator_is(hessian(net, loss, data, order="retained"), H)
    assert_operator_is(ggn(net, loss, data), dense_ggn(net, loss, x, y))


def rounded(kind, factor=1.0):
    """Return `along` as a function that computes in fewer digits, and is off."""
    return lambda x, v: (factor * v.to(kind) * x.to(kind).cos()).to(v)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("seed", range(2))
def test_derivatives_by_hand_may_be_computed_in_fewer_digits(seed, kind, dtype):
    torch.manual_seed(seed)
    layers = nn.Linear(4, 5), nn.Linear(5, 3)
    layer = with_jvp(rounded(kind), rounded(kind))
    net = nn.Sequential(layers[0], layer, layers[1]).to(dtype)
    plain = nn.Sequential(layers[0], with_jvp(along, along), layers[1])
    x, y = labelled(12, seed)
    (x, loss), eye = (x.to(dtype), nn.CrossEntropyLoss()), torch.eye(43, dtype=dtype)
    found = [ggn(net, loss, (x, y)) @ eye, hessian(net, loss, (x, y)) @ eye]
    plain = plain.double()
    twins = [dense(plain, loss, x.double(), y) for dense in (dense_ggn, dense_hessian)]
    for one, twin in zip(found, twins, strict=True):
        assert torch.dist(one.double(), twin) <= torch.finfo(kind).eps * twin.norm()


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("factor", [0.5, 1.25])
@pytest.mark.parametrize("seed", range(2))
def test_fewer_digits_are_no_pretext_for_derivatives_that_differ(seed, kind, factor):
    torch.manual_seed(seed)
    layer = with_jvp(rounded(kind), rounded(kind, factor))
    net = nn.Sequential(nn.Linear(4, 5), layer, nn.Linear(5, 3)).double()
    with pytest.raises(InputError, match="adjoint"):
        back(net, labelled(12, seed)[0], derivatives="all", is_by_hand=True)
