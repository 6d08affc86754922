"""Operators whose matrix is at hand."""

import torch

from curvflow.tasks.numerics import BatchedDense, Dense
from tests.tasks.toys import random_symmetric


def test_dense_multiplies_vectors_blocks_and_its_transpose():
    A = torch.arange(6.0, dtype=torch.float64).reshape(2, 3)
    assert Dense(A).shape == (2, 3)
    torch.testing.assert_close(Dense(A) @ torch.ones(3).double(), A.sum(1))
    torch.testing.assert_close(Dense(A) @ torch.eye(3).double(), A)
    torch.testing.assert_close(Dense(A).adjoint() @ torch.eye(2).double(), A.T)


def test_scipy_sees_the_same_matrix_and_its_transpose():
    A = torch.arange(6.0, dtype=torch.float64).reshape(2, 3)
    operator = Dense(A).to_scipy()
    assert operator.dtype == "float64"
    assert (operator @ [1.0, 0, 0] == A[:, 0].numpy()).all()
    assert (A[0].numpy() == operator.T @ [1.0, 0]).all()


def test_a_batch_multiplies_each_model_by_its_own_matrix():
    A = torch.stack([random_symmetric(4, seed) for seed in range(3)])
    operator = BatchedDense(A)
    block = torch.eye(4, dtype=torch.float64).expand(3, 4, 4)
    torch.testing.assert_close(operator @ block, A)
    torch.testing.assert_close(operator @ block[..., 1], A[..., 1])
    chosen = operator.select(torch.tensor([2, 0]))
    torch.testing.assert_close(chosen @ block[:2], A[[2, 0]])
