"""Networks with roots of their samples, and the matrices written out."""

from functools import cache

import torch

from curvflow.tasks.networks.modules import StackedModule
from curvflow.tasks.networks.network import Layout, Network
from curvflow.tasks.numerics import fisher_rows, stream
from curvflow.tasks.numerics.kronecker.recorded import Recorded
from tests.tasks.models.examples import EXAMPLES
from tests.tasks.models.test_all import inputs_of, twin_of, weights_of

SMALL = {
    name: example
    for name, example in EXAMPLES.items()
    if example.network().num_parameters <= 800
}
ROOTS = 2


def roots_like(part, outputs):
    """Return two roots of each sample, the same for the same samples."""
    shape = (5, ROOTS, *outputs.shape[2:])
    drawn = torch.randn(shape, generator=stream(0, "roots"), dtype=torch.float64)
    count = outputs.shape[1]
    rows = slice(part.rows.start, part.rows.start + count)
    return drawn[rows].expand(len(outputs), -1, *[-1] * (drawn.ndim - 1))


def recorded(network, weights, inputs, batch_size=3, models_per_pass=2):
    parameters, statistics = network.split(weights)
    return Recorded(
        network.outputs_and_uses,
        network.layout.names,
        network.layout.shapes,
        parameters,
        statistics,
        inputs,
        inputs,
        roots_like,
        batch_size,
        models_per_pass,
    )


@cache
def case(name):
    """Return a network of three models with its data, recorded."""
    example = SMALL[name]
    network, weights = weights_of(example)
    return recorded(network, weights, inputs_of(example, 3))


@cache
def exact(name):
    """Return the mean of J'SS'J of each model, (M, D, D)."""
    example = SMALL[name]
    network, weights = weights_of(example)
    return dense(network, weights, inputs_of(example, 3))


def dense(network, weights, inputs):
    parameters, statistics = network.split(weights)

    def outputs(parameters, x):
        held = statistics.repeat_interleave(len(parameters) // len(statistics), dim=0)
        return network.outputs(torch.cat([parameters, held], dim=1), x)

    class Part:
        rows = slice(0, None)

    def roots(found):
        return roots_like(Part, found)

    rows = fisher_rows(outputs, parameters, inputs, roots)
    return rows.mT @ rows / inputs.shape[1]


def module_network(module):
    """Return a module of torch's as the network of a user's module."""
    called = StackedModule(module)

    def layout(tensors):
        return Layout(tuple(tensors), tuple(tuple(t.shape) for t in tensors.values()))

    return Network(
        layout(called.parameters),
        called.apart,
        1,
        statistics=layout(called.statistics),
        start=called.statistics,
    )


def module_case(name):
    """Return the twin of a network as a module, with weights of the first two."""
    example = SMALL[name]
    network, weights = weights_of(example)
    module = twin_of(example, network, weights[0]).eval()
    return module_network(module), weights[:2], inputs_of(example, 2)
