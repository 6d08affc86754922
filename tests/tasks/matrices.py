"""Matrices that are data, for tests of what takes them."""

import numpy as np

from curvflow.schemas.kinds.shared.datasets import matrix
from curvflow.schemas.nodes import Matrix
from tests.tasks.toys import compute, member


def matrix_of(kind, params) -> Matrix:
    (outcome,) = compute(kind, [member(kind, params)])
    digest = f"{kind}{sorted(params.items())}"
    return Matrix("matrix", kind, {}, outcome.arrays, digest)


def as_matrix(dense) -> Matrix:
    dense = np.asarray(dense, dtype=np.float64)
    arrays = matrix("dense", len(dense), dense=dense)
    return Matrix(
        "matrix", "data.random_matrix", {}, arrays, str(hash(dense.tobytes()))
    )
