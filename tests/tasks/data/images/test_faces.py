"""Faces, of photographs made up and of the real ones where they are found."""

import math

import numpy as np
import pytest
import torch

from curvflow.schemas.checks.samples import num_training
from curvflow.schemas.kinds import find_kind
from curvflow.tasks.data.images.faces import member_bytes, turned
from tests.flows.published import real
from tests.tasks.toys import member

FEW = {"people": 3, "pairs": 2, "size": 8}


def photographs():
    rng = np.random.default_rng(2)
    inputs = rng.integers(0, 256, (400, 1, 112, 92), dtype=np.uint8)
    none = {"test_inputs": inputs[:0], "test_targets": np.zeros(0, dtype=np.int64)}
    return {"inputs": inputs, "targets": np.arange(40).repeat(10), **none}


def faces(**params):
    return real.outcome("faces", photographs(), **FEW | params).arrays


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_each_photograph_of_the_first_people_gives_as_many_images_as_pairs():
    actual = faces(test_people=1)
    assert actual["inputs"].shape == (60, 1, 8, 8)
    assert actual["inputs"].dtype == np.float32
    assert actual["targets"].tolist() == [0] * 20 + [1] * 20 + [2] * 20
    assert actual["test_inputs"].shape == (20, 1, 8, 8)
    assert actual["test_targets"].tolist() == [3] * 20
    assert actual["num_classes"] == 4
    assert 0 < actual["inputs"].min() < actual["inputs"].max() < 1
    levels = 255 * actual["inputs"]
    np.testing.assert_allclose(levels, np.rint(levels), atol=1e-4)


def test_more_people_begin_with_the_images_of_fewer():
    few, more = faces(), faces(people=4)
    assert np.array_equal(more["inputs"][:60], few["inputs"])
    held_out = faces(people=3, test_people=1)
    assert np.array_equal(held_out["test_inputs"], more["inputs"][60:])
    assert not np.array_equal(faces(seed=1)["inputs"], few["inputs"])


def test_modifications_apply_as_to_other_images():
    actual = faces(targets="inputs", num_train=10, crop=6)
    assert actual["targets"].shape == (10, 36)
    odd = faces(relabel="parity", classes=[2, 1])
    assert odd["targets"].tolist() == [1] * 20 + [0] * 20


def test_a_photograph_that_is_not_turned_is_its_central_square():
    photo = torch.arange(92).expand(112, 92).byte()
    (image,) = turned(photo, tensor(0.0), tensor(1.0), 46)
    # Means of two columns each, which are halfway between whole levels.
    middle = 2 * np.arange(46)[1:-1] + 0.5
    assert np.abs(image[:, 1:-1].numpy() - middle).max() <= 0.5


@pytest.mark.parametrize("degrees", [-70.0, 0.0, 33.0, 90.0])
@pytest.mark.parametrize("scale", [1.4, 2.0])
def test_a_slope_is_turned_and_stretched_as_the_draw_says(degrees, scale):
    # Linear interpolation is exact on a slope: 1 + x + y / 2 from the top left corner.
    y, x = torch.meshgrid(torch.arange(112), torch.arange(92), indexing="ij")
    slope = x + (y + 0.5) / 2 + 1.5
    angle = math.radians(degrees)
    (image,) = turned(slope, tensor(angle), tensor(scale), 9)
    off = (np.arange(9) - 4) / 9 * 92 / scale
    right, down = np.meshgrid(off, off)
    across = 46 + math.cos(angle) * right - math.sin(angle) * down
    below = 56 + math.sin(angle) * right + math.cos(angle) * down
    exact = 1 + across + below / 2
    # Corners of the turned square may lie beyond the photograph, where it ends.
    inside = (np.hypot(right, down) + 92 / scale / 9) < 46
    assert inside.sum() > 40
    assert np.abs(image.numpy() - exact)[inside].max() <= 0.5 + 1e-9


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"people": 30, "test_people": 11}, "of at most 40 in all, got 30 and 11"),
        ({"scale": [2.0, 1.0]}, "from the least to the largest, got 2.0 to 1.0"),
        ({"people": 5, "classes": [0, 5]}, "classes from 0 to 4, got 5"),
        ({"people": 5, "pairs": 2, "num_train": 101}, "at most the 100 there are"),
        ({"crop": 26}, "a crop of at most 25 pixels"),
        ({"download": True}, "download cannot be combined with faces"),
    ],
)
def test_what_the_photographs_do_not_have_is_refused(params, message):
    with pytest.raises(ValueError, match=r"expected|cannot be combined") as caught:
        find_kind("data.faces").params.model_validate(params)
    assert message in str(caught.value)


def test_planning_knows_how_many_images_there_are():
    params = find_kind("data.faces").params
    assert num_training(params()) == 25 * 10 * 20
    assert num_training(params(people=5, test_people=2, classes=(0, 4, 6))) == 400
    sizes = [member_bytes(member("data.faces", {"people": n})) for n in (10, 20)]
    # 2,000 images of single precision three times, of bytes three times, and labels.
    assert sizes[1] - sizes[0] == 2000 * (625 * (3 * 4 + 3) + 16)


@pytest.mark.images
def test_the_real_photographs_are_those_of_forty_people():
    arrays = real.read("faces")
    assert arrays["inputs"].shape == (400, 1, 112, 92)
    assert np.bincount(arrays["targets"]).tolist() == [10] * 40
    # People differ more than the photographs of one do.
    small = arrays["inputs"].reshape(40, 10, -1).astype(float)
    within = small.std(axis=1).mean()
    assert within < 0.9 * small.std(axis=(0, 1)).mean()
    images = real.outcome("faces", arrays, people=2, pairs=3).arrays["inputs"]
    assert images.shape == (60, 1, 25, 25)
    assert 0.2 < images.mean() < 0.7
