"""Inputs that are changed in training, drawn anew in each step."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.kinds.train import Augmentation
from curvflow.schemas.nodes import NodeData
from curvflow.tasks.networks.problems import Samples
from curvflow.tasks.training.augmentation import Augmenter
from curvflow.tasks.training.gradients import Noise
from tests.tasks.toys import SGD, TANH_NET, as_data, blobs, train_all, train_member

LIKE = torch.zeros(1, dtype=torch.float64)
# Every pixel is another number, and none is 0.
IMAGES = 1.0 + torch.arange(2 * 60 * 2 * 4 * 5, dtype=torch.float64).view(
    2, 60, 2, 4, 5
)


def augmented(x=IMAGES, seeds=(0, 1), step=0, **changes):
    noise = Noise(seeds, step, "augmentation", LIKE)
    samples = Samples(x, torch.zeros(x.shape[:2], dtype=torch.int64))
    return Augmenter(Augmentation(**changes)).applied(samples, noise)


def moved(image, down, right):
    """Return an image that is moved, by slices."""
    framed = np.zeros((image.shape[0], 4 + 8, 5 + 8))
    framed[:, 4:8, 4:9] = image
    return framed[:, 4 + down : 8 + down, 4 + right : 9 + right]


def all_moves(most, flips=(False,)):
    steps = range(-most, most + 1)
    return [(d, r, f) for d in steps for r in steps for f in flips]


@pytest.mark.parametrize(("most", "flips"), [(1, (False,)), (0, (False, True))])
def test_images_are_moved_and_flipped_each_way_alike_often(most, flips):
    x = augmented(IMAGES[:1], shift=most, flip=len(flips) == 2).inputs.numpy()
    counts = dict.fromkeys(all_moves(most, flips), 0)
    for model in x:
        for image, plain in zip(model, IMAGES[0].numpy(), strict=True):
            (found,) = (
                (down, right, flip)
                for down, right, flip in counts
                if np.array_equal(
                    image, moved(plain[..., ::-1] if flip else plain, down, right)
                )
            )
            counts[found] += 1
    expected = 120 / len(counts)
    sem = np.sqrt(expected * (1 - 1 / len(counts)))
    assert all(abs(count - expected) < 5 * sem for count in counts.values())


def test_a_square_is_erased_and_no_more():
    x = augmented(erase=3).inputs
    is_erased = x == 0
    assert torch.equal(x[~is_erased], IMAGES[~is_erased])
    assert torch.equal(is_erased[:, :, 0], is_erased[:, :, 1])
    heights = is_erased[:, :, 0].any(3).sum(2)
    widths = is_erased[:, :, 0].any(2).sum(2)
    assert set(heights.flatten().tolist()) == {2, 3}
    assert set(widths.flatten().tolist()) == {2, 3}
    assert torch.equal(is_erased.sum((2, 3, 4)), 2 * heights * widths)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_noise_is_normal_with_its_standard_deviation(seed):
    x = torch.zeros(1, 4000, 3, dtype=torch.float64)
    drawn = augmented(x, seeds=(seed, 7), noise=0.5).inputs[0].flatten() / 0.5
    count = len(drawn)
    for power, mean, variance in [(1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)]:
        error = (drawn**power).mean().item() - mean
        assert abs(error) < 5 * np.sqrt(variance / count)


def test_changes_are_of_the_seed_and_the_step():
    changes = {"shift": 2, "flip": True, "erase": 2, "noise": 0.1}
    first = augmented(IMAGES[:1], seeds=(0, 0, 1), **changes).inputs
    later = augmented(IMAGES[:1], seeds=(0, 0, 1), step=1, **changes).inputs
    assert torch.equal(first[0], first[1])
    assert not torch.equal(first[0], first[2])
    assert not torch.equal(first[0], later[0])
    alone = augmented(IMAGES[:1], seeds=(1, 1), **changes).inputs
    assert torch.equal(first[2], alone[0])


CHANGES = {"shift": 1, "flip": True, "noise": 0.1}


def pictures():
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(24, 1, 4, 4)), np.arange(24) % 3
    return as_data(dataset(x[6:], y[6:], x[:6], y[:6]), "pictures")


def fitted(data, count=2, epochs=3, **settings):
    fixed = {"model": TANH_NET, "batch_size": 5, "rule": SGD, "dtype": "float64"}
    fixed = {**fixed, "epochs": epochs, **settings}
    members = [train_member(data, seed=seed, **fixed) for seed in range(count)]
    return [outcome.arrays for outcome in train_all(members)]


@pytest.mark.parametrize("batch_size", [None, 5])
def test_training_takes_the_changes_and_measures_without(batch_size):
    data = pictures()
    plain, changed = (
        fitted(data, batch_size=batch_size, augment=augment)[0]
        for augment in (None, CHANGES)
    )
    assert plain["train_loss"][0] == changed["train_loss"][0]
    assert plain["test_loss"][0] == changed["test_loss"][0]
    assert not np.allclose(plain["weights"], changed["weights"], rtol=1e-3)


def test_siblings_and_the_length_of_training_have_no_say():
    data = pictures()
    alone = fitted(data, 2, augment=CHANGES, checkpoints={"every": 2})
    among = fitted(data, 4, epochs=5, augment=CHANGES, checkpoints={"every": 2})
    for one, other in zip(alone, among, strict=False):
        kept = np.flatnonzero(other["checkpoint"] == 2)[0]
        assert one["checkpoint"][1] == 2
        np.testing.assert_allclose(
            one["weights"][1], other["weights"][kept], rtol=1e-12, atol=1e-14
        )


def test_training_goes_on_with_the_same_changes():
    def tile(epochs):
        settings = {"model": TANH_NET, "batch_size": 5, "rule": SGD, "epochs": epochs}
        data = pictures()
        return [train_member(data, seed=n, augment=CHANGES, **settings) for n in (0, 1)]

    shorter = [
        NodeData("fit", "train", {}, outcome.arrays, "d")
        for outcome in train_all(tile(2))
    ]
    pairs = zip(tile(3), shorter, strict=True)
    result = train_all([replace(m, earlier=earlier) for m, earlier in pairs])
    for first, other in zip(result, train_all(tile(3)), strict=True):
        assert first.arrays["weights"].tobytes() == other.arrays["weights"].tobytes()


def test_both_gradients_of_a_step_see_the_same_inputs():
    sam = {"rule": "sam", "inner": SGD, "rho": 0.0}
    settings = {"augment": CHANGES, "accumulation": 2, "count": 1}
    first, other = (fitted(pictures(), rule=r, **settings)[0] for r in (sam, SGD))
    np.testing.assert_allclose(first["weights"], other["weights"], rtol=1e-10)


def test_images_alone_are_shifted_and_any_inputs_are_noisy():
    with pytest.raises(InputError, match="augment: expected images"):
        fitted(blobs(), augment=CHANGES)
    assert fitted(blobs(), epochs=1, augment={"noise": 0.1})


@pytest.mark.parametrize("changes", [{}, {"shift": 0}, {"noise": -1.0}, {"turn": 1}])
def test_what_changes_nothing_is_refused(changes):
    with pytest.raises(ValidationError):
        Augmentation(**changes)
