"""Residual networks with pre-activation."""

import pytest
import torch
from pydantic import ValidationError

from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.initialization import initial_weights
from curvflow.tasks.numerics import stream
from tests.tasks.models.examples import build

RESIDUAL = {"kind": "preresnet"}


@pytest.mark.parametrize("depth", [8, 14, 20, 56, 110])
def test_the_depth_counts_layers_on_the_way_through(depth):
    net = build({**RESIDUAL, "depth": depth}, (3, 32, 32), 10)
    through = [
        name
        for name in net.layout.names
        if name.endswith(("weight",)) and "shortcut" not in name
    ]
    assert len(through) == depth
    assert sum("shortcut" in name for name in net.layout.names) == 2


def test_parameters_are_counted():
    # 16, 32, 64 channels, three blocks each; no bias beside a batch norm.
    convolutions = 9 * (
        3 * 16 + 6 * 16 * 16 + 16 * 32 + 5 * 32 * 32 + 32 * 64 + 5 * 64 * 64
    ) + (16 * 32 + 32 * 64)
    norms = 2 * (16 * 6 + 16 + 32 * 5 + 32 + 64 * 5 + 64)
    net = build(RESIDUAL, (3, 32, 32), 10)
    assert net.num_parameters == convolutions + norms + 650
    plain = build({**RESIDUAL, "batch_norm": False}, (3, 32, 32), 10)
    biases = 16 * 7 + 32 * 6 + 64 * 6 + 32 + 64
    assert plain.num_parameters == convolutions + biases + 650
    assert plain.statistics.size == 0


def test_a_depth_between_whole_blocks_is_refused():
    with pytest.raises(ValidationError, match=r"of 6 n \+ 2, got 18. Take 14 or 20"):
        parse_model({**RESIDUAL, "depth": 18})


def test_blocks_whose_weights_are_zero_pass_their_inputs_on():
    spec = {**RESIDUAL, "batch_norm": False, "width": 0.25}
    net, deep = (build({**spec, "depth": d}, (1, 8, 8), 3) for d in (8, 14))
    weights = initial_weights(net, stream(0, "init"), parse_model(RESIDUAL).init)[None]
    tensors = net.layout.named(weights)
    shapes = zip(deep.layout.names, deep.layout.shapes, strict=True)
    added = {
        name: tensors.get(name, torch.zeros(1, *shape, dtype=torch.float64))
        for name, shape in shapes
    }
    x = torch.randn(1, 5, 1, 8, 8, generator=stream(0, "x"), dtype=torch.float64)
    torch.testing.assert_close(
        deep.outputs(deep.layout.flatten(added), x), net.outputs(weights, x)
    )
