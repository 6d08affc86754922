"""Sparse matrices as operators."""

import numpy as np
import pytest
import scipy.sparse
import torch

from curvflow.tasks.numerics.operators.matrices import Sparse


def pair():
    half = scipy.sparse.random(30, 30, density=0.1, rng=np.random.default_rng(0))
    matrix = scipy.sparse.csr_array(half + half.T + scipy.sparse.eye(30))
    parts = (matrix.indptr, matrix.indices, matrix.data)
    indptr, indices, values = (torch.as_tensor(part.copy()) for part in parts)
    return Sparse(indptr.long(), indices.long(), values), matrix.toarray()


def test_a_sparse_matrix_equals_its_dense_twin():
    operator, twin = pair()
    columns = torch.randn(30, 4, dtype=torch.float64)
    assert (operator @ columns).numpy() == pytest.approx(twin @ columns.numpy())
    assert (operator @ columns[:, 0]).numpy() == pytest.approx(
        twin @ columns[:, 0].numpy(), rel=1e-10
    )
    assert operator.dense().numpy() == pytest.approx(twin, rel=1e-15)
    assert operator.diagonal().numpy() == pytest.approx(twin.diagonal(), rel=1e-15)
    assert operator.bound() == pytest.approx(np.abs(twin).sum(1).max())
    assert operator.to_scipy() @ columns[:, 1].numpy() == pytest.approx(
        twin @ columns[:, 1].numpy()
    )


def test_gershgorin_bounds_every_eigenvalue():
    operator, twin = pair()
    assert np.abs(np.linalg.eigvalsh(twin)).max() <= operator.adjoint().bound()
