"""Block power iteration against known spectra."""

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.tasks.numerics import BatchedDense, block_power, stream
from tests.tasks.toys import with_spectrum


def solve(A_MDD, k, *, columns=None, tol=1e-8, max_iterations=2000):
    size = A_MDD.shape[1]
    start = torch.stack(
        [
            torch.randn(size, columns or k, generator=stream(m, "t"), dtype=A_MDD.dtype)
            for m in range(len(A_MDD))
        ]
    )
    return block_power(
        BatchedDense(A_MDD), start, k=k, tol=tol, max_iterations=max_iterations
    )


@pytest.mark.parametrize(
    "spectrum",
    [
        [10, 6, 3, 1, 0.5, 0.2, 0.1, 0],
        [10, -6, 3, 1, 0.5, 0.2, 0.1, 0],
        [10, 5, -4.9, 1, 0.5, 0.2, 0.1, 0],
        [10, 5, -5, 1, 0.5, 0.2, 0.1, 0],
        [-7, -7, 2, 1, 0.5, 0.2, 0.1, 0],
    ],
)
def test_signed_eigenvalues_are_found_by_magnitude(spectrum):
    A = with_spectrum(spectrum, seed=1)[None]
    result = solve(A, k=3)
    assert result.converged.all()
    expected = sorted(spectrum[:3])
    np.testing.assert_allclose(sorted(result.values[0].tolist()), expected, rtol=1e-8)
    magnitudes = result.values[0].abs()
    assert (magnitudes[:-1] >= magnitudes[1:] * (1 - 1e-8)).all()


def test_vectors_are_orthonormal_and_residuals_are_true():
    A = with_spectrum([9, -5, 3, 1, 0.1], seed=2)[None]
    result = solve(A, k=2)
    U = result.vectors[0]
    torch.testing.assert_close(U.T @ U, torch.eye(2).double(), rtol=0, atol=1e-12)
    residuals = (A[0] @ U - U * result.values[0]).norm(dim=0)
    torch.testing.assert_close(result.residuals[0], residuals, rtol=1e-3, atol=1e-12)


def test_all_eigenvalues_sum_to_the_trace():
    A = with_spectrum([4, -3, 2, 1], seed=3)[None]
    assert solve(A, k=4).values.sum().item() == pytest.approx(4, rel=1e-10)


def test_zero_eigenvalues_count_as_found():
    result = solve(with_spectrum([2, 0, 0, 0], seed=4)[None], k=3)
    assert result.converged.all()
    np.testing.assert_allclose(result.values[0], [2, 0, 0], atol=1e-12)
    assert solve(torch.zeros(1, 4, 4).double(), k=2).converged.all()


def test_eigenvalues_that_lie_too_close_are_flagged():
    spectrum = [1, 0.9999999, 0.9999998, 0.9999997, *np.linspace(0.9999, 0.99, 16)]
    result = solve(with_spectrum(spectrum, seed=5)[None], k=1, max_iterations=20)
    assert not result.converged.any()
    assert result.iterations.tolist() == [20]
    assert (result.residuals > 1e-8).all()


class Diagonal:
    """Diagonal matrices, cheap at any size; remembers the widths it was used at."""

    def __init__(self, d_MD, widths=None):
        self.d_MD, self.widths = d_MD, [] if widths is None else widths
        self.shape = (*d_MD.shape, d_MD.shape[1])
        self.dtype, self.device = d_MD.dtype, d_MD.device

    def __matmul__(self, columns):
        self.widths.append(len(columns))
        return self.d_MD.unsqueeze(2) * columns

    def select(self, models):
        return Diagonal(self.d_MD[models], self.widths)


def random_blocks(d_MD, columns, seed=0):
    shape = (*d_MD.shape, columns)
    return torch.randn(shape, generator=stream(seed, "t"), dtype=d_MD.dtype)


@pytest.mark.parametrize("iterations", [5, 40, 400])
def test_single_precision_claims_no_more_than_its_accuracy(iterations):
    d_MD = torch.linspace(0, 0.99, 20_000).repeat(2, 1)
    d_MD[:, :4] = torch.tensor([1.0, -0.5, 0.1, 0.01])
    d_MD[:, 4:] *= 0.005
    result = block_power(
        Diagonal(d_MD),
        random_blocks(d_MD, 6),
        k=4,
        tol=1e-5,
        max_iterations=iterations,
    )
    errors = (result.values - d_MD[:, :4]).abs()[result.converged]
    magnitudes = d_MD[:, :4].abs()[result.converged]
    assert (errors <= 2e-5 * magnitudes).all()
    assert (result.residuals[result.converged] <= 1e-5 * magnitudes * 1.01).all()
    assert iterations == 5 or result.converged[:, 0].all()


def test_small_eigenvalues_next_to_a_large_one_are_held_to_their_size():
    d_MD = torch.tensor([[1, 1e-10, 5e-11, 4e-11, 1e-11, 0]]).double().repeat(2, 1)
    result = block_power(
        Diagonal(d_MD), random_blocks(d_MD, 3), k=2, tol=1e-3, max_iterations=500
    )
    assert result.converged.all()
    np.testing.assert_allclose(result.values, d_MD[:, :2], rtol=1e-3)


def test_tiny_operators_in_single_precision_are_not_taken_for_found():
    d_MD = 1e-24 * torch.linspace(10, 1, 40).repeat(2, 1)
    result = block_power(
        Diagonal(d_MD), random_blocks(d_MD, 2), k=1, tol=1e-6, max_iterations=2
    )
    assert not result.converged.any()
    assert (result.residuals > 0).all()


def test_the_last_model_to_stop_is_computed_next_to_a_copy():
    quick, slow = [9, 1e-3, 1e-4, 1e-5], [9, 8.5, 8, 7.5]
    operator = Diagonal(torch.tensor([quick, slow, quick]).double())
    result = block_power(
        operator, random_blocks(operator.d_MD, 1), k=1, tol=1e-8, max_iterations=900
    )
    assert result.converged.all()
    assert set(operator.widths) == {3, 2}


def test_each_model_stops_by_itself():
    quick = with_spectrum([9, 1e-3, 1e-4, 1e-5], seed=6)
    slow = with_spectrum([9, 8.5, 8, 7.5], seed=7)
    result = solve(torch.stack([slow, quick]), k=1)
    alone = solve(torch.stack([slow, slow]), k=1)
    assert result.converged.all()
    assert result.iterations[1] < 10 < result.iterations[0]
    assert result.values[0].item() == pytest.approx(alone.values[0].item(), rel=1e-12)
    assert result.iterations[0] == alone.iterations[0]


def test_products_that_are_not_finite_are_refused():
    with pytest.raises(InputError, match="products, got NaN or infinity"):
        solve(torch.full((1, 3, 3), torch.nan).double(), k=1)
