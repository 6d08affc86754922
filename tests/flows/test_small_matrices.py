"""Matrices of few rows, through the library's defaults."""

import numpy as np
import pytest

import curvflow


@pytest.mark.parametrize("size", [1, 2, 3, 7, 30, 99, 100, 101])
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_log_determinants_of_small_matrices_are_those_of_their_eigenvalues(size, scale):
    draw = np.random.default_rng(size)
    basis = np.linalg.qr(draw.normal(size=(size, size)))[0]
    values = scale * 10 ** draw.uniform(-3, 1, size)
    matrix = (basis * values) @ basis.T
    told = curvflow.from_matrix((matrix + matrix.T) / 2).logdet()
    truth = np.log(values).sum()
    assert abs(told.value - truth) <= 3 * told.sem + 1e-6 * abs(truth)


def test_a_damping_that_is_advised_suffices():
    draw = np.random.default_rng(0)
    rows = draw.normal(size=(5, 3))
    for matrix in (np.zeros((3, 3)), rows @ rows.T, -np.eye(4)):
        H = curvflow.from_matrix(matrix)
        with pytest.raises(curvflow.CurvflowError) as refused:
            H.logdet(method="dense")
        advised = float(str(refused.value).rpartition("at least ")[2].rstrip("."))
        told = H.logdet(method="dense", damping=advised)
        truth = np.log(np.linalg.eigvalsh(matrix) + advised).sum()
        assert told.value == pytest.approx(truth, rel=1e-6)


@pytest.mark.parametrize("method", ["dense", "slq", "preconditioned_slq"])
def test_log_determinants_of_multiples_of_the_identity(method):
    for factor in (1.0, 0.5):
        H = curvflow.from_matrix(factor * np.eye(4))
        told = H.logdet(method=method)
        assert told.value == pytest.approx(4 * np.log(factor), abs=1e-12)


@pytest.mark.parametrize("values", [(1.0, 3.0), (1e-6, 1e2), (0.5, 0.6)])
@pytest.mark.parametrize("num_runs", [4, 16])
def test_runs_along_one_eigenvector_state_no_error(values, num_runs):
    """Signs of two rows lie along either eigenvector, and see both or one."""
    basis = np.array([[1.0, 1.0], [1.0, -1.0]]) / np.sqrt(2)
    H = curvflow.from_matrix((basis * values) @ basis.T)
    truth, held, stated, seeds = sum(v / (v + 1) for v in values), 0, 0, 50
    for seed in range(seeds):
        spectrum = H.spectrum(num_runs=num_runs, num_steps=2, seed=seed)
        told = spectrum.effective_dimension(1.0)
        assert told.sem != 0
        if np.isnan(told.sem):
            continue
        stated += 1
        low, high = told.interval
        held += low <= truth <= high
    # All runs see one of two with probability 2^(1 - num_runs).
    assert stated >= (0.75 if num_runs == 4 else 0.97) * seeds
    assert held >= 0.9 * stated
