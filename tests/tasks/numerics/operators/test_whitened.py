"""Leading parts of matrices, from columns or products, and what is left."""

import pytest
import torch

from curvflow.tasks.numerics.krylov.low_rank import nystrom, pivoted_cholesky
from curvflow.tasks.numerics.operators.algebra import (
    LowRank,
    Whitened,
    whitened_moments,
)
from curvflow.tasks.numerics.operators.base import BatchedDense, Dense
from curvflow.tasks.numerics.operators.matrices import (
    Explicit,
    KernelMatrix,
    Sparse,
    explicit,
    gershgorin_bounds,
)
from tests.tasks.toys import with_spectrum


def kernel(count=60, noise=1e-6) -> KernelMatrix:
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(count, 3, generator=generator, dtype=torch.float64)
    return KernelMatrix(x, "squared_exponential", 0.7, noise)


def entries(matrix) -> Explicit:
    result = explicit(matrix)
    assert result is not None
    return result


def test_pivoted_cholesky_is_exact_at_full_rank_and_at_its_pivots():
    dense = kernel(noise=0.1).dense()
    L, left = pivoted_cholesky(entries(Dense(dense)), 60)
    torch.testing.assert_close(L @ L.T, dense, rtol=0, atol=1e-12)
    assert left.max() < 1e-12
    L, left = pivoted_cholesky(entries(Dense(dense)), 10)
    rest = dense - L @ L.T
    torch.testing.assert_close(rest.diagonal(), left, rtol=0, atol=1e-12)
    assert (left < 1e-12).sum() == 10
    assert torch.linalg.eigvalsh(rest)[0] > -1e-12


def test_columns_of_a_kernel_serve_as_well_as_its_entries():
    operator = kernel()
    from_columns, _ = pivoted_cholesky(operator, 12, shift=1e-6)
    from_entries, _ = pivoted_cholesky(entries(Dense(operator.dense())), 12, shift=1e-6)
    torch.testing.assert_close(from_columns, from_entries, rtol=0, atol=1e-6)


def test_a_matrix_of_low_rank_ends_cholesky_early():
    values = torch.cat([torch.tensor([3.0, 2.0]).double(), torch.zeros(8).double()])
    L, left = pivoted_cholesky(entries(Dense(with_spectrum(values, 0))), 6)
    assert L.shape[1] == 2
    assert left.max() < 1e-10


def matrices() -> torch.Tensor:
    values = 2.0 ** -torch.arange(40, dtype=torch.float64)
    return torch.stack([with_spectrum(values + 1e-6, seed) for seed in range(3)])


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_nystrom_finds_the_leading_eigenvalues_from_below(blocks):
    A = matrices()
    start = torch.randn(3, 40, 12 // blocks, dtype=torch.float64)
    vectors, values = nystrom(BatchedDense(A), start, num_blocks=blocks)
    exact = torch.linalg.eigvalsh(A).flip(1)
    assert values.shape == (3, 12)
    assert (values <= exact[:, :12] * (1 + 1e-9)).all()
    torch.testing.assert_close(values[:, :4], exact[:, :4], rtol=0.05, atol=0)
    gram = vectors.mT @ vectors
    torch.testing.assert_close(gram, torch.eye(12).double().expand(3, -1, -1))
    low = torch.linalg.eigvalsh(A - (vectors * values.unsqueeze(1)) @ vectors.mT)
    assert low.min() > -1e-10


@pytest.mark.parametrize("enough", [1e-2, 1e-4])
def test_nystrom_grows_until_what_is_left_is_small(enough):
    A = matrices()
    start = torch.randn(3, 40, 3, dtype=torch.float64)
    vectors, values = nystrom(BatchedDense(A), start, num_blocks=13, enough=enough)
    left = A - (vectors * values.unsqueeze(1)) @ vectors.mT
    assert torch.linalg.eigvalsh(left).max() < enough
    # What is above takes as many columns; a block too many tells that it is enough.
    above = int((torch.linalg.eigvalsh(A[0]) > enough).sum())
    assert above <= vectors.shape[2] <= above + 12


def low_rank(A, rank=12) -> LowRank:
    start = torch.randn(len(A), A.shape[1], rank, dtype=torch.float64)
    vectors, values = nystrom(BatchedDense(A), start, num_blocks=1)
    return LowRank(vectors, values, values[:, -1])


def test_a_whitened_operator_equals_its_dense_twin():
    A = matrices()
    by = low_rank(A)
    P = (by.vectors * by.values.unsqueeze(1)) @ by.vectors.mT
    P = P + by.shift[:, None, None] * torch.eye(40)
    values, turn = torch.linalg.eigh(P)
    root = (turn * values.rsqrt().unsqueeze(1)) @ turn.mT
    twin = root @ A @ root
    columns = torch.randn(3, 40, 4, dtype=torch.float64)
    white = Whitened(BatchedDense(A), by)
    torch.testing.assert_close(white @ columns, twin @ columns, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(white @ columns[..., 0], (white @ columns)[..., 0])
    chosen = torch.tensor([2, 0])
    torch.testing.assert_close(
        white.select(chosen) @ columns[:2], twin[chosen] @ columns[:2]
    )
    torch.testing.assert_close(by.logdet(), torch.logdet(P), rtol=1e-9, atol=0)
    whole = by.logdet() + torch.logdet(twin)
    torch.testing.assert_close(whole, torch.logdet(A), rtol=1e-8, atol=0)
    first, second = whitened_moments(A[0], by.select(torch.tensor([0])))
    assert first == pytest.approx(float(twin[0].trace()) / 40, rel=1e-8)
    assert second == pytest.approx(float(twin[0].square().sum()) / 40, rel=1e-8)


def test_the_bounds_of_a_matrix_are_gershgorin_s():
    operator = kernel()
    dense = operator.dense()
    radii = dense.abs().sum(1) - dense.diagonal().abs()
    least, most = (
        float((dense.diagonal() - radii).min()),
        float(dense.abs().sum(1).max()),
    )
    assert gershgorin_bounds(operator) == pytest.approx((least, most))
    assert gershgorin_bounds(Dense(dense)) == pytest.approx((least, most))
    assert least <= float(torch.linalg.eigvalsh(dense)[0])
    identity = torch.arange(4)
    sparse = Sparse(identity, identity[:3], torch.tensor([1.0, -5.0, 2.0]))
    assert gershgorin_bounds(sparse) == (-5, 5)
    assert explicit(sparse) is None
