"""Arithmetic modulo p on tokens."""

import itertools

import numpy as np
import pytest
from pydantic import ValidationError

from curvflow.schemas.kinds.data.modular import ModularParams
from tests.tasks.toys import assert_declared, compute, member

KIND = "data.modular"
TABLES = [
    *itertools.product(["addition", "subtraction", "multiplication"], [2, 3, 6, 9, 23]),
    *itertools.product(["division"], [3, 5, 11, 23]),
]


def made(**params):
    (outcome,) = compute(KIND, [member(KIND, params)])
    assert_declared(KIND, outcome)
    return outcome.arrays


def rows(arrays, part=""):
    """Return inputs with the label behind them, as tuples."""
    x, y = arrays[f"{part}inputs"], arrays[f"{part}targets"]
    return [(*map(int, row), int(label)) for row, label in zip(x, y, strict=True)]


def answers(p, operation, a, b):
    """Return every c in 0..p-1 that is the result, found by trying all."""
    holds = {
        "addition": lambda c: (c - a - b) % p == 0,
        "subtraction": lambda c: (c + b - a) % p == 0,
        "multiplication": lambda c: (c - a * b) % p == 0,
        "division": lambda c: (c * b - a) % p == 0,
    }[operation]
    return [c for c in range(p) if holds(c)]


@pytest.mark.parametrize(("operation", "p"), TABLES)
def test_training_and_test_part_the_table_of_all_pairs(operation, p):
    actual = made(p=p, operation=operation, train_fraction=0.6, seed=p)
    table = []
    for a in range(p):
        for b in range(1 if operation == "division" else 0, p):
            (c,) = answers(p, operation, a, b)
            table.append((a, b, p, c))
    train, test = rows(actual), rows(actual, "test_")
    assert sorted(train + test) == table  # each once, so the two are disjoint
    assert len(train) == round(0.6 * len(table))
    assert actual["num_classes"] == p
    assert actual["inputs"].dtype == actual["test_inputs"].dtype == np.int64


def test_without_the_equals_token_the_two_numbers_are_left():
    params = {"p": 13, "operation": "multiplication", "seed": 4}
    with_it, without = made(**params), made(**params, equals_token=False)
    assert (with_it["inputs"][:, 2] == 13).all()
    for part in ("", "test_"):
        np.testing.assert_array_equal(
            with_it[f"{part}inputs"][:, :2], without[f"{part}inputs"]
        )
        np.testing.assert_array_equal(
            with_it[f"{part}targets"], without[f"{part}targets"]
        )


def test_a_seed_draws_the_same_pairs_for_all_operations_of_a_table():
    sums, products = made(seed=3), made(seed=3, operation="multiplication")
    np.testing.assert_array_equal(sums["inputs"], products["inputs"])
    assert not np.array_equal(sums["inputs"], made(seed=4)["inputs"])


def test_a_larger_share_keeps_the_pairs_of_a_smaller_one():
    shares = [set(rows(made(p=17, train_fraction=f))) for f in (0.1, 0.35, 0.8, 1.0)]
    assert all(less < more for less, more in itertools.pairwise(shares))
    assert len(shares[-1]) == 17**2


def test_all_pairs_may_be_trained_on():
    assert made(p=5, train_fraction=1.0)["test_inputs"].shape == (0, 3)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_pairs_are_drawn_without_regard_to_their_numbers(seed):
    inputs = made(p=47, train_fraction=0.5, seed=seed)["inputs"][:, :2]
    # Uniform without replacement: half the variance of draws with it.
    sem = np.sqrt((47**2 - 1) / 12 / len(inputs) / 2)
    assert (abs(inputs.mean(axis=0) - 23) < 5 * sem).all()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"p": 91, "operation": "division"},
            "cannot be combined with p 91, a multiple of 7",
        ),
        ({"p": 3, "train_fraction": 0.1}, "at least 2 pairs to train on, got 1 of 9"),
        ({"p": 1}, "greater than or equal to 2"),
        ({"train_fraction": 1.5}, "less than or equal to 1"),
    ],
)
def test_what_cannot_be_made_is_refused(params, message):
    with pytest.raises(ValidationError, match=message):
        ModularParams(**params)
