"""Sums over paths against every path, one after another."""

import itertools
import math

import pytest
import torch

from curvflow.tasks.networks.parts import (
    activation,
    chain,
    convolution,
    dense_part,
    flatten,
    network_of,
    pooling,
    residual,
)
from curvflow.tasks.numerics import stream
from tests.tasks.models.examples import build

ONE = ()  # the source of all biases
RELU = activation(torch.relu)

# Layers as edges: from a unit to the units before it and what their edges weigh.


def conv_edges(weight, bias, *, stride=1, padding=0):
    out, channels, kernel, _ = weight.shape

    def before(unit, shape):
        o, i, j = unit
        if bias is not None:
            yield ONE, bias[o].item()
        for c, di, dj in itertools.product(range(channels), *[range(kernel)] * 2):
            place = (i * stride + di - padding, j * stride + dj - padding)
            if all(0 <= p < side for p, side in zip(place, shape[1:], strict=True)):
                yield (c, *place), weight[o, c, di, dj].item()

    def out_shape(shape):
        sides = [(s + 2 * padding - kernel) // stride + 1 for s in shape[1:]]
        return (out, *sides)

    return before, out_shape


def pool_edges(size, weight):
    def before(unit, shape):
        c, i, j = unit
        for di, dj in itertools.product(range(size), range(size)):
            yield (c, i * size + di, j * size + dj), weight

    return before, lambda shape: (shape[0], shape[1] // size, shape[2] // size)


def dense_edges(weight, bias):
    def before(unit, shape):
        yield ONE, bias[unit[0]].item()
        for column, place in enumerate(itertools.product(*map(range, shape))):
            yield place, weight[unit[0], column].item()

    return before, lambda shape: (len(weight),)


def with_identity(edges):
    inner, out_shape = edges

    def before(unit, shape):
        yield from inner(unit, shape)
        yield unit, 1.0

    return before, out_shape


def all_paths(layers, shape):
    """Yield the product of the edges of every path that ends at an output."""
    shapes = [shape]
    for _, out_shape in layers:
        shapes.append(out_shape(shapes[-1]))

    def backwards(level, unit, product):
        if level == 0 or unit == ONE:
            yield product
            return
        before, _ = layers[level - 1]
        for source, weight in before(unit, shapes[level - 1]):
            yield from backwards(level - 1, source, product * weight)

    for unit in itertools.product(*map(range, shapes[-1])):
        yield from backwards(len(layers), unit, 1.0)


def drawn(net, models=2):
    generator = stream(0, "t")
    shape = (models, net.num_parameters)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def averaged(t):
    return [
        conv_edges(t["conv1.weight"], t["conv1.bias"]),
        pool_edges(2, 1 / 4),
        dense_edges(t["end.weight"], t["end.bias"]),
    ]


def strided(t):
    return [
        conv_edges(t["conv1.weight"], None, padding=1),
        pool_edges(2, 1.0),
        conv_edges(t["conv2.weight"], t["conv2.bias"], stride=2, padding=1),
        dense_edges(t["end.weight"], t["end.bias"]),
    ]


def bypassed(t):
    return [
        conv_edges(t["conv1.weight"], t["conv1.bias"]),
        with_identity(conv_edges(t["conv2.weight"], t["conv2.bias"], padding=1)),
        dense_edges(t["end.weight"], t["end.bias"]),
    ]


END = chain(flatten(), dense_part("end", 2))
CASES = {
    "average": (
        chain(convolution("conv1", 2, 3), RELU, pooling("avg", 2), END),
        (2, 4, 4),
        averaged,
    ),
    "whole-average": (
        chain(convolution("conv1", 2, 2), RELU, pooling("avg", None), END),
        (1, 3, 3),
        averaged,
    ),
    "maximum-and-stride": (
        chain(
            convolution("conv1", 2, 3, padding=1, bias=False),
            RELU,
            pooling("max", 2),
            convolution("conv2", 2, 3, stride=2, padding=1),
            RELU,
            END,
        ),
        (1, 5, 4),
        strided,
    ),
    "residual": (
        chain(
            convolution("conv1", 2, 2),
            residual(chain(RELU, convolution("conv2", 2, 3, padding=1)), chain()),
            RELU,
            END,
        ),
        (1, 3, 3),
        bypassed,
    ),
}


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("name", CASES)
def test_the_sum_is_that_over_all_paths_one_after_another(name, p):
    part, shape, edges = CASES[name]
    net = network_of(part, shape)
    weights = drawn(net)
    result = net.path_sums(weights.abs() ** p, shape, p)
    for model in range(2):
        tensors = {n: t[model] for n, t in net.layout.named(weights).items()}
        products = [abs(x) ** p for x in all_paths(edges(tensors), shape)]
        assert len(products) > 30
        assert result[model].item() == pytest.approx(math.fsum(products), rel=1e-12)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_the_sum_of_a_dense_network_is_that_over_all_its_paths(p):
    net = build({"kind": "mlp", "hidden": [4, 3]}, (3,), 2)
    weights = drawn(net)
    result = net.path_sums(weights.abs() ** p, (3,), p)
    for model in range(2):
        t = {n: t[model] for n, t in net.layout.named(weights).items()}
        layers = [dense_edges(t[f"layer{n}.weight"], t[f"layer{n}.bias"])
                  for n in (1, 2, 3)]  # fmt: skip
        products = [abs(x) ** p for x in all_paths(layers, (3,))]
        assert len(products) == 2 * (4 * 3 * 3 + 4 * 3 + 3 + 1)
        assert result[model].item() == pytest.approx(math.fsum(products), rel=1e-12)


CONV_NETS = [
    ({"kind": "vgg", "stages": [[3], [4]]}, (1, 4, 4), "conv1", "conv2"),
    ({"kind": "lenet5", "activation": "relu", "pooling": "max"}, (1, 12, 12),
     "conv1", "conv2"),
    ({"kind": "lenet5", "activation": "relu"}, (1, 12, 12), "conv1", "conv2"),
    ({"kind": "mlp", "hidden": [5, 4]}, (3,), "layer1", "layer2"),
    ({"kind": "conv1d_xord", "activation": "relu"}, (5, 2), "filter2", "dense"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "shape", "before", "after"), CONV_NETS)
def test_rescaling_a_channel_changes_neither_outputs_nor_the_sum(
    spec, shape, before, after
):
    net = build(spec, shape, 2)
    weights = drawn(net)
    tensors = {name: t.clone() for name, t in net.layout.named(weights).items()}
    c = 37.0
    if spec["kind"] == "conv1d_xord":
        tensors[f"{before}.weight"] *= c
        tensors[f"{before}.bias"] *= c
        tensors[f"{after}.weight"][:, :, 5:10] /= c
    else:
        tensors[f"{before}.weight"][:, 1] *= c
        tensors[f"{before}.bias"][:, 1] *= c
        tensors[f"{after}.weight"][:, :, 1] /= c
    rescaled = net.layout.flatten(tensors)
    x = torch.randn(1, 4, *shape, generator=stream(0, "x"), dtype=torch.float64)
    torch.testing.assert_close(
        net.outputs(rescaled, x), net.outputs(weights, x), rtol=1e-10, atol=1e-9
    )
    for p in (1.0, 2.0):
        torch.testing.assert_close(
            net.path_sums(rescaled.abs() ** p, shape, p),
            net.path_sums(weights.abs() ** p, shape, p),
            rtol=1e-10,
            atol=0,
        )


def test_networks_with_a_batch_norm_have_no_paths():
    vgg = {"kind": "vgg", "stages": [[2]]}
    assert build(vgg, (1, 4, 4), 2).has_paths
    assert not build({**vgg, "batch_norm": True}, (1, 4, 4), 2).has_paths
    assert not build({"kind": "preresnet"}, (1, 8, 8), 2).has_paths


def test_the_gradient_of_the_sum_counts_paths_through_a_shared_weight():
    net = build({"kind": "vgg", "stages": [[2]]}, (1, 4, 4), 2)
    powers = drawn(net).square().requires_grad_()
    sums = net.path_sums(powers, (1, 4, 4), 2.0)
    (slopes,) = torch.autograd.grad(sums.sum(), powers)
    # Each layer's paths through weights or bias: Euler's identity, layer by layer.
    last = (net.layout.unflatten((slopes * powers).detach()))[2:]
    total = last[0].flatten(1).sum(1) + last[1].flatten(1).sum(1)
    torch.testing.assert_close(total, sums.detach(), rtol=1e-12, atol=0)
