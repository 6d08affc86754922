"""Pickled batches: arrays and nothing else."""

import pickle
import pickletools

import numpy as np
import pytest

from curvflow.errors import InputError
from curvflow.flows.published_images import cifar, python_batches
from curvflow.flows.published_images.catalogue import CATALOGUE
from curvflow.flows.published_images.find import Located
from curvflow.flows.published_images.originals import read_verified
from tests.flows.published_images.fakes import hundred_contents, knowing, ten_contents


def batch(pixels, classes, name="labels", order="C"):
    data = np.asarray(pixels.reshape(len(pixels), -1), order=order)
    made = {"data": data, name: classes.tolist(), "filenames": ["a.png"]}
    return as_python_2(pickle.dumps(made, protocol=3))


def as_python_2(content):
    """Return a pickle as Python 2 wrote it, where bytes were text."""
    older = {"PROTO": b"\x80\x02", "BINBYTES": b"T", "SHORT_BINBYTES": b"U"}
    found = bytearray(content)
    for operation, _, at in pickletools.genops(content):
        code = older.get(operation.name, b"")
        found[at : at + len(code)] = code
    return bytes(found)


def ten(order="C"):
    return {
        name.removesuffix(".bin"): batch(*cifar.decode_rows(rows, 1), order=order)
        for name, rows in ten_contents().items()
    }


@pytest.mark.parametrize("order", ["C", "F"])
def test_both_forms_of_cifar_10_hold_the_same(order):
    found = python_batches.decode_ten(ten(order))
    for name, array in cifar.decode_ten(ten_contents()).items():
        assert np.array_equal(found[name], array)
        assert found[name].dtype == array.dtype


def test_both_forms_of_cifar_100_hold_the_same():
    contents = {
        name.removesuffix(".bin"): batch(*cifar.decode_rows(rows, 2), "fine_labels")
        for name, rows in hundred_contents().items()
    }
    found = python_batches.decode_hundred(contents)
    for name, array in cifar.decode_hundred(hundred_contents()).items():
        assert np.array_equal(found[name], array)


def test_a_batch_written_by_an_old_numpy_is_read():
    content = ten()["test_batch"].replace(b"numpy._core", b"numpy.core")
    assert b"numpy.core" in content
    found, _ = python_batches.decode_batch(content, "labels")
    assert found.shape == (20, 3, 32, 32)


class Harmful:
    """Something whose pickle runs code when it is read."""

    def __reduce__(self):
        return print, ("harm done",)


def test_a_pickle_that_asks_for_more_than_arrays_is_refused(capsys):
    content = pickle.dumps({"data": Harmful()}, protocol=2)
    with pytest.raises(InputError, match=r"pickle of arrays, got one .*\.print"):
        python_batches.decode_batch(content, "labels")
    assert capsys.readouterr().out == ""


def test_nothing_is_unpickled_before_its_checksum_is_known_to_be_right(tmp_path):
    contents = ten()
    known = knowing(CATALOGUE["cifar10"], 2, contents)
    paths = {part: tmp_path / part for part in contents}
    for part, content in contents.items():
        paths[part].write_bytes(content)
    located = Located(known.layouts[2], tuple(paths.items()))
    assert len(read_verified(located)["inputs"]) == 100
    paths["test_batch"].write_bytes(pickle.dumps({"data": Harmful()}))
    with pytest.raises(InputError, match=r"test_batch: expected .* with MD5 .* got"):
        read_verified(located)
