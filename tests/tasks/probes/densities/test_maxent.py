"""Spectral densities from moments, as a kind."""

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.schemas.nodes import Moments
from curvflow.tasks.numerics.estimators.polynomials import polynomials
from tests.tasks.matrices import matrix_of
from tests.tasks.toys import assert_declared, compute, member

KIND = "probe.maxent"
SUPPORT = (0.0, 3.2)


def wishart():
    params = {"ensemble": "marchenko_pastur", "size": 300, "q": 0.5}
    return matrix_of("data.random_matrix", params)


def measured(**params) -> Moments:
    asked = {"support": SUPPORT, "num_probes": 30, **params}
    (outcome,) = compute(
        "probe.moments", [member("probe.moments", asked, matrix=wishart())]
    )
    return Moments("moments", "probe.moments", {}, outcome.arrays, str(params))


def exact(count, basis="chebyshev", values=None) -> Moments:
    if values is None:
        values = np.linalg.eigvalsh(wishart()["dense"])
    x = torch.as_tensor(np.asarray(values, dtype=np.float64))
    means = polynomials(basis, x, count + 1, SUPPORT).mean(0).numpy()
    return given(means, basis)


def given(means, basis="chebyshev") -> Moments:
    means = np.asarray(means, dtype=np.float64)
    arrays = {
        "moments": means,
        "moments_covariance": np.full((len(means), len(means)), np.nan),
        "basis": np.array(basis),
        "support": np.array(SUPPORT),
        "size": np.array(300),
    }
    return Moments("moments", "probe.moments", {}, arrays, "exact")


def run(node, **params):
    (outcome,) = compute(KIND, [member(KIND, params, moments=node)])
    assert_declared(KIND, outcome)
    return outcome.arrays


def test_measured_moments_give_marchenko_and_pastur_s_law():
    arrays = run(measured(num_moments=20))
    assert arrays["converged"]
    assert arrays["feasible"]
    low, high = (1 - 0.5**0.5) ** 2, (1 + 0.5**0.5) ** 2
    x = arrays["grid"]
    root = np.sqrt(np.clip((x - low) * (high - x), 0, None))
    law = np.divide(root, np.pi * x, out=np.zeros_like(x), where=x > low)
    apart = np.trapezoid(np.abs(arrays["density"] - law), x)
    assert apart < 0.15
    assert arrays["mass"].sum() == pytest.approx(1, rel=1e-9)


def test_entropy_falls_as_moments_are_added():
    node = exact(30)
    results = [
        run(node, num_moments=k, num_points=300) for k in (0, 1, 2, 4, 8, 15, 30)
    ]
    entropy = [arrays["entropy"] for arrays in results]
    assert all(arrays["converged"] for arrays in results)
    assert (np.diff(entropy) < 0).all()
    assert results[0]["entropy"] == pytest.approx(np.log(3.2))


def test_powers_are_turned_into_chebyshev_s_polynomials():
    by_chebyshev, other = run(exact(8)), run(exact(8, basis="power"))
    np.testing.assert_allclose(by_chebyshev["density"], other["density"], atol=1e-3)


def test_noise_is_met_within_its_errors_and_reported():
    arrays = run(measured(num_moments=60, num_probes=4))
    assert arrays["feasible"]
    assert arrays["noisy"]
    assert not run(exact(6))["noisy"]


def test_moments_of_no_density_are_flagged():
    arrays = run(given([1.0, 0.9, -0.9, 0.9]))
    assert not arrays["feasible"]
    assert not arrays["converged"]
    assert arrays["strain"] > 6


def test_the_log_prior_needs_a_support_above_zero():
    arrays = run(exact(10), prior="log", support=[0.05, 3.2])
    assert arrays["grid"][0] >= 0.05
    assert arrays["converged"]
    with pytest.raises(InputError, match="support: expected an interval above zero"):
        run(exact(10), prior="log")


def test_more_moments_than_given_are_refused():
    with pytest.raises(InputError, match="num_moments: expected at most the 5 moments"):
        run(exact(5), num_moments=6)


def test_iterative_scaling_says_that_it_has_not_converged():
    node = measured(num_moments=20)
    newton = run(node)
    scaled = run(node, solver="iterative_scaling", max_iterations=200)
    assert newton["converged"]
    assert not scaled["converged"]
    assert scaled["iterations"] == 200
    assert scaled["entropy"] > newton["entropy"]
    assert scaled["mass"].sum() == pytest.approx(1, rel=1e-12)
