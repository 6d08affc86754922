"""Samples as they are loaded."""

import tracemalloc

import numpy as np
import pytest
import torch

from curvflow.schemas.models.linear import Linear
from curvflow.tasks.networks.problems import load_samples, pose
from tests.tasks.toys import as_data

DRAW = np.random.default_rng(0)


def data(count, width, digest="toy"):
    inputs, targets = DRAW.normal(size=(count, width)), DRAW.integers(0, 2, count)
    return as_data(
        {
            "inputs": inputs,
            "targets": targets.astype(np.float64),
            "test_inputs": inputs[:0],
            "test_targets": np.zeros(0),
            "num_classes": np.array(2),
        },
        digest,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_samples_are_those_stored_in_the_precision_asked_for(dtype):
    several = [data(5, 3, digest) for digest in "ab"]
    problem = pose(Linear(), "cross_entropy", several[0])
    samples = load_samples(problem, several, "", "cpu", dtype)
    stored = np.stack([one["inputs"] for one in several])
    assert torch.equal(samples.inputs, torch.as_tensor(stored, dtype=dtype))
    assert samples.targets.dtype == torch.int64
    assert samples.targets[1].tolist() == several[1]["targets"].tolist()
    shared = load_samples(problem, several[:1] * 2, "", "cpu", dtype)
    assert shared.inputs.shape == (1, 5, 3)


def test_loading_takes_the_room_of_what_is_loaded():
    one = data(20_000, 50)
    problem = pose(Linear(), "cross_entropy", one)
    load_samples(problem, [one], "", "cpu", torch.float32)
    tracemalloc.start()
    samples = load_samples(problem, [one], "", "cpu", torch.float32)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.2 * samples.inputs.nbytes
