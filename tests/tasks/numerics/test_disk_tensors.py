"""Samples on disk are taken as of the tensor they stand for."""

import numpy as np
import pytest
import torch

from curvflow.stores.row_files import npy_rows
from curvflow.tasks.numerics.disk_tensors import DiskTensor, shared_rows

X = np.random.default_rng(1).normal(size=(2, 7, 3)).astype(np.float32)
ROWS = torch.tensor([[5, 1, 1, 6], [0, 5, 2, 1], [6, 6, 6, 0]])


@pytest.fixture(params=[1, 2])
def pair(request, tmp_path):
    sets = []
    for number, part in enumerate(X[: request.param]):
        np.save(tmp_path / f"{number}.npy", part)
        sets.append(npy_rows(tmp_path / f"{number}.npy"))
    tensor = torch.as_tensor(X[: request.param], dtype=torch.float64)
    return DiskTensor(sets, torch.float64, "cpu"), tensor


def test_it_says_of_itself_what_the_tensor_says(pair):
    on_disk, tensor = pair
    assert (len(on_disk), on_disk.shape) == (len(tensor), tensor.shape)
    assert on_disk.element_size() == tensor.element_size()


@pytest.mark.parametrize(
    "key",
    [
        (slice(None), slice(2, 5)),
        (slice(0, 1), slice(None)),
        (slice(None), slice(0, 0)),
        (slice(None), slice(6, 20)),
        (torch.zeros(3, 1, dtype=torch.int64), ROWS),
    ],
)
def test_samples_are_those_of_the_tensor(pair, key):
    on_disk, tensor = pair
    assert torch.equal(on_disk[key], tensor[key])


def test_samples_of_several_sets_are_those_of_the_tensor(pair):
    on_disk, tensor = pair
    owner = torch.tensor([[1], [0], [1]]) % len(tensor)
    assert torch.equal(on_disk[owner, ROWS], tensor[owner, ROWS])
    flat = (owner * 7 + ROWS).flatten()
    assert torch.equal(on_disk.rows(flat), tensor.flatten(0, 1)[flat])


def test_sets_are_chosen_unread(pair):
    on_disk, tensor = pair
    for chosen in (slice(0, 1), torch.tensor([0, 0])):
        few = on_disk[chosen]
        assert isinstance(few, DiskTensor)
        assert torch.equal(few[:, :], tensor[chosen])


def test_models_that_share_a_set_take_samples_of_it(pair):
    on_disk, tensor = (samples[:1] for samples in pair)
    assert torch.equal(shared_rows(on_disk, ROWS), tensor[0][ROWS])
    assert torch.equal(shared_rows(tensor, ROWS), tensor[0][ROWS])
