"""Memory told beforehand, against what is really alive."""

import numpy as np
import pytest
import torch

from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.models import parse_model
from curvflow.tasks.networks import problems
from curvflow.tasks.networks.problems import data_set_bytes, load_samples, pose
from curvflow.tasks.numerics import BatchedHessian
from curvflow.tasks.numerics.derivatives.differentiation_modes import ORDERS
from curvflow.tasks.numerics.derivatives.passes import Averaged, peak_bytes
from tests.tasks.toys import TANH_NET, as_data, blobs

MEGABYTE = 1_000_000


def test_what_lives_at_once_is_counted_and_what_is_gone_is_not():
    def compute():
        first = torch.zeros(MEGABYTE, dtype=torch.int8)
        first = first + 1  # two for a moment
        for _ in range(3):
            first + 1  # gone at once
        view = first[10:]
        return view.reshape(-1)

    assert peak_bytes(compute) == 2 * MEGABYTE


def test_what_a_graph_keeps_is_counted():
    leaf = torch.ones(MEGABYTE // 8, dtype=torch.float64, requires_grad=True)

    def compute(graph):
        with torch.set_grad_enabled(graph):
            out = leaf
            for _ in range(5):
                out = out.exp()
        return out

    assert peak_bytes(lambda: compute(graph=False)) == 2 * MEGABYTE
    assert peak_bytes(lambda: compute(graph=True)) == 5 * MEGABYTE


@pytest.mark.parametrize("order", ORDERS)
def test_the_estimate_is_what_the_product_takes(order):
    data = blobs(200)
    problem = pose(parse_model(TANH_NET), "cross_entropy", data)
    samples = load_samples(problem, [data], "", "cpu", torch.float64)
    weights = torch.ones(4, problem.network.num_parameters, dtype=torch.float64)

    def made():
        return BatchedHessian(
            problem.losses,
            weights,
            samples.inputs,
            samples.targets,
            batch_size=64,
            models_per_pass=2,
            order=order,
        )

    def product():
        return made() @ torch.ones(*weights.shape, 8, dtype=torch.float64)

    taken = peak_bytes(product, given=[weights, samples.inputs, samples.targets])
    assert made().product_bytes(8) == pytest.approx(taken, rel=0.02)


@pytest.mark.parametrize("order", ORDERS)
def test_a_pass_takes_no_memory_for_models_of_other_passes(order):
    data = blobs(20)
    problem = pose(parse_model(TANH_NET), "cross_entropy", data)
    samples = load_samples(problem, [data], "", "cpu", torch.float64)
    weights = torch.ones(20, problem.network.num_parameters, dtype=torch.float64)

    def taken(models):
        operator = BatchedHessian(
            problem.losses,
            weights[:models],
            samples.inputs,
            samples.targets,
            models_per_pass=2,
            order=order,
        )
        return operator.product_bytes(8)

    # Of each other model its columns and products.
    assert taken(20) - taken(4) <= 16 * 2 * 8 * weights[0].nbytes


class _Wide(Averaged):
    """A product that takes four blocks beside its own."""

    def prepare(self, part, columns):
        return lambda block: torch.cat([block] * 4, 2)[..., :columns].clone()

    def call(self, part, draw):
        return part.weights


@pytest.mark.parametrize(("batch_size", "blocks"), [(30, 6), (15, 7)])
def test_a_sum_takes_memory_only_once_there_is_something_in_it(batch_size, blocks):
    weights, data = torch.ones(2, 50, dtype=torch.float64), torch.zeros(1, 30)
    operator = _Wide(weights, data, data, batch_size=batch_size)
    assert operator.product_bytes(8) == blocks * 8 * weights.nbytes


def image_problem():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 1, 28, 28)), np.arange(40) % 10
    data = as_data(dataset(x, y))
    return pose(parse_model({"kind": "lenet5"}), "cross_entropy", data), data


def test_a_member_is_charged_what_it_takes_among_two():
    problem, data = image_problem()
    rows = problem.rows_per_pass(16)
    assert rows < 40
    samples = load_samples(problem, [data], "", "cpu", torch.float64)
    weights = 0.01 * torch.ones(2, problem.network.num_parameters, dtype=torch.float64)
    operator = BatchedHessian(
        problem.losses, weights, samples.inputs, samples.targets, batch_size=rows
    )

    def product():
        return operator @ torch.ones(*weights.shape, 16, dtype=torch.float64)

    charged = 2 * (problem.product_bytes(data, 16) - data_set_bytes(data, 8))
    given = [weights, samples.inputs, samples.targets]
    # Beside the product, the weights as loaded and as stacked.
    taken = peak_bytes(product, given) + 2 * weights.nbytes
    assert charged == pytest.approx(taken, rel=0.05)


def test_a_network_that_wants_numbers_is_charged_by_its_activations(monkeypatch):
    problem, data = image_problem()
    counted = problem.product_bytes(data, 4)

    def fails(*_):
        raise RuntimeError("no numbers")

    monkeypatch.setattr(problems, "_pass_bytes", fails)
    assert counted / 3 < problem.product_bytes(data, 4) < 3 * counted
