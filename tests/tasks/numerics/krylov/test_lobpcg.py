"""LOBPCG against known spectra."""

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.tasks.numerics import BatchedDense, stream
from curvflow.tasks.numerics.krylov.lobpcg import lobpcg
from tests.tasks.toys import with_spectrum

SPECTRA = [
    [*np.linspace(0, 1, 75), 3, 3, 5, -6, 10],
    [1.0] * 80,
    [0.0] * 80,
    [-1, -2, -4, *np.linspace(-0.5, -0.1, 74), -6, -8, 1],
]


def solve(A, *, columns=5, k=3, which="LA", tol=1e-7, max_iterations=300, **more):
    generator = stream(0, "t")
    start = torch.randn(*A.shape[:2], columns, generator=generator, dtype=torch.float64)
    return lobpcg(
        BatchedDense(A),
        start,
        k=k,
        which=which,
        tol=tol,
        max_iterations=max_iterations,
        **more,
    )


def dense(spectra=SPECTRA):
    return torch.stack([with_spectrum(s, seed=n) for n, s in enumerate(spectra)])


@pytest.mark.parametrize("which", ["LA", "SA"])
def test_either_end_of_known_spectra_is_found(which):
    A = dense()
    result = solve(A, which=which)
    assert result.converged.all()
    values = torch.linalg.eigvalsh(A)
    exact = values.flip(1)[:, :3] if which == "LA" else values[:, :3]
    torch.testing.assert_close(result.values, exact, rtol=1e-9, atol=1e-9)
    gaps = (A @ result.vectors - result.vectors * result.values.unsqueeze(1)).norm(
        dim=1
    )
    torch.testing.assert_close(gaps, result.residuals, rtol=1e-3, atol=1e-12)
    eye = torch.eye(3).double().expand(len(A), -1, -1)
    torch.testing.assert_close(result.vectors.mT @ result.vectors, eye)


def test_too_few_iterations_are_flagged():
    result = solve(dense(SPECTRA[:1]), max_iterations=3)
    assert not result.converged.any()
    assert result.iterations.tolist() == [3]
    assert result.num_matvecs.tolist() == [15]


def test_single_precision_claims_no_more_than_its_accuracy():
    A = dense(SPECTRA[:1])
    result = solve(A.float(), tol=1e-5)
    assert result.converged.all()
    np.testing.assert_allclose(result.values[0], [10, 5, 3], rtol=1e-6)
    assert not solve(A.float(), tol=1e-9, max_iterations=60).converged.all()


def test_each_model_stops_by_itself():
    A = dense()
    together = solve(A[[0, 1, 3]])
    assert len(set(together.iterations.tolist())) == 3
    generator = stream(0, "t")
    start = torch.randn(3, 80, 5, generator=generator, dtype=torch.float64)
    alone = lobpcg(
        BatchedDense(A[[0, 0]]), start[[0, 0]], k=3, tol=1e-7, max_iterations=300
    )
    assert alone.iterations[0] == together.iterations[0]
    torch.testing.assert_close(alone.values[0], together.values[0], rtol=1e-11, atol=0)


def test_a_small_operator_is_multiplied_with_the_identity():
    result = solve(with_spectrum([3.0, -2, 1, 0], seed=0)[None], columns=3)
    np.testing.assert_allclose(result.values[0], [3, 1, 0], atol=1e-12)
    assert result.num_matvecs.tolist() == [4]


def test_magnitudes_are_refused():
    with pytest.raises(InputError, match="which: expected LA or SA for lobpcg"):
        solve(dense(SPECTRA[:1]), which="LM")


def test_products_that_are_not_finite_are_refused():
    with pytest.raises(InputError, match="operator: expected finite products"):
        solve(torch.full((1, 40, 40), torch.nan).double())


@pytest.mark.parametrize("which", ["LA", "SA"])
def test_a_preconditioner_near_the_inverse_saves_products(which):
    values = np.logspace(-3, 1, 80)
    wide = values if which == "SA" else -values
    A = dense([wide, wide * np.linspace(1, 2, 80)])
    eye = torch.eye(80, dtype=torch.float64)
    definite = A if which == "SA" else -A
    near = with_spectrum(np.linspace(0, 1e-3, 80), seed=9)
    inverse = BatchedDense(torch.linalg.inv(definite + near + 1e-4 * eye))
    plain = solve(A, which=which)
    found = solve(A, which=which, preconditioner=inverse)
    expected = torch.linalg.eigvalsh(A)
    ends = expected[:, :3] if which == "SA" else expected[:, -3:].flip(1)
    assert found.converged.all()
    torch.testing.assert_close(found.values, ends, rtol=1e-7, atol=1e-9)
    assert (found.num_matvecs < 0.4 * plain.num_matvecs).all()
    alone = solve(A[[1, 1]], which=which, preconditioner=inverse.select([1, 1]))
    assert alone.num_matvecs[1] == found.num_matvecs[1]
