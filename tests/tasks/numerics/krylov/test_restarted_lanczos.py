"""Block Lanczos with restarts, and LOBPCG, against known spectra."""

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.tasks.numerics import BatchedDense, block_power, stream
from curvflow.tasks.numerics.krylov.eigenpairs import preference
from curvflow.tasks.numerics.krylov.restarted_lanczos import (
    basis_size,
    restarted_lanczos,
)
from tests.tasks.toys import with_spectrum

SPECTRA = {
    "outliers": [*np.linspace(0, 1, 115), 3, 3, 5, -6, 10],
    "identity": [1.0] * 120,
    "zero": [0.0] * 120,
    "negative": [-1, -2, -4, *np.linspace(-0.5, 0, 117)],
    "low-rank": [0.0] * 117 + [1, -2, 3],
}


def dense(*names):
    return torch.stack([with_spectrum(SPECTRA[name], seed=3) for name in names])


def blocks(models, size, columns, seed=0):
    generator = stream(seed, "t")
    return torch.randn(models, size, columns, generator=generator, dtype=torch.float64)


def solve(A, *, block=2, k=3, which="LM", tol=1e-8, max_iterations=400, seed=0):
    return restarted_lanczos(
        BatchedDense(A),
        blocks(*A.shape[:2], block, seed),
        k=k,
        which=which,
        tol=tol,
        max_iterations=max_iterations,
    )


def expected(A, which, k):
    values = torch.linalg.eigvalsh(A.double())
    return values.gather(1, preference(values, which))[:, :k]


@pytest.mark.parametrize("which", ["LM", "LA", "SA"])
@pytest.mark.parametrize("block", [1, 3])
def test_extreme_eigenvalues_of_known_spectra_are_found(which, block):
    A = dense(*SPECTRA)
    result = solve(A, which=which, block=block)
    assert result.converged.all()
    torch.testing.assert_close(
        result.values, expected(A, which, 3), rtol=1e-9, atol=1e-9
    )
    gaps = (A @ result.vectors - result.vectors * result.values.unsqueeze(1)).norm(
        dim=1
    )
    torch.testing.assert_close(gaps, result.residuals, rtol=1e-3, atol=1e-11)
    eye = torch.eye(3).double().expand(len(A), -1, -1)
    torch.testing.assert_close(result.vectors.mT @ result.vectors, eye)
    assert result.num_matvecs.tolist() == (result.iterations * block).tolist()


def test_a_repeated_eigenvalue_is_found_as_often_as_the_block_is_wide():
    A = dense("outliers")
    result = solve(A, k=4, which="LA", block=2)
    np.testing.assert_allclose(result.values[0], [10, 5, 3, 3], rtol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_what_copies_may_be_missing_before_is_not_converged(dtype):
    values = [0.0] * 5 + list(np.linspace(1, 2, 145))
    A = with_spectrum(values, seed=2)[None].to(dtype)
    few, many = (solve(A, k=6, which="SA", block=block, tol=1e-3) for block in (4, 6))
    missed = few.values[0, 4].item() > 0.5
    assert missed == (not few.converged[0, 4:].any())
    assert few.converged[0, :4].all()
    assert many.converged.all()
    np.testing.assert_allclose(many.values[0], [0] * 5 + [1], atol=1e-3)


def test_no_eigenvalue_is_claimed_before_all_copies_of_another():
    draw = np.random.default_rng(0)
    wrong = claimed = 0
    for case in range(40):
        copies, block = int(draw.integers(1, 8)), int(draw.integers(2, 6))
        values = np.concatenate([np.zeros(copies), draw.uniform(1, 9, 120)])
        A = with_spectrum(values.tolist(), seed=case)[None]
        found = solve(A, k=6, which="SA", block=block, tol=10 ** draw.uniform(-8, -2))
        true = np.sort(values)[:6]
        off = np.abs(found.values[0].numpy() - true) > 0.02 * true + 1e-6
        flags = found.converged[0].numpy()
        wrong, claimed = wrong + (flags & off).sum(), claimed + flags.sum()
    assert wrong == 0
    assert claimed > 120


def test_it_needs_far_fewer_products_than_the_power_method():
    spectrum = [*np.linspace(0, 1, 297), 1.1, 1.15, 1.2]
    A = with_spectrum(spectrum, seed=1)[None].repeat(2, 1, 1)
    result = solve(A, tol=1e-6)
    power = block_power(
        BatchedDense(A), blocks(2, 300, 8), k=3, tol=1e-6, max_iterations=2000
    )
    assert result.converged.all()
    assert power.converged.all()
    assert 5 * result.num_matvecs[0] < power.num_matvecs[0]


def test_a_warm_start_halves_the_products():
    A = with_spectrum([*np.linspace(0, 1, 197), 1.2, 1.3, 1.5], seed=1)[None]
    drift = torch.randn(200, 200, generator=stream(1, "t"), dtype=torch.float64)
    nearby = A + 1e-5 * (drift + drift.T)
    cold = solve(nearby, block=3, tol=1e-6)
    first = solve(A, block=3).vectors
    warm = restarted_lanczos(
        BatchedDense(nearby), first, k=3, tol=1e-6, max_iterations=400
    )
    assert warm.converged.all()
    torch.testing.assert_close(warm.values, cold.values, rtol=1e-9, atol=0)
    assert 2 * warm.num_matvecs < cold.num_matvecs


def test_too_few_iterations_are_flagged_and_what_is_missing_is_nan():
    A = dense("outliers")
    result = solve(A, k=5, block=2, max_iterations=2)
    assert result.values[0, :4].isfinite().all()
    assert result.values[0, 4].isnan()
    assert result.residuals[0, 4].isnan()
    assert not result.converged.any()
    assert result.iterations.tolist() == [2]


def test_restarts_keep_what_was_found():
    spectrum = [*np.linspace(0, 1, 198), 1.002, 1.004]
    A = with_spectrum(spectrum, seed=1)[None]
    result = solve(A, k=2, block=1, tol=1e-9)
    assert result.converged.all()
    assert result.iterations[0] > 2 * basis_size(2, 1)
    np.testing.assert_allclose(result.values[0], [1.004, 1.002], rtol=1e-12)


def test_a_small_operator_is_multiplied_with_the_identity():
    A = with_spectrum([3.0, -2, 1, 0, 0, 0.5], seed=0)[None]
    result = solve(A, k=6)
    np.testing.assert_allclose(result.values[0], [3, -2, 1, 0.5, 0, 0], atol=1e-12)
    assert result.converged.all()
    assert result.num_matvecs.tolist() == [6]


def test_single_precision_claims_no_more_than_its_accuracy():
    A = dense("outliers", "negative")
    result = solve(A.float(), tol=1e-5)
    assert result.converged.all()
    torch.testing.assert_close(
        result.values, expected(A, "LM", 3), rtol=1e-5, atol=1e-5
    )
    gaps = A @ result.vectors - result.vectors * result.values.unsqueeze(1)
    assert (gaps.norm(dim=1) <= 1.1e-5 * result.values.abs()).all()
    assert result.num_matvecs.tolist() == (2 * result.iterations + 1).tolist()
    strict = solve(A.float(), tol=1e-9, max_iterations=60)
    assert not strict.converged.any()
    assert (strict.residuals > 1e-9).all()
    assert strict.num_matvecs.tolist() == (2 * strict.iterations + 4).tolist()
    few = solve(A.float(), k=5, max_iterations=2)
    assert few.values[:, 4].isnan().all()
    assert few.residuals[:, 4].isnan().all()
    assert not few.converged[:, 4].any()


def test_each_model_stops_by_itself():
    A = dense("outliers", "negative", "low-rank")
    together = solve(A)
    assert len(set(together.iterations.tolist())) == 3
    for m in range(3):
        alone = restarted_lanczos(
            BatchedDense(A[[m, m]]),
            blocks(3, 120, 2)[[m, m]],
            k=3,
            tol=1e-8,
            max_iterations=400,
        )
        assert alone.iterations[0] == together.iterations[m]
        torch.testing.assert_close(
            alone.values[0], together.values[m], rtol=1e-10, atol=1e-12
        )


@pytest.mark.parametrize("block", [1, 2])
def test_what_an_operator_returns_is_left_as_it_was(block):
    A_DD = torch.diag(torch.arange(60.0).double())

    class Remembers:
        """Returns of its products what it goes on holding."""

        shape, dtype, device = (1, 60, 60), torch.float64, torch.device("cpu")

        def __init__(self):
            self.given = []

        def __matmul__(self, columns):
            result = A_DD @ columns
            self.given.append((result, result.clone()))
            return result

    operator = Remembers()
    restarted_lanczos(operator, blocks(1, 60, block), k=2, tol=1e-6, max_iterations=300)
    assert operator.given
    assert all(torch.equal(result, copy) for result, copy in operator.given)


def test_products_that_are_not_finite_are_refused():
    with pytest.raises(InputError, match="operator: expected finite products"):
        solve(torch.full((1, 120, 120), torch.nan).double())
