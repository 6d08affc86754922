"""Deep linear networks."""

import torch

from curvflow.tasks.numerics import stream
from tests.tasks.models.examples import build


def test_it_is_the_product_of_its_matrices():
    net = build({"kind": "deep_linear", "hidden": [4, 2]}, (3,), 5)
    weights = torch.randn(1, net.num_parameters, generator=stream(0, "w")).double()
    first, second, third = (t[0] for t in net.layout.unflatten(weights))
    assert net.layout.shapes == ((4, 3), (2, 4), (5, 2))
    x = torch.randn(1, 6, 3, generator=stream(0, "x")).double()
    expected = x[0] @ (third @ second @ first).T
    torch.testing.assert_close(net.outputs(weights, x)[0], expected)
