"""Compressed rows are those of SciPy, made in little memory."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

from curvflow.tasks.numerics.graphs import rows
from curvflow.tasks.numerics.graphs.rows import symmetric_rows


@pytest.mark.parametrize("chunk", [3, 1 << 18])
@pytest.mark.parametrize("size", [1, 2, 40])
def test_rows_are_those_of_a_symmetric_matrix(monkeypatch, size, chunk):
    monkeypatch.setattr(rows, "CHUNK", chunk)
    generator = np.random.default_rng(size)
    W = np.tril(generator.random((size, size)) < 0.2)  # with loops
    sources, targets = (ends.astype(np.int32) for ends in W.nonzero())
    order = generator.permutation(len(sources))
    made = symmetric_rows(size, sources[order], targets[order])
    expected = sparse.csr_array(W | W.T)
    np.testing.assert_array_equal(made.indptr, expected.indptr)
    np.testing.assert_array_equal(made.indices, expected.indices)
    assert (made.indptr.dtype, made.indices.dtype) == (np.int64, np.int32)


def test_a_graph_without_edges_has_empty_rows():
    none = np.zeros(0, np.int32)
    made = symmetric_rows(3, none, none)
    assert made.indptr.tolist() == [0, 0, 0, 0]
    assert len(made.indices) == 0


def test_memory_is_two_numbers_for_each_edge_of_which_half_is_kept():
    size, count = 100_000, 2_000_000
    sources = np.arange(count, dtype=np.int32) % size
    targets = np.int32(size - 1) - sources // 2
    tracemalloc.start()
    made = symmetric_rows(size, sources, targets)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 1.02 * (made.indptr.nbytes + made.indices.nbytes)
    assert peak < 16 * count + 8 * size + 40 * rows.CHUNK
