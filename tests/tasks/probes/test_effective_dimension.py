"""The effective dimension of networks, from products or from Ritz data."""

import numpy as np
import pytest

from curvflow.errors import InputError
from curvflow.schemas.nodes import Ritz
from curvflow.tasks.curvature import ritz_data
from tests.tasks.matrices import as_matrix
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


VALUES = np.logspace(-5, 1, 240)
TRUTH = (VALUES / (VALUES + 1e-3)).sum()


def of_matrix(seeds=(0,), **params):
    params = {"num_runs": 6, "num_steps": 10, "prior_precision": [1e-3], **params}
    node = as_matrix(np.diag(VALUES))
    members = [member(KIND, {**params, "seed": s}, matrix=node) for s in seeds]
    return [outcome.arrays for outcome in compute(KIND, members)]


def test_a_spectrum_that_the_steps_do_not_resolve_is_said_not_to_be():
    (arrays,) = of_matrix(distribution="gaussian")
    assert not arrays["converged"][0]
    assert (
        arrays["effective_dimension_quadrature"] > arrays["effective_dimension_vectors"]
    )
    low, high = (arrays[f"effective_dimension_{end}"] for end in ("low", "high"))
    assert low < TRUTH < high
    error = abs(arrays["effective_dimension"] - TRUTH)
    assert error < 3 * arrays["effective_dimension_sem"]
    assert 10 < arrays["steps_needed"][0] <= 240


def test_with_a_relative_error_steps_are_doubled_until_it_is_met():
    (arrays,) = of_matrix(rel_error=0.05, num_steps=20)
    assert arrays["converged"][0]
    found = arrays["effective_dimension"]
    assert arrays["effective_dimension_quadrature"] <= 0.05 * found
    assert found == pytest.approx([TRUTH], rel=0.06)
    # Six runs of 20 steps, continued: eight times as many at most.
    assert arrays["num_matvecs"] in [6 * 20 * 2**k for k in (1, 2, 3)]


def test_runs_that_do_not_fit_are_begun_again_with_the_same_result(monkeypatch):
    (held,) = of_matrix(rel_error=0.05, num_steps=20)
    monkeypatch.setattr(ritz_data, "BASIS_BYTES", 8 * 240 * 100)
    (again,) = of_matrix(rel_error=0.05, num_steps=20)
    for name in ("effective_dimension", "effective_dimension_sem"):
        np.testing.assert_allclose(again[name], held[name], rtol=1e-9)
    steps = held["num_matvecs"] // 6
    assert again["num_matvecs"] == 6 * (2 * steps - 20)


def test_doubling_ends_and_states_the_steps_that_would_do():
    (arrays,) = of_matrix(rel_error=1e-9, num_steps=4)
    assert not arrays["converged"][0]
    assert arrays["num_matvecs"] == 6 * 4 * 8
    assert arrays["steps_needed"][0] > 32


def test_members_are_refined_each_by_itself():
    together = of_matrix((0, 1, 2), rel_error=0.05)
    alone = [of_matrix((seed, seed), rel_error=0.05)[0] for seed in (0, 1, 2)]
    for one, other in zip(together, alone, strict=True):
        for name in ("effective_dimension", "num_matvecs", "converged"):
            np.testing.assert_allclose(one[name], other[name], rtol=1e-9)
