"""Networks with gated recurrent units."""

import torch

from curvflow.tasks.numerics import stream
from tests.tasks.models.examples import build


def normal(*shape, purpose="t"):
    return torch.randn(shape, generator=stream(0, purpose), dtype=torch.float64)


def test_a_state_that_is_kept_stays_zero_and_one_that_is_not_forgets():
    net = build({"kind": "gru", "hidden": 2}, (5, 3), 2)
    weights, x = normal(1, net.num_parameters, purpose="w"), normal(1, 4, 5, 3)
    for gate, is_kept in ((60.0, True), (-60.0, False)):
        named = {name: t.clone() for name, t in net.layout.named(weights).items()}
        named["layer1.bias_ih"][0, 2:4] = gate
        if not is_kept:  # no way from the state into n, nor into r
            named["layer1.weight_hh"][0, :2] = 0
            named["layer1.weight_hh"][0, 4:] = 0
        other = x.clone()
        other[:, :, :4] += 1.0
        w = net.layout.flatten(named)
        torch.testing.assert_close(net.outputs(w, x), net.outputs(w, other))
        if is_kept:
            bias = named["head.bias"][:, None].expand(-1, 4, -1)
            torch.testing.assert_close(net.outputs(w, x), bias)


def test_parameters_are_counted():
    net = build({"kind": "gru", "hidden": 3, "bias": False}, (4, 2), 2)
    assert net.num_parameters == 3 * (2 + 3) * 3 + 3 * 2
