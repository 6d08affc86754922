"""Residual networks of basic blocks."""

import pytest
import torch

from curvflow.tasks.networks.initialization import initial_weights
from curvflow.tasks.numerics import stream
from tests.tasks.models.examples import build

RESNET = {"kind": "resnet"}


@pytest.mark.parametrize(("depth", "published"), [(20, 0.27), (32, 0.46), (56, 0.85)])
def test_parameters_are_as_many_as_published(depth, published):
    # He et al. (2016), table 6, in millions.
    blocks = [(depth - 2) // 6] * 3
    net = build({**RESNET, "blocks": blocks, "shortcut": "padding"}, (3, 32, 32), 10)
    assert round(net.num_parameters / 1e6, 2) == published
    convolutions = [shape for shape in net.layout.shapes if len(shape) == 4]
    assert len(convolutions) == depth - 1


def test_the_smallest_published_network_has_the_parameters_of_its_layers():
    net = build({**RESNET, "shortcut": "padding"}, (3, 32, 32), 10)
    convolutions = 9 * (
        3 * 16 + 6 * 16 * 16 + 16 * 32 + 5 * 32 * 32 + 32 * 64 + 5 * 64 * 64
    )
    norms = 2 * (7 * 16 + 6 * 32 + 6 * 64)
    assert net.num_parameters == convolutions + norms + 650 == 269_722
    assert net.statistics.size == norms
    projected = build(RESNET, (3, 32, 32), 10)
    assert projected.num_parameters == 269_722 + 16 * 32 + 32 * 64 + 2 * (32 + 64)


def test_a_block_whose_second_convolution_is_zero_passes_its_inputs_on():
    spec = {**RESNET, "norm": "none", "widths": [3], "blocks": [2]}
    net, short = build(spec, (1, 4, 4), 2), build({**spec, "blocks": [1]}, (1, 4, 4), 2)
    weights = initial_weights(net, stream(0, "init"), None)
    noise = torch.randn(len(weights), generator=stream(0, "w"), dtype=torch.float64)
    named = {name: t.clone() for name, t in net.layout.named(noise[None]).items()}
    for part in ("weight", "bias"):
        named[f"stage1.block2.conv2.{part}"].zero_()
    x = torch.randn(1, 5, 1, 4, 4, generator=stream(0, "x"), dtype=torch.float64)
    torch.testing.assert_close(
        net.outputs(net.layout.flatten(named), x),
        short.outputs(short.layout.flatten(named), x),
    )


def test_a_sample_of_a_group_norm_does_not_see_its_neighbours_nor_its_scale():
    spec = {**RESNET, "widths": [4], "blocks": [1], "norm": "group", "groups": 2}
    net = build(spec, (1, 4, 4), 2)
    assert net.statistics.size == 0
    weights = torch.randn(
        2, net.num_parameters, generator=stream(0, "w"), dtype=torch.float64
    )
    x = torch.randn(1, 5, 1, 4, 4, generator=stream(0, "x"), dtype=torch.float64)

    def draw(shape):
        raise AssertionError("no random numbers are needed")

    trained, _ = net.training_outputs(weights, torch.zeros(2, 0), x, draw)
    torch.testing.assert_close(trained, net.outputs(weights, x))
    torch.testing.assert_close(trained[:, :1], net.outputs(weights, x[:, :1]))
    # But for eps, a multiple of the first convolution's inputs changes nothing.
    torch.testing.assert_close(
        net.outputs(weights, 1e3 * x), net.outputs(weights, 2e3 * x), rtol=1e-6, atol=0
    )


def test_paths_are_counted_where_nothing_is_normalised():
    small = {**RESNET, "widths": [2, 3], "blocks": [1, 1]}
    for norm, has_paths in (("none", True), ("batch", False), ("group", False)):
        groups = {"widths": [8, 8]} if norm == "group" else {}
        spec = {**small, **groups, "norm": norm}
        assert build(spec, (1, 4, 4), 2).has_paths == has_paths


@pytest.mark.parametrize("shortcut", ["padding", "projection"])
def test_the_sum_over_paths_is_the_output_for_weights_and_inputs_of_one_sign(shortcut):
    # Where all is positive activations are the identity.
    spec = {**RESNET, "widths": [2, 3], "blocks": [1, 1], "norm": "none"}
    net = build({**spec, "shortcut": shortcut}, (1, 4, 4), 2)
    weights = torch.rand(
        2, net.num_parameters, generator=stream(0, "w"), dtype=torch.float64
    )
    ones = torch.ones(1, 1, 1, 4, 4, dtype=torch.float64)
    torch.testing.assert_close(
        net.path_sums(weights, (1, 4, 4), 1.0), net.outputs(weights, ones).sum((1, 2))
    )
