"""The effective dimension of networks, from products or from Ritz data."""

import numpy as np
import pytest

from curvflow.errors import InputError
from curvflow.schemas.nodes import Ritz
from tests.tasks.probes.checks import probes
from tests.tasks.toys import assert_declared, compute, dense_of, member

KIND = "probe.effective_dimension"
PRECISION = [0.01, 0.1, 1.0]


def stored(outcome):
    arrays = {name: outcome.arrays[name] for name in Ritz.takes}
    return Ritz("s", "probe.spectrum", {}, arrays, "r")


def exact(probed):
    values = np.linalg.eigvalsh(dense_of(probed).numpy()).clip(0)
    return np.array([(values / (values + p)).sum() for p in PRECISION])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_it_is_within_five_standard_errors_of_the_dense_one(seed):
    # Of 45 eigenvalues 7 are zero: 39 differ, so that no run ends before 39 steps, and
    # rounding decides which of them do then.
    settings = {"num_runs": 16, "num_steps": 38, "prior_precision": PRECISION}
    members = probes(KIND, "tanh-ce", 2, seed=seed, **settings)
    for probed, outcome in zip(members, compute(KIND, members), strict=True):
        assert_declared(KIND, outcome)
        arrays = outcome.arrays
        error = np.abs(arrays["effective_dimension"] - exact(probed))
        assert (error < 5 * arrays["effective_dimension_sem"]).all()
        assert (np.diff(arrays["effective_dimension"]) < 0).all()
        assert arrays["num_matvecs"] == 16 * 38


def test_stored_ritz_data_give_the_same_without_a_product():
    settings = {"num_runs": 5, "num_steps": 8}
    spectra = compute("probe.spectrum", probes("probe.spectrum", "tanh-ce", **settings))
    direct = compute(
        KIND, probes(KIND, "tanh-ce", prior_precision=PRECISION, **settings)
    )
    read = compute(
        KIND,
        [member(KIND, {"prior_precision": PRECISION}, ritz=stored(s)) for s in spectra],
    )
    for first, other in zip(direct, read, strict=True):
        np.testing.assert_allclose(
            first.arrays["effective_dimension_draws"],
            other.arrays["effective_dimension_draws"],
            rtol=1e-12,
        )
        assert (first.arrays["num_matvecs"], other.arrays["num_matvecs"]) == (40, 0)


def test_an_operator_with_stored_ritz_data_is_refused():
    (spectrum,) = compute(
        "probe.spectrum", probes("probe.spectrum", "tanh-ce", 1, num_runs=2)
    )
    with pytest.raises(InputError, match="cannot be combined with stored Ritz"):
        compute(KIND, [member(KIND, {"operator": "ggn"}, ritz=stored(spectrum))])
