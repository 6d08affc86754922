"""Sparse matrices as data."""

from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
import scipy.io
import scipy.sparse
import torch
from pydantic import ValidationError

import curvflow
from curvflow.errors import InputError, StudyError
from curvflow.tasks.curvature.operators import matrix_operator
from curvflow.tasks.registry import Machine
from tests.tasks.matrices import matrix_of
from tests.tasks.toys import assert_declared, compute, member

KIND = "data.sparse_matrix"


def market(matrix, **more) -> np.ndarray:
    file = BytesIO()
    scipy.io.mmwrite(file, scipy.sparse.csr_array(matrix), **more)
    return np.frombuffer(file.getvalue(), dtype=np.uint8)


def read(content, **params):
    node = member(KIND, {"path": "a.mtx", **params})
    return compute(KIND, [replace(node, files={"path": {"bytes": content}})])[0]


def dense(arrays) -> np.ndarray:
    parts = (arrays["values"], arrays["indices"], arrays["indptr"])
    return scipy.sparse.csr_array(parts).toarray()


def test_a_file_is_read_as_it_was_written():
    matrix = np.array([[2.0, -1, 0], [-1, 2, 0.5], [0, 0.5, 3]])
    outcome = read(market(matrix, symmetry="symmetric"), shift=1.0)
    assert_declared(KIND, outcome)
    np.testing.assert_allclose(dense(outcome.arrays), matrix + np.eye(3))


@pytest.mark.parametrize("grid", [(5,), (4, 3), (2, 3, 2)], ids=str)
def test_the_laplacian_of_a_grid_has_the_eigenvalues_of_sines(grid):
    node = matrix_of(KIND, {"grid": grid, "shift": 0.1})
    lines = [4 * np.sin(np.pi * np.arange(1, n + 1) / (2 * n + 2)) ** 2 for n in grid]
    sums = np.add.reduce(np.meshgrid(*lines)).ravel() + 0.1
    np.testing.assert_allclose(np.linalg.eigvalsh(dense(node)), np.sort(sums))
    operator = matrix_operator(node, Machine(), torch.float64)
    identity = torch.eye(len(sums), dtype=torch.float64)
    np.testing.assert_allclose((operator @ identity).numpy(), dense(node), atol=1e-13)


@pytest.mark.parametrize("entry", [np.nan, np.inf], ids=str)
def test_entries_that_are_not_finite_are_refused(entry):
    with pytest.raises(InputError, match="path: expected finite entries, got NaN or"):
        read(market(np.array([[1.0, 2], [2, entry]]), symmetry="general"))


def test_a_matrix_that_is_not_symmetric_is_refused():
    with pytest.raises(InputError, match="path: expected a symmetric matrix"):
        read(market(np.array([[1.0, 2], [3, 4]]), symmetry="general"))


def test_a_file_that_breaks_off_is_refused():
    whole = market(np.eye(5) * 3)
    with pytest.raises(InputError, match="path: expected a MatrixMarket file"):
        read(whole[:-12])


STUDY = """
study: sparse
stages:
  matrix: {use: data.sparse_matrix, path: a.mtx}
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2 3\n", "begins with '%%MatrixMarket matrix coordinate'"),
        ("%%MatrixMarket matrix array real general\n2 2\n", "begins with"),
        ("%%MatrixMarket matrix coordinate complex hermitian\n2 2 1\n", "real numbers"),
        (
            "%%MatrixMarket matrix coordinate real general\n% x\n2 3 1\n",
            "square matrix",
        ),
        ("%%MatrixMarket matrix coordinate real general\nrows\n", "rows, columns and"),
        ("", "begins with"),
    ],
    ids=["no-banner", "array", "complex", "not-square", "no-sizes", "empty"],
)
def test_a_file_of_another_form_is_refused_while_planning(tmp_path, text, message):
    (tmp_path / "a.mtx").write_text(text)
    (tmp_path / "study.yaml").write_text(STUDY)
    with pytest.raises(StudyError, match=message) as error:
        curvflow.run(tmp_path / "study.yaml", store="memory:")
    assert "\n" not in str(error.value)


def test_a_file_or_a_grid_is_named_but_not_both():
    for params in ({}, {"path": "a.mtx", "grid": [2]}):
        with pytest.raises(ValidationError, match="expected one of 'path' and 'grid'"):
            member(KIND, params)
