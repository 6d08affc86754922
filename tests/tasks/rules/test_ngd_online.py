"""Online natural gradient descent."""

import itertools

import pytest
import torch

from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.problems import pose
from curvflow.tasks.numerics.derivatives.row_factors import (
    Law,
    first_fisher,
    preconditioned,
    updated,
)
from curvflow.tasks.registry import find
from curvflow.tasks.training.updates import Updates
from tests.tasks.rules.checks import gradient, rule, started, step_at
from tests.tasks.toys import blobs, train_member

# For the tests that hold for all rules.
SETTINGS = [
    {"lr": 0.1},
    {"lr": 0.05, "alpha": 0.1, "share": 0.3},
    {"lr": 0.05, "rank": 1, "period": 2, "delta": 0.01},
]

# Weights (4, 3), (4,), (3, 4) and (3,).
PROBLEM = pose(parse_model({"kind": "mlp", "hidden": [4]}), "auto", blobs())
SIZE = PROBLEM.network.num_parameters
STEPS = 18


def trained(rules, problem=PROBLEM, size=SIZE):
    """Step on the quartic, and return weights and steps along the way."""
    weights = started(len(rules), size) / 2
    updates, course = Updates(rules, weights, problem), [weights]
    for count in range(STEPS):
        now = step_at(count, len(rules), problem=problem)
        course.append(updates.step(gradient(course[-1], count), course[-1], now))
    return course


def test_each_axis_is_turned_by_its_own_moments():
    fields = {"alpha": 0.1, "share": 0.2, "rank": 2, "period": 3, "delta": 0.01}
    rules = [rule(rule="ngd_online", lr=lr, **fields) for lr in (0.01, 0.02)]
    course = trained(rules)

    def filled(value):
        return torch.full((2, 1, 1), value, dtype=torch.float64)

    law = Law(filled(0.2), filled(0.01), filled(1e-10))
    kept = {}
    for count, (before, after) in enumerate(itertools.pairwise(course)):
        tensors = PROBLEM.network.layout.named(gradient(before, count))
        for name, tensor in tensors.items():
            turned = tensor
            for axis in range(1, tensor.ndim):
                # A matrix whose columns are this axis.
                X = turned.mT if (tensor.ndim, axis) == (3, 1) else turned
                X = X[:, None] if X.ndim == 2 else X
                key = name, axis
                if count == 0:
                    kept[key] = first_fisher(X, 2, law)
                actual = preconditioned(kept[key], X, filled(0.1), law.eps)
                if count < 10 or count % 3 == 0:
                    kept[key] = updated(kept[key], X, law)
                actual = actual.mT if (tensor.ndim, axis) == (3, 1) else actual
                turned = actual.reshape(tensor.shape)
            tensors[name] = turned
        lr = torch.tensor([[0.01], [0.02]], dtype=torch.float64)
        expected = before - lr * PROBLEM.network.layout.flatten(tensors)
        torch.testing.assert_close(after, expected, rtol=1e-10, atol=1e-12)


def test_every_tensor_moves_as_far_as_under_gradient_descent():
    rules = [rule(rule="ngd_online", lr=0.01, alpha=alpha) for alpha in (0.01, 4.0)]
    course = trained(rules)
    turns = []
    for count, (before, after) in enumerate(itertools.pairwise(course)):
        g = gradient(before, count)
        layout = PROBLEM.network.layout
        torch.testing.assert_close(
            layout.norms(before - after), 0.01 * layout.norms(g), rtol=1e-9, atol=0
        )
        turns.append(torch.cosine_similarity(before - after, g, dim=1))
    # The less the damping, the further from the gradient.
    weak, strong = torch.stack(turns).mean(0).tolist()
    assert weak < strong - 0.05
    assert strong < 0.999


def test_much_damping_is_gradient_descent_to_the_last_bit():
    rules = [rule(rule="ngd_online", lr=lr, alpha=1e30) for lr in (0.01, 0.05)]
    plain = [rule(rule="sgd", lr=lr) for lr in (0.01, 0.05)]
    for actual, expected in zip(trained(rules), trained(plain), strict=True):
        assert torch.equal(actual, expected)


def test_axes_of_one_entry_are_passed_over():
    model = {"kind": "mlp", "hidden": [1]}
    problem = pose(parse_model(model), "auto", blobs())
    size = problem.network.num_parameters
    rules = [rule(rule="ngd_online", lr=0.01)] * 2
    updates = Updates(rules, started(2, size), problem)
    # Weights (1, 3), (1,), (3, 1) and (3,): three axes of three entries, rank two.
    assert len(updates.vectors(started(2, size))[0]) == 3 * (2 * 3 + 2 * 2 + 1)
    assert torch.isfinite(trained(rules, problem, size)[-1]).all()


def test_tiles_are_narrower_for_the_moments():
    def needed(**fields):
        return find("train").member_bytes(
            train_member(
                blobs(),
                model={"kind": "mlp", "hidden": [4]},
                rule={"lr": 0.1, **fields},
            )
        )

    updates = Updates([rule(rule="ngd_online", lr=0.1)], started(1, SIZE), PROBLEM)
    kept = len(updates.vectors(started(1, SIZE))[0]) - 6
    assert needed(rule="ngd_online") - needed(rule="sgd") == 8 * 2 * kept


@pytest.mark.parametrize(("rank", "rows"), [(80, 2), (1, 1)])
def test_an_axis_distinguishes_half_its_directions_at_most(rank, rows):
    rules = [rule(rule="ngd_online", lr=0.01, rank=rank)] * 2
    (vector, _) = Updates(rules, started(2, SIZE), PROBLEM).vectors(started(2, SIZE))
    axes = [4, 3, 4, 3, 4, 3]
    assert len(vector) == sum(rows * size + rows**2 + 1 for size in axes)
