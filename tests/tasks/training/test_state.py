"""States by name."""

from typing import NamedTuple

import numpy as np
import pytest
import torch

from curvflow.tasks.training.state import (
    Checkpoints,
    leaves,
    restore_if_fits,
    state_arrays,
    with_leaves,
)


class Inner(NamedTuple):
    steps: torch.Tensor
    nothing: None


class Outer(NamedTuple):
    mean: torch.Tensor
    inner: Inner
    pair: tuple[torch.Tensor, torch.Tensor]


ONE, TWO = torch.ones(2), torch.zeros(2, 3)


@pytest.mark.parametrize(
    ("state", "count"),
    [(None, 1), (ONE, 1), (Outer(TWO, Inner(ONE, None), (ONE, TWO)), 5)],
    ids=["none", "tensor", "nested"],
)
def test_a_state_of_any_form_is_made_again_from_its_quantities(state, count):
    quantities = leaves(state)
    assert len(quantities) == count
    new = [None if q is None else q + 1 for q in quantities]
    made = with_leaves(state, iter(new))
    assert type(made) is type(state)
    assert all(a is b for a, b in zip(leaves(made), new, strict=True))


class Weights:
    """A part of two tensors."""

    def __init__(self) -> None:
        self.held = {"w": torch.zeros(2, 3), "n": torch.zeros(0, dtype=torch.uint8)}

    def tensors(self):
        return dict(self.held)

    def restore(self, tensors):
        self.held = dict(tensors)


def test_a_part_goes_back_to_copies_of_what_fits():
    part = Weights()
    arrays = {"w": np.ones((2, 3), np.float32), "n": np.zeros(0, np.uint8)}
    assert restore_if_fits(part, arrays)
    arrays["w"] += 1
    assert part.held["w"].eq(1).all()
    assert state_arrays(part).keys() == arrays.keys()


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"w": np.ones((2, 3), np.float32)},
        {"w": np.ones((2, 3), np.float64), "n": np.zeros(0, np.uint8)},
        {"w": np.ones((3, 2), np.float32), "n": np.zeros(0, np.uint8)},
        {"w": np.ones((2, 3), np.float32), "m": np.zeros(0, np.uint8)},
        {"w": np.array([["a"]]), "n": np.zeros(0, np.uint8)},
    ],
    ids=["empty", "lacking", "type", "shape", "name", "text"],
)
def test_what_does_not_fit_changes_nothing(arrays):
    part = Weights()
    before = part.tensors()
    assert not restore_if_fits(part, arrays)
    assert all(part.held[name] is tensor for name, tensor in before.items())


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_a_state_without_rows_takes_any_number_and_one_with_rows_no_other(rows):
    weights, alive = torch.tensor([[1.0], [2.0]]), torch.tensor([True, True])
    stored = Checkpoints((0, 3, 5), weights)
    for epoch in (0, 3)[:rows]:
        stored.keep(epoch, weights + epoch, alive)
    arrays = {name: array.copy() for name, array in state_arrays(stored).items()}
    assert arrays["weights"].shape == (rows, 2, 1)
    fresh, begun = (Checkpoints((0, 3, 5), weights) for _ in range(2))
    assert restore_if_fits(fresh, arrays)
    fresh.keep(5, weights, alive)
    stored.keep(5, weights, alive)
    assert fresh.of(1).tolist()[:rows] == [[2], [5]][:rows]
    torch.testing.assert_close(fresh.of(1), stored.of(1), equal_nan=True)
    begun.keep(5, weights, alive)
    assert not restore_if_fits(begun, arrays)
    wider = {"weights": np.zeros((rows, 3, 1), np.float32)}
    assert not restore_if_fits(Checkpoints((0, 3, 5), weights), wider)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_checkpoint_that_was_read_does_not_change_with_the_stored_one(dtype):
    weights = torch.tensor([[1.0], [2.0]], dtype=dtype)
    alive = torch.tensor([True, False])
    checkpoints = Checkpoints((0, 3), weights)
    checkpoints.keep(0, weights, alive)
    checkpoints.keep(1, 5 * weights, alive)  # none of the chosen epochs
    first, diverged = checkpoints.of(0), checkpoints.of(1)
    checkpoints.fill_from(0, 0, torch.tensor([4.0]))
    expected = torch.tensor([[1.0], [torch.nan]], dtype=torch.float64)
    torch.testing.assert_close(first, expected, equal_nan=True)
    assert diverged.isnan().all()
    assert checkpoints.of(0).tolist() == [[4], [4]]
