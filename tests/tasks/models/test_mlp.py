"""Multi-layer perceptrons."""

import pytest
import torch
from torch import nn

from curvflow.schemas.kinds.shared.networks import Normal, Uniform
from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.initialization import initial_weights
from curvflow.tasks.networks.problems import pose
from curvflow.tasks.numerics import stream
from tests.tasks.toys import blobs

ACTIVATIONS = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "sigmoid": nn.Sigmoid,
    "identity": nn.Identity,
}


def network(**fields):
    spec = parse_model({"kind": "mlp", "hidden": [5, 4], **fields})
    return pose(spec, "auto", blobs()).network


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("bias", [True, False])
def test_outputs_are_those_of_torch_layers(name, bias):
    net = network(activation=name, bias=bias)
    weights = torch.stack(
        [
            initial_weights(net, stream(seed, "t"), Normal(normal=1.0))
            for seed in range(3)
        ]
    )
    x = torch.randn(1, 6, 3, generator=stream(0, "x"), dtype=torch.float64)
    actual = net.outputs(weights, x)
    for model in range(3):
        layers = [nn.Linear(a, b, bias=bias) for a, b in [(3, 5), (5, 4), (4, 3)]]
        act = ACTIVATIONS[name]
        twin = nn.Sequential(layers[0], act(), layers[1], act(), layers[2]).double()
        nn.utils.vector_to_parameters(weights[model], twin.parameters())
        torch.testing.assert_close(actual[model], twin(x[0]), rtol=1e-12, atol=1e-14)


def test_parameters_are_named_and_counted():
    net = network()
    assert net.layout.names[:2] == ("layer1.weight", "layer1.bias")
    assert net.layout.shapes[:2] == ((5, 3), (5,))
    assert net.num_parameters == 20 + 24 + 15


def test_inputs_of_any_shape_are_flattened():
    net = network()
    weights = initial_weights(net, stream(0, "t"), Normal(normal=1.0))[None]
    x = torch.ones(1, 2, 3, dtype=torch.float64)
    torch.testing.assert_close(
        net.outputs(weights, x.reshape(1, 2, 3, 1)), net.outputs(weights, x)
    )


def test_laws_differ_in_scale_alone():
    net = network()

    def drawn(law):
        return initial_weights(net, stream(3, "init"), law)

    torch.testing.assert_close(
        drawn(Normal(normal=2.0)), 20 * drawn(Normal(normal=0.1)), rtol=1e-12, atol=0
    )
    assert drawn(Uniform(uniform=0.5)).abs().max() <= 0.5
    assert drawn(Uniform(uniform=0.5)).abs().max() > 0.45


def test_normal_takes_a_standard_deviation_for_weights_and_biases():
    net = network(hidden=[200, 200])
    drawn = initial_weights(net, stream(0, "init"), Normal(normal=0.3))
    assert drawn.std().item() == pytest.approx(0.3, rel=0.02)
    biases = net.layout.unflatten(drawn[None])[1]
    assert biases.std().item() == pytest.approx(0.3, rel=0.2)


def test_glorot_fills_its_bound_and_leaves_biases_at_zero():
    spec = parse_model({"kind": "mlp", "hidden": [50], "init": {"glorot": 2.0}})
    net = pose(spec, "auto", blobs()).network
    weight, bias, *_ = net.layout.unflatten(
        initial_weights(net, stream(0, "init"), spec.init)[None]
    )
    bound = 2 * (6 / (3 + 50)) ** 0.5
    assert bound * 0.95 < weight.abs().max() <= bound
    assert (bias == 0).all()
