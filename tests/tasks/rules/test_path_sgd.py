"""Path-SGD."""

import itertools

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.models import parse_model
from curvflow.schemas.nodes import Data
from curvflow.tasks.networks.problems import pose
from curvflow.tasks.numerics import dense_gammas, path_norm
from curvflow.tasks.training.updates import Updates
from tests.tasks.rules.checks import rule, started, step_at, trained_on
from tests.tasks.toys import as_data, blobs, compute, member

# For the tests that hold for all rules.
SETTINGS = [{"lr": 0.01}, {"lr": 0.02, "p": 1.0}, {"lr": 0.01, "eps": 0.001}]

NET = {"kind": "mlp", "hidden": [5, 4], "activation": "relu"}


PAIRS_NET = {
    "kind": "conv1d_xord",
    "filters": 3,
    "activation": "relu",
    "separate_filters": False,
}


def pairs_net():
    """Data of pairs, the network with filters over them, and weights of two models."""
    (drawn,) = compute("data.xord", [member("data.xord")])
    data = as_data(drawn.arrays, "xord")
    problem = pose(parse_model(PAIRS_NET), "auto", data)
    return data, problem, started(2, problem.network.num_parameters) / 2


def rescaled(problem, weights, seed=1):
    """Scale what leads into every hidden unit, and undo it in what leads out."""
    layout = problem.network.layout
    tensors = layout.named(weights)
    generator = torch.Generator().manual_seed(seed)
    layers = sorted({name.partition(".")[0] for name in layout.names})
    for before, after in itertools.pairwise(layers):
        shape = tensors[f"{before}.weight"].shape[:2]
        scale = 10 ** (2 * torch.rand(shape, generator=generator).double() - 1)
        tensors[f"{before}.weight"] = tensors[f"{before}.weight"] * scale[:, :, None]
        if f"{before}.bias" in tensors:
            tensors[f"{before}.bias"] = tensors[f"{before}.bias"] * scale
        tensors[f"{after}.weight"] = tensors[f"{after}.weight"] / scale[:, None]
    return layout.flatten(tensors)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_a_step_divides_by_the_gammas_of_the_dynamic_programme(p, bias):
    problem = pose(parse_model({**NET, "bias": bias}), "auto", blobs())
    layout = problem.network.layout
    weights, gradient = started(4, layout.size).split(2)
    tensors = layout.named(weights)
    biases = [t for name, t in tensors.items() if name.endswith("bias")] or None
    through = dense_gammas(
        [t for name, t in tensors.items() if name.endswith("weight")], biases, p
    )
    ordered = iter(through[0]), iter(through[1])
    gamma = torch.cat(
        [next(ordered[name.endswith("bias")]).flatten(1) for name in layout.names],
        dim=1,
    )
    rules = [rule(rule="path_sgd", lr=lr, p=p) for lr in (0.1, 0.3)]
    actual = Updates(rules, weights, problem).step(
        gradient, weights, step_at(0, 2, problem=problem)
    )
    lr = torch.tensor([[0.1], [0.3]], dtype=torch.float64)
    expected = weights - lr * gradient / gamma
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_training_does_not_see_how_units_are_scaled(p):
    problem = pose(parse_model(NET), "auto", blobs())
    start = started(2, problem.network.num_parameters) / 2
    rules = [rule(rule="path_sgd", lr=lr, p=p) for lr in (0.01, 0.003)]
    ends = []
    for first in (start, rescaled(problem, start)):
        course, _ = trained_on(blobs(), NET, rules, 50, start=first)
        inputs = torch.as_tensor(blobs()["inputs"])[None]
        ends.append(problem.network.outputs(course[-1], inputs))
        untrained = problem.network.outputs(first, inputs)
        assert (ends[-1] - untrained).abs().max() > 0.1
    assert (ends[0] - ends[1]).abs().max() < 1e-10 * ends[0].abs().max()


def test_training_does_not_see_how_filters_are_scaled():
    data, problem, start = pairs_net()
    tensors = problem.network.layout.named(start)
    scale = torch.tensor([0.1, 3.0, 20.0], dtype=torch.float64)
    tensors["filters.weight"] = tensors["filters.weight"] * scale[:, None, None]
    tensors["filters.bias"] = tensors["filters.bias"] * scale
    tensors["dense.weight"] = tensors["dense.weight"] / scale.repeat_interleave(5)
    other = problem.network.layout.flatten(tensors)
    inputs = torch.as_tensor(data["inputs"])[None]
    rules = [rule(rule="path_sgd", lr=0.02), rule(rule="path_sgd", lr=0.01)]
    before, after = (
        problem.network.outputs(
            trained_on(data, PAIRS_NET, rules, 50, start=first)[0][-1], inputs
        )
        for first in (start, other)
    )
    assert (before - problem.network.outputs(start, inputs)).abs().max() > 0.1
    assert (before - after).abs().max() < 1e-10 * before.abs().max()


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_paths_through_filters_are_those_of_the_dense_net_they_stand_for(p):
    _, problem, start = pairs_net()
    tensors = problem.network.layout.named(start)
    shared, bias = tensors["filters.weight"][:, :, 0], tensors["filters.bias"]
    unrolled = torch.zeros(2, 3, 5, 10, dtype=torch.float64)
    for pair in range(5):
        unrolled[:, :, pair, 2 * pair : 2 * pair + 2] = shared
    weights = [unrolled.flatten(1, 2), tensors["dense.weight"]]
    biases = [bias.repeat_interleave(5, dim=1), tensors["dense.bias"]]
    actual = problem.network.path_sums(start.abs() ** p, problem.input_shape, p)
    expected = path_norm(weights, biases, p) ** p
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=0)


def test_gradient_descent_does_see_it():
    problem = pose(parse_model(NET), "auto", blobs())
    start = started(2, problem.network.num_parameters) / 2
    rules = [rule(rule="sgd", lr=0.01)] * 2
    inputs = torch.as_tensor(blobs()["inputs"])[None]
    ends = [
        problem.network.outputs(
            trained_on(blobs(), NET, rules, 50, start=first)[0][-1], inputs
        )
        for first in (start, rescaled(problem, start))
    ]
    assert (ends[0] - ends[1]).abs().max() > 0.1


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("sgd", (1.0, 1.0), 4.0),
        ("path_sgd", (1.0, 1.0), 4.0),
        ("sgd", (10.0, 0.1), 102.01),
        ("path_sgd", (10.0, 0.1), 4.0),
    ],
)
def test_one_path_by_hand(name, first, last):
    x, y = np.ones((2, 1)), np.zeros((2, 1))
    data = Data("data", "data.array", {}, dataset(x, y), "one")
    model = {"kind": "mlp", "hidden": [1], "activation": "relu", "bias": False}
    problem = pose(parse_model(model), "auto", data)
    weights = torch.tensor([first, first], dtype=torch.float64)
    updates = Updates([rule(rule=name, lr=1.0)] * 2, weights, problem)
    # The loss falls by 1 with the output: its gradient is minus the other weight.
    stepped = updates.step(-weights.flip(1), weights, step_at(0, 2, problem=problem))
    assert stepped.prod(1).tolist() == pytest.approx([last, last])


def test_what_no_path_goes_through_stays():
    problem = pose(parse_model(NET), "auto", blobs())
    layout = problem.network.layout
    tensors = layout.named(started(2, layout.size))
    tensors["layer2.weight"][:, :, 2] = 0.0
    weights = layout.flatten(tensors)
    updates = Updates([rule(rule="path_sgd", lr=0.1)] * 2, weights, problem)
    now = step_at(0, 2, problem=problem)
    actual = layout.named(updates.step(torch.ones_like(weights), weights, now))
    for name in ("layer1.weight", "layer1.bias"):
        assert torch.equal(actual[name][:, 2], tensors[name][:, 2])
        assert (actual[name][:, 1] != tensors[name][:, 1]).all()


def test_the_least_gamma_bounds_the_step():
    problem = pose(parse_model(NET), "auto", blobs())
    weights = started(2, problem.network.num_parameters)
    rules = [rule(rule="path_sgd", lr=0.5, eps=eps) for eps in (1e9, 1e6)]
    actual = Updates(rules, weights, problem).step(
        torch.ones_like(weights), weights, step_at(0, 2, problem=problem)
    )
    taken = (weights - actual).mean(1)
    torch.testing.assert_close(
        taken, torch.tensor([5e-10, 5e-7]).double(), rtol=1e-5, atol=0
    )


def test_a_model_without_paths_is_refused_by_name():
    model = {"factory": "tests.tasks.toys:make_attention"}
    problem = pose(parse_model(model), "auto", blobs())
    weights = started(2, problem.network.num_parameters)
    with pytest.raises(InputError, match=r"path_sgd: expected a model .* got factory"):
        Updates([rule(rule="path_sgd", lr=0.1)] * 2, weights, problem)
