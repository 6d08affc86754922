"""Transformers without dense layers."""

import torch

from curvflow.tasks.numerics import stream
from tests.tasks.models.examples import build

FIELDS = {"layers": 2, "width": 4, "heads": 2, "positions": "rotary"}


def test_it_is_a_transformer_whose_dense_layers_add_nothing():
    for norm in ("pre", "none"):
        spec = {**FIELDS, "norm": norm}
        net = build({"kind": "attention_only", **spec}, (3, 2), 3, 3)
        whole = build({"kind": "transformer", **spec}, (3, 2), 3, 3)
        weights = torch.randn(
            2, net.num_parameters, generator=stream(0, "w"), dtype=torch.float64
        )
        named = net.layout.named(weights)
        shapes = zip(whole.layout.names, whole.layout.shapes, strict=True)
        added = {
            name: named.get(name, torch.zeros(2, *shape, dtype=torch.float64))
            for name, shape in shapes
        }
        x = torch.randn(1, 4, 3, 2, generator=stream(0, "x"), dtype=torch.float64)
        torch.testing.assert_close(
            whole.outputs(whole.layout.flatten(added), x), net.outputs(weights, x)
        )


def test_parameters_are_counted():
    net = build({"kind": "attention_only", **FIELDS}, (3, 2), 3, 3)
    embedding, head, last_norm = 2 * 4 + 4, 4 * 3 + 3, 8
    assert net.num_parameters == embedding + 2 * (4 * 20 + 8) + last_norm + head
    assert not any("dense" in name for name in net.layout.names)
