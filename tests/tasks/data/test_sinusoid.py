"""A linear function and the sine of another, with noise."""

import numpy as np
import pytest
from pydantic import ValidationError

from curvflow.schemas.kinds.data.sinusoid import SinusoidParams
from tests.tasks.toys import assert_declared, compute, member

# Var(X) E(B^2) per dimension, the sine's 1/2, and the noise.
VARIANCE = 256 * (4 / 12) * (1 / 3) + 1 / 2 + 1


def arrays(**params):
    (outcome,) = compute("data.sinusoid", [member("data.sinusoid", params)])
    assert_declared("data.sinusoid", outcome)
    return outcome.arrays


def targets(got):
    return np.concatenate([got["test_targets"], got["targets"]])[:, 0]


def test_the_default_is_the_set_of_the_source():
    got = arrays()
    assert got["inputs"].shape == (1600, 256)
    assert got["test_inputs"].shape == (400, 256)
    assert got["targets"].shape == (1600, 1)
    assert got["num_classes"] == 0
    assert 0 <= got["inputs"].min() < 1e-3
    assert 2 - 1e-3 < got["inputs"].max() <= 2
    assert targets(got).mean() == pytest.approx(0, abs=1e-6)


def test_the_samples_of_a_seed_are_frozen():
    got = arrays(dim=3, num_samples=6)
    row = [0.8809422254562378, 0.05684889853000641, 1.0800658464431763]
    assert got["inputs"][0] == pytest.approx(row, rel=1e-6)
    assert got["targets"][:2, 0] == pytest.approx([1.2525651, -0.3687372], rel=1e-6)


def test_the_variance_of_the_targets_is_the_calculated_one():
    actual = np.array([targets(arrays(seed=seed)).var(ddof=1) for seed in range(100)])
    assert abs(VARIANCE - 29.94) < 0.01
    assert ((actual > 20) & (actual < 40)).all()
    standard_error = actual.std(ddof=1) / 10
    assert abs(actual.mean() - VARIANCE) < 5 * standard_error
    assert standard_error < 0.3


def test_without_noise_a_small_set_is_the_formula():
    exact = {"noise": 0.0, "centre": "none", "dim": 2, "num_samples": 4000}
    got = arrays(**exact, c=1e-4, test_fraction=0.0)
    # For weights this small the sine is linear, so y = a X (W + B).
    actual, residual, _, _ = np.linalg.lstsq(got["inputs"], got["targets"], rcond=None)
    assert residual.item() < 1e-12
    assert ((actual > 0) & (actual < 2e-4)).all()
    assert len(got["test_inputs"]) == 0


def test_every_constant_scales_what_it_names():
    plain = {"noise": 0.0, "centre": "none"}
    once, twice = arrays(**plain), arrays(**plain, a=2.0)
    np.testing.assert_allclose(twice["targets"], 2 * once["targets"], rtol=1e-6)
    np.testing.assert_array_equal(arrays(b=4.0)["inputs"], 2 * once["inputs"])
    noisy, noisier = arrays(centre="none"), arrays(centre="none", noise=3.0)
    added = noisy["targets"] - once["targets"]
    np.testing.assert_allclose(
        noisier["targets"] - once["targets"], 3 * added, atol=1e-4
    )
    assert added.std() == pytest.approx(1, abs=0.1)
    # The mean of X B is dim b c / 4.
    mean = [arrays(**plain, dim=1000, c=c)["targets"].mean() for c in (1.0, 2.0)]
    assert mean == pytest.approx([500, 1000], rel=0.1)


def test_centring_takes_means_over_all_samples_away():
    plain, both = arrays(centre="none", dim=3), arrays(centre="both", dim=3)
    whole = np.concatenate([plain["test_inputs"], plain["inputs"]])
    centred = np.concatenate([both["test_inputs"], both["inputs"]])
    np.testing.assert_allclose(centred, whole - whole.mean(0), atol=1e-6)
    y = targets(plain)
    np.testing.assert_allclose(targets(both), y - y.mean(), atol=1e-5)
    np.testing.assert_array_equal(arrays(dim=3)["inputs"], plain["inputs"])


def test_nothing_has_more_digits_than_single_precision():
    for array in arrays(dim=3).values():
        assert np.array_equal(array, array.astype(np.float32))


def test_a_set_without_training_samples_is_refused():
    with pytest.raises(ValidationError) as caught:
        SinusoidParams(num_samples=4, test_fraction=0.8)
    assert (
        "expected at least 2 samples that are not held out, got 1 of 4. "
        "Raise num_samples or lower test_fraction."
    ) in str(caught.value)
