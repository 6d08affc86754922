"""Rows by outer products, against rows written out."""

from itertools import accumulate

import pytest
import torch

from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.problems import load_samples, pose
from curvflow.tasks.numerics import fisher_draws, fisher_roots, fisher_rows
from curvflow.tasks.numerics.derivatives.fishers import outer_rows
from curvflow.tasks.numerics.derivatives.row_factors import FullRows
from tests.tasks.rules.checks import started
from tests.tasks.toys import as_data, blobs

MODELS = 3
NETS = {
    "deep": {"kind": "mlp", "hidden": [6, 5], "activation": "tanh"},
    "no-bias": {"kind": "mlp", "hidden": [4], "activation": "relu", "bias": False},
    "linear": {"kind": "linear"},
}


def both(net, form, num_samples=2):
    data = blobs(9)
    problem = pose(parse_model(net), "cross_entropy", data)
    samples = load_samples(problem, [data], "", "cpu", torch.float64)
    weights = started(MODELS, problem.network.num_parameters)
    generator = torch.Generator().manual_seed(0)
    shape = (MODELS, samples.count, *fisher_draws("cross_entropy", 3, num_samples))
    drawn = torch.rand(shape, generator=generator, dtype=torch.float64)

    def roots(outputs):
        given = drawn if form == "sampled" else None
        return fisher_roots(form, "cross_entropy", outputs, samples.targets, given)

    network = problem.network
    places = dict(
        zip(
            network.layout.names,
            accumulate(network.layout.sizes, initial=0),
            strict=False,
        )
    )
    outer = outer_rows(network.outputs_and_uses, places, weights, samples.inputs, roots)
    full = fisher_rows(network.outputs, weights, samples.inputs, roots)
    return outer, FullRows(full)


@pytest.mark.parametrize("form", ["sampled", "empirical", "exact"])
@pytest.mark.parametrize("net", NETS.values(), ids=list(NETS))
def test_products_are_those_of_the_rows_written_out(net, form):
    outer, full = both(net, form)
    assert outer.size == full.size
    generator = torch.Generator().manual_seed(1)

    def normal(size):
        return torch.randn(MODELS, size, generator=generator, dtype=torch.float64)

    v, u = normal(full.size), normal(full.rows.shape[1])
    for result, expected in (
        (outer.gram(), full.gram()),
        (outer.times(v), full.times(v)),
        (outer.combined(u), full.combined(u)),
    ):
        torch.testing.assert_close(result, expected, rtol=1e-11, atol=1e-12)


def test_other_layers_than_dense_ones_have_no_outer_rows():
    images = blobs(6)
    arrays = dict(images.arrays)
    for name in ("inputs", "test_inputs"):
        count = len(arrays[name])
        arrays[name] = torch.ones(count, 1, 28, 28).numpy()
    problem = pose(parse_model({"kind": "lenet5"}), "auto", as_data(arrays, "ones"))
    weights = started(2, problem.network.num_parameters)
    places = dict.fromkeys(problem.network.layout.names, 0)
    inputs = torch.ones(1, 2, 1, 28, 28, dtype=torch.float64)
    result = outer_rows(
        problem.network.outputs_and_uses, places, weights, inputs, torch.sin
    )
    assert result is None
