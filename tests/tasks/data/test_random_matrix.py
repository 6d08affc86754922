"""Random matrices as data."""

import numpy as np
import pytest
from pydantic import ValidationError

from tests.tasks.matrices import matrix_of
from tests.tasks.toys import assert_declared, compute, member

KIND = "data.random_matrix"


def spectrum(**params):
    return np.linalg.eigvalsh(matrix_of(KIND, params)["dense"])


def test_a_wigner_matrix_fills_the_semicircle():
    values = spectrum(size=400)
    assert (values**2).mean() == pytest.approx(1, abs=0.05)
    assert (values**4).mean() == pytest.approx(2, abs=0.2)
    assert np.abs(values).max() == pytest.approx(2, abs=0.15)


@pytest.mark.parametrize("q", [0.5, 2.0])
def test_a_sample_covariance_fills_marchenko_and_pastur_s_interval(q):
    values = spectrum(ensemble="marchenko_pastur", size=400, q=q)
    assert values.max() == pytest.approx((1 + q**0.5) ** 2, rel=0.05)
    assert values.mean() == pytest.approx(1, abs=0.03)
    zeros = np.abs(values) < 1e-9
    assert zeros.mean() == pytest.approx(max(0, 1 - 1 / q), abs=0.01)
    assert values[~zeros].min() == pytest.approx((1 - q**0.5) ** 2, rel=0.25)


def test_the_spectrum_with_outliers_has_its_counts():
    values = spectrum(ensemble="outliers", size=1000)
    assert (np.abs(values) < 1e-9).sum() == 500
    assert (values < -1e-9).sum() == 10
    assert (values > 15).sum() <= 20
    assert values.mean() == pytest.approx(4.1, abs=0.3)


def test_given_eigenvalues_are_those_of_the_matrix():
    values = spectrum(ensemble="eigenvalues", eigenvalues=[3.0, -1.0, 0.5], scale=2.0)
    np.testing.assert_allclose(values, [-2, 1, 6], atol=1e-12)


def test_matrices_are_symmetric_to_the_last_bit_and_declared():
    for ensemble in ("wigner", "marchenko_pastur", "outliers"):
        (outcome,) = compute(KIND, [member(KIND, {"ensemble": ensemble, "size": 50})])
        assert_declared(KIND, outcome)
        assert np.array_equal(outcome.arrays["dense"], outcome.arrays["dense"].T)


@pytest.mark.parametrize(
    "params", [{"ensemble": "eigenvalues"}, {"eigenvalues": [1.0, 2.0]}]
)
def test_eigenvalues_belong_to_their_ensemble(params):
    with pytest.raises(ValidationError, match="cannot be combined with ensemble"):
        member(KIND, params)
