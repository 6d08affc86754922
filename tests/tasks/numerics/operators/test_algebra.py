"""Operators made of operators, against the matrices they stand for."""

import numpy as np
import pytest
import torch
from scipy import sparse

from curvflow.errors import InputError
from curvflow.tasks.numerics import BatchedDense
from curvflow.tasks.numerics.operators.adapters import Single, from_scipy
from curvflow.tasks.numerics.operators.algebra import (
    BlockDiagonal,
    OuterProduct,
    Preconditioned,
    PrincipalBlock,
    added,
    block_index,
    scaled,
    shifted,
)
from tests.tasks.toys import random_symmetric

A = torch.stack([random_symmetric(6, seed) for seed in range(3)])
B = torch.stack([random_symmetric(6, seed) for seed in range(3, 6)])
EYE = torch.eye(6, dtype=torch.float64)
PER_MODEL = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)


def assert_is(operator, expected):
    """Hold an operator to its matrices: columns, vectors, some of the models."""
    models, size, _ = expected.shape
    assert operator.shape == expected.shape
    assert operator.dtype == expected.dtype
    assert operator.device == expected.device
    block = torch.randn(models, size, 4, dtype=torch.float64)
    near = {"rtol": 0, "atol": 1e-13 * float(expected.abs().max()) * size}
    product = expected @ block
    torch.testing.assert_close(operator @ block, product, **near)
    torch.testing.assert_close(operator @ block[..., 0], product[..., 0], **near)
    chosen = torch.tensor([2, 0])
    subset = operator.select(chosen)
    assert subset.shape == (2, size, size)
    torch.testing.assert_close(subset @ block[chosen], product[chosen], **near)


def test_sums_multiples_and_shifts_are_those_of_the_matrices():
    a, b = BatchedDense(A), BatchedDense(B)
    each = PER_MODEL[:, None, None]
    assert_is(scaled(a, -2.0), -2 * A)
    assert_is(scaled(a, PER_MODEL), each * A)
    assert_is(shifted(a, 0.5), A + 0.5 * EYE)
    assert_is(shifted(a, PER_MODEL), A + each * EYE)
    assert_is(added(a, b), A + B)
    assert_is(added(scaled(a, 2.0), shifted(b, 1.0)), 2 * A + B + EYE)
    assert_is(OuterProduct(A[:, 0]), A[:, 0, :, None] * A[:, 0, None, :])


def test_a_block_is_the_rows_and_columns_of_some_layers():
    index = block_index([1, 2, 3], [2, 0])
    assert index.tolist() == [3, 4, 5, 0]
    assert_is(PrincipalBlock(BatchedDense(A), index), A[:, index][:, :, index])


def test_all_blocks_are_multiplied_in_one_product():
    class Counting(BatchedDense):
        products = 0

        def __matmul__(self, columns):
            Counting.products += 1
            return super().__matmul__(columns)

    expected = torch.stack([torch.block_diag(a[:2, :2], a[2:, 2:]) for a in A])
    assert_is(BlockDiagonal(BatchedDense(A), [2, 4]), expected)
    BlockDiagonal(Counting(A), [2, 4]) @ A
    assert Counting.products == 1


def test_the_preconditioned_operator_is_similar_to_the_rule_s_own():
    P = torch.rand(3, 6, dtype=torch.float64) + 0.1
    roots = torch.diag_embed(P.rsqrt())
    operator = Preconditioned(BatchedDense(A), P)
    assert_is(operator, roots @ A @ roots)
    similar = torch.linalg.eigvals(torch.diag_embed(1 / P) @ A).real.sort().values
    values, vectors = torch.linalg.eigh(operator @ EYE.expand(3, 6, 6))
    torch.testing.assert_close(values, similar, rtol=1e-10, atol=1e-10)
    # Directions of weights: P^-1 A w = lambda w.
    w = operator.lifted(vectors)
    torch.testing.assert_close(A @ w / P[:, :, None], w * values[:, None, :])
    torch.testing.assert_close(operator.lifted(vectors[..., 0]), w[..., 0])


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
def test_a_preconditioner_that_is_not_positive_is_refused(wrong):
    P = torch.ones(3, 6, dtype=torch.float64)
    P[1, 2] = wrong
    with pytest.raises(InputError, match="preconditioner: expected finite numbers"):
        Preconditioned(BatchedDense(A), P)


def test_one_model_s_operators_add_and_scale():
    a, b = (Single(BatchedDense(matrix[:1])) for matrix in (A, B))
    result = 2 * (a + b) - b * 3.0
    torch.testing.assert_close(result @ EYE, 2 * A[0] - B[0])
    torch.testing.assert_close(a.shifted(0.5) @ EYE, A[0] + 0.5 * EYE)
    assert a.adjoint() is a
    np.testing.assert_allclose(result.to_scipy() @ EYE.numpy(), result @ EYE)


@pytest.mark.parametrize("form", ["sparse", "array", "operator"])
def test_matrices_of_scipy_become_operators_and_go_back(form):
    matrix = sparse.random_array((5, 4), density=0.5, rng=0).tocsr()
    taken = matrix if form == "sparse" else matrix.toarray()
    if form == "operator":
        taken = sparse.linalg.aslinearoperator(matrix)
    operator = from_scipy(taken)
    dense = torch.as_tensor(matrix.toarray())
    columns = torch.randn(4, 3, dtype=torch.float64)
    assert operator.shape == (5, 4)
    torch.testing.assert_close(operator @ columns, dense @ columns)
    torch.testing.assert_close(operator @ columns[:, 0], dense @ columns[:, 0])
    rows = torch.ones(5, dtype=torch.float64)
    torch.testing.assert_close(operator.adjoint() @ rows, dense.T @ rows)
    again = operator.to_scipy()
    np.testing.assert_allclose(again @ columns.numpy(), dense @ columns)
    np.testing.assert_allclose(again.T @ rows.numpy(), dense.T @ rows)


def test_complex_matrices_are_refused():
    with pytest.raises(InputError, match="expected real entries, got complex128"):
        from_scipy(np.eye(2) * 1j)
