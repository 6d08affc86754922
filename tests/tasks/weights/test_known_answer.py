"""True weights of which the learning coefficient is known."""

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.tasks.networks.problems import read
from tests.tasks.known import (
    CROSSING,
    DEEP,
    PRODUCT,
    TANH,
    WELL,
    at_truth,
    data_arrays,
    weights_outcome,
)
from tests.tasks.toys import assert_declared, dense_of, member

SIZES = {"inputs": 5, "outputs": 4}


@pytest.mark.parametrize(
    ("model", "rank", "sizes", "value", "multiplicity", "size"),
    [
        (PRODUCT, 2, SIZES, 8, 1, 27),
        (PRODUCT, 0, {"inputs": 3, "outputs": 3}, 3.5, 2, 18),
        ({"kind": "deep_linear", "hidden": []}, 1, SIZES, 10, 1, 20),
        ({**DEEP, "hidden": [4, 3]}, 1, {"inputs": 5, "outputs": 5}, 7.5, 3, 47),
        (WELL, 0, {}, 1, 1, 2),
        (CROSSING, 0, {}, 0.75, 1, 3),
        (TANH, 0, {}, 2 / 3, 1, 4),
        (TANH, 2, {}, 2, 1, 4),
        ({**TANH, "hidden": [1]}, 1, {}, 1, 1, 2),
    ],
)
def test_the_coefficient_is_the_one_in_closed_form(
    model, rank, sizes, value, multiplicity, size
):
    outcome = weights_outcome(model, data_arrays(model, rank=rank, **sizes), rank)
    assert_declared("weights.known_answer", outcome)
    assert outcome.arrays["llc_true"] == pytest.approx(value)
    assert outcome.arrays["llc_multiplicity"] == multiplicity
    assert outcome.arrays["num_parameters"] == size


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_the_loss_there_is_zero_and_the_factors_are_balanced(rank):
    data, weights = at_truth(DEEP, rank=rank, **SIZES)
    problem = read(str(weights["network"]))
    w = torch.as_tensor(weights["weights"])[None]
    x, y = torch.as_tensor(data["inputs"]), torch.as_tensor(data["targets"])
    assert problem.losses(w, x[None], y[None]).abs().max() < 1e-28
    first, second, third = (t[0] for t in problem.network.layout.unflatten(w))
    torch.testing.assert_close(second.T @ second, first @ first.T)
    torch.testing.assert_close(third.T @ third, second @ second.T)
    assert [torch.linalg.matrix_rank(f) for f in (first, second, third)] == [rank] * 3


@pytest.mark.parametrize("units", [1, 2, 3])
def test_true_units_that_differ_are_regular(units):
    data, weights = at_truth({**TANH, "hidden": [units]}, rank=units)
    asked = member("probe.dense", {}, weights=weights, data=data)
    lowest = torch.linalg.eigvalsh(dense_of(asked))[0]
    assert lowest > 1e-8
    problem = read(str(weights["network"]))
    w = torch.as_tensor(weights["weights"])[None]
    x, y = torch.as_tensor(data["inputs"]), torch.as_tensor(data["targets"])
    assert problem.losses(w, x[None], y[None]).abs().max() < 1e-28


def test_the_hessian_there_has_the_rank_of_the_regular_directions():
    """N a + M b - a b of reduced-rank regression with ranks a = b = r."""
    data, weights = at_truth(PRODUCT, rank=2, **SIZES)
    asked = member("probe.dense", {}, weights=weights, data=data)
    assert torch.linalg.matrix_rank(dense_of(asked)) == 2 * 4 + 2 * 5 - 2 * 2


@pytest.mark.parametrize(
    ("model", "rank"), [(PRODUCT, 1), (DEEP, 3), ({**PRODUCT, "hidden": [2]}, 2)]
)
def test_data_of_another_truth_are_refused(model, rank):
    arrays = data_arrays(PRODUCT, rank=2, **SIZES)
    if rank == 2:
        arrays = {**arrays, "test_inputs": 2 * arrays["test_inputs"]}
    with pytest.raises(InputError, match="with this model and rank"):
        weights_outcome(model, arrays, rank)


def test_data_without_a_population_are_refused():
    arrays = data_arrays(WELL)
    few = {**arrays, "test_inputs": np.ones((0, 1)), "test_targets": np.zeros((0, 2))}
    with pytest.raises(InputError, match="got other data"):
        weights_outcome(WELL, few)
