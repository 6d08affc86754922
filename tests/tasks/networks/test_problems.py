"""Samples as they are loaded."""

import json
import tracemalloc

import numpy as np
import pytest
import torch

from curvflow.schemas.models.cnn_cifar import CnnCifar
from curvflow.schemas.models.linear import Linear
from curvflow.tasks.networks.problems import load_samples, pose, read, stacked
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


def test_a_field_that_changes_nothing_is_no_part_of_a_described_network():
    """Networks that were described before the field existed have one text with it."""
    images = DRAW.normal(size=(4, 3, 12, 12))
    image = as_data({**data(4, 1).arrays, "inputs": images, "test_inputs": images[:0]})
    given = {"channels": (2, 3), "hidden": (5,)}
    for fields in ({}, given):
        problem = pose(CnnCifar(**fields), "cross_entropy", image)
        assert set(given) & set(json.loads(problem.text)["model"]) == set(fields)
        assert read(problem.text).text == problem.text
    fields = CnnCifar.model_fields
    long = json.loads(pose(CnnCifar(), "cross_entropy", image).text)
    long["model"] |= {name: fields[name].default for name in given}
    text = json.dumps(long, sort_keys=True, separators=(",", ":"))
    assert read(text).text == text  # as some stores have it


def test_loading_takes_the_room_of_what_is_loaded():
    one = data(20_000, 50)
    problem = pose(Linear(), "cross_entropy", one)
    load_samples(problem, [one], "", "cpu", torch.float32)
    tracemalloc.start()
    samples = load_samples(problem, [one], "", "cpu", torch.float32)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.2 * samples.inputs.nbytes


def test_only_a_single_array_as_wanted_is_shared_and_only_where_nothing_is_written():
    one = np.arange(6.0)

    def is_shared(arrays, dtype=torch.float64, *, shares=True):
        tensor = stacked(arrays, dtype, "cpu", shares=shares)
        assert tensor.tolist() == [array.tolist() for array in arrays]
        return np.shares_memory(tensor.numpy(), one)

    assert is_shared([one])
    assert not is_shared([one], shares=False)
    assert not is_shared([one], torch.float32)
    assert not is_shared([one, one])
    assert not is_shared([one[::-1]])
    assert not is_shared([one.reshape(2, 3).T])
    one.flags.writeable = False  # torch warns of such, and warnings are errors
    assert not is_shared([one])
