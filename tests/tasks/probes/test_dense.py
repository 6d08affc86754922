"""All eigenvalues of small operators."""

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.tasks.probes.dense import member_bytes
from tests.tasks.probes.checks import DATA, probes
from tests.tasks.probes.test_trace import matrix
from tests.tasks.toys import assert_declared, compute, dense_of, member, with_spectrum

KIND = "probe.dense"


@pytest.mark.parametrize("case", DATA)
def test_eigenvalues_are_those_of_the_dense_hessian(case):
    members = probes(KIND, case, 2)
    for probed, outcome in zip(members, compute(KIND, members), strict=True):
        assert_declared(KIND, outcome)
        H_DD, arrays = dense_of(probed), outcome.arrays
        exact = torch.linalg.eigvalsh(H_DD).numpy()
        scale = np.abs(exact).max()
        np.testing.assert_allclose(arrays["eigenvalues"], exact, atol=1e-12 * scale)
        assert arrays["trace"] == pytest.approx(H_DD.trace().item(), rel=1e-10)
        assert arrays["frobenius"] == pytest.approx(H_DD.norm().item(), rel=1e-10)
        assert arrays["least"] == arrays["eigenvalues"][0]
        assert arrays["greatest"] == arrays["eigenvalues"][-1]


def test_it_is_a_run_of_ritz_data_with_every_eigenvalue():
    arrays = compute(KIND, probes(KIND, "tanh-ce", 2))[0].arrays
    np.testing.assert_array_equal(arrays["ritz_values"][0], arrays["eigenvalues"])
    np.testing.assert_allclose(arrays["ritz_weights"], 1 / 45, rtol=1e-15)
    assert arrays["size"] == arrays["num_matvecs"] == 45


def test_the_log_determinant_is_damped_and_reported_where_there_is_none():
    values = np.array([1e-3, 1.0, 2.0, 5.0])
    of = matrix(with_spectrum(values, 0))
    for damping in (0.0, 0.5):
        (outcome,) = compute(KIND, [member(KIND, {"damping": damping}, matrix=of)])
        exact = np.log(values + damping).sum()
        assert outcome.arrays["logdet"] == pytest.approx(exact, rel=1e-10)
        assert outcome.arrays["positive_definite"]
    negative = matrix(with_spectrum([-1.0, 2.0], 0))
    (outcome,) = compute(KIND, [member(KIND, {"damping": 0.5}, matrix=negative)])
    assert np.isnan(outcome.arrays["logdet"])
    assert not outcome.arrays["positive_definite"]


def test_the_masses_near_and_below_zero_are_counted():
    of = matrix(with_spectrum([-1.0, -0.05, 0.0, 0.02, 0.3, 2.0], 0))
    (outcome,) = compute(KIND, [member(KIND, {"zero_width": 0.03}, matrix=of)])
    assert outcome.arrays["zero_mass"] == pytest.approx(3 / 6)
    assert outcome.arrays["negative_mass"] == pytest.approx(1 / 6)


def test_what_is_too_large_is_refused_before_it_is_formed():
    with pytest.raises(InputError, match="dimension at most 44, got 45"):
        compute(KIND, probes(KIND, "tanh-ce", 2, max_size=44))


def test_results_do_not_depend_on_the_width_of_the_tile():
    reference = compute(KIND, probes(KIND, "relu-ce", 5))
    for result, expected in zip(
        compute(KIND, probes(KIND, "relu-ce", 2)), reference, strict=False
    ):
        np.testing.assert_allclose(
            result.arrays["eigenvalues"], expected.arrays["eigenvalues"], atol=1e-12
        )


def test_memory_holds_the_matrices():
    (probed,) = probes(KIND, "tanh-ce", 1)
    assert 4 * 8 * 45**2 < member_bytes(probed) < 10**7
