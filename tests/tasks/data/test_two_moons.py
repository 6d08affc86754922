"""Two interleaved half circles."""

import numpy as np
import pytest
from pydantic import ValidationError

from curvflow.schemas.kinds.data.two_moons import TwoMoonsParams
from tests.tasks.toys import assert_declared, compute, member

KIND = "data.two_moons"


def moons(**params):
    (outcome,) = compute(KIND, [member(KIND, params)])
    assert_declared(KIND, outcome)
    return outcome.arrays


def together(arrays):
    """Return all points and labels, held out or not."""
    return (
        np.concatenate([arrays["inputs"], arrays["test_inputs"]]),
        np.concatenate([arrays["targets"], arrays["test_targets"]]),
    )


def test_without_noise_every_point_is_on_the_half_circle_of_its_class():
    points, labels = together(moons(num_samples=101, noise=0.0))
    assert np.bincount(labels.astype(int)).tolist() == [50, 51]
    centres = np.where(labels[:, None] == 0, [0.0, 0.0], [1.0, 0.5])
    np.testing.assert_allclose(np.hypot(*(points - centres).T), 1, rtol=1e-6)
    upward = np.where(labels == 0, 1, -1) * (points - centres)[:, 1]
    assert upward.min() > -1e-6
    # Evenly along the circle, both ends included.
    angles = np.sort(np.arccos(np.clip(points[labels == 0][:, 0], -1, 1)))
    np.testing.assert_allclose(angles, np.linspace(0, np.pi, 50), atol=1e-3)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_noise_has_the_standard_deviation_requested(seed):
    quiet, _ = together(moons(num_samples=2000, noise=0.0, seed=seed))
    noisy, _ = together(moons(num_samples=2000, noise=0.3, seed=seed))
    added = noisy - quiet  # the split depends on the seed alone
    assert added.std() == pytest.approx(0.3, abs=5 * 0.3 / np.sqrt(2 * added.size))
    assert abs(added.mean()) < 5 * 0.3 / np.sqrt(added.size)


def test_the_seed_draws_noise_and_split():
    first, again, other = moons(seed=1), moons(seed=1), moons(seed=2)
    assert len(first["inputs"]) == 400
    assert len(first["test_inputs"]) == 100
    np.testing.assert_array_equal(first["inputs"], again["inputs"])
    assert not np.array_equal(first["inputs"], other["inputs"])
    assert not np.array_equal(first["targets"], other["targets"])


def test_inputs_are_exact_in_single_precision():
    inputs = moons()["inputs"]
    np.testing.assert_array_equal(inputs, inputs.astype(np.float32))


def test_two_samples_or_more_are_left_for_training():
    with pytest.raises(ValidationError, match="at least 2 samples"):
        TwoMoonsParams(num_samples=4, test_fraction=0.7)
