"""Rows of files are read as they are, and no others in their place."""

import os
import pickle

import numpy as np
import pytest

from curvflow.errors import InputError
from curvflow.schemas.keys import array_digest, stacked_digest
from curvflow.stores import row_files
from curvflow.stores.row_files import npy_rows, rows_in

X = np.random.default_rng(0).normal(size=(23, 2, 3))


@pytest.fixture
def array(tmp_path):
    np.save(tmp_path / "x.npy", X)
    return npy_rows(tmp_path / "x.npy")


@pytest.mark.parametrize(
    "rows", [slice(None), slice(3, 9), slice(20, 40), slice(1, 20, 4), slice(9, 2)]
)
def test_slices_are_those_of_the_array(array, rows):
    assert np.array_equal(array[rows], X[rows])


@pytest.mark.parametrize("rows", [[5, 6, 7, 2, 2, 22, 0, 1], [], [22]])
def test_rows_come_in_the_order_asked_for(array, rows):
    numbers = np.array(rows, dtype=int)
    assert np.array_equal(array[numbers], X[numbers])
    order = np.arange(23)[::-1]
    assert np.array_equal(array.of(order)[numbers], X[order][numbers])
    assert np.array_equal(array.of(order).of(order)[:], X)


def test_rows_in_several_files_are_one_array(tmp_path):
    paths = []
    for number in range(3):
        paths.append(tmp_path / str(number))
        part = np.zeros((10, 2, 3))
        part[: len(X[10 * number :][:10])] = X[10 * number :][:10]
        paths[-1].write_bytes(part.tobytes())
    array = rows_in(paths, X.shape, X.dtype, rows_per_file=10)
    assert np.array_equal(array[:], X)
    assert np.array_equal(array[np.array([9, 10, 20, 3])], X[[9, 10, 20, 3]])


def test_digests_are_those_in_memory(array, monkeypatch):
    monkeypatch.setattr("curvflow.schemas.disk_arrays.BLOCK_BYTES", 100)
    assert array_digest(array) == array_digest(X)
    assert stacked_digest(array) == array_digest(X[None])
    single = array.astype(np.dtype(np.float32))
    assert array_digest(single) == array_digest(X.astype(np.float32))
    assert (single.min(0), single.max(0)) == (
        X.min().astype("f4"),
        X.max().astype("f4"),
    )
    assert array.num_not_finite() == 0


def test_another_process_reads_the_same(array):
    assert np.array_equal(pickle.loads(pickle.dumps(array))[:], X)


def test_a_file_of_another_byte_order_is_read(tmp_path):
    np.save(tmp_path / "x.npy", X.astype(">f4"))
    array = npy_rows(tmp_path / "x.npy").astype(np.dtype(float))
    assert np.array_equal(array[:], X.astype(">f4").astype(float))


@pytest.mark.parametrize("change", [b"", X.tobytes()])
def test_a_file_that_has_changed_is_not_read(tmp_path, array, change):
    (tmp_path / "x.npy").write_bytes(change)
    with pytest.raises(InputError, match=r"x\.npy"):
        array[:]


def test_a_file_that_shrinks_while_it_is_read_is_told(tmp_path, array):
    array[:1]
    os.truncate(tmp_path / "x.npy", 200)
    with pytest.raises(InputError, match="changed since"):
        array[:]


def test_a_file_that_is_written_over_while_it_is_read_is_told(tmp_path, array):
    array[:1]
    with (tmp_path / "x.npy").open("r+b") as file:
        file.seek(-8 * X.size, os.SEEK_END)
        file.write(np.zeros_like(X).tobytes())
    with pytest.raises(InputError, match="changed since"):
        array[:]


def test_a_file_that_is_gone_is_told(tmp_path, array):
    (tmp_path / "x.npy").unlink()
    row_files._opened.cache_clear()
    with pytest.raises(InputError, match="changed since"):
        array[:]


@pytest.mark.parametrize(
    "array", [np.arange(3.0), np.zeros((0, 2)), np.array([["a"]]), np.array([[None]])]
)
def test_what_has_no_rows_of_numbers_is_read_whole(tmp_path, array):
    np.save(tmp_path / "x.npy", array)
    assert npy_rows(tmp_path / "x.npy") is None


@pytest.mark.parametrize("lost", [1, 9, 100])
def test_a_file_that_ends_too_early_is_refused_as_such(tmp_path, lost):
    np.save(tmp_path / "x.npy", np.ones((40, 3)))
    content = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(content[:-lost])
    message = f"{len(content)} bytes, got {len(content) - lost}: it ends too early"
    with pytest.raises(InputError, match=message):
        npy_rows(tmp_path / "x.npy")


def test_what_is_no_such_file_is_read_whole(tmp_path):
    (tmp_path / "x.npy").write_bytes(b"PK")
    assert npy_rows(tmp_path / "x.npy") is None
