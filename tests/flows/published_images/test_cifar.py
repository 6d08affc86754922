"""The binary form of CIFAR, its archives, and the pictures that are turned into it."""

import io
import tarfile

import numpy as np
import pytest

from curvflow.errors import InputError
from curvflow.flows.published_images import cifar
from tests.flows.published_images.fakes import hundred_contents, pictures, ten_contents


def packed(contents: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content in contents.items():
            info = tarfile.TarInfo(f"cifar-batches/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def test_a_row_is_a_label_and_three_planes():
    row = bytes([7]) + bytes(range(256)) * 4 + bytes(1024) + bytes([255]) * 1024
    found, classes = cifar.decode_rows(row, labels=1)
    assert classes.tolist() == [7]
    assert found.shape == (1, 3, 32, 32)
    assert found[0, 0, 1].tolist() == list(range(32, 64))
    assert (found[0, 1].max(), found[0, 2].min()) == (0, 255)


def test_batches_are_joined_in_their_order():
    contents = ten_contents()
    found = cifar.decode_ten(contents)
    third, _ = cifar.decode_rows(contents["data_batch_3.bin"], labels=1)
    assert found["inputs"].shape == (100, 3, 32, 32)
    assert np.array_equal(found["inputs"][40:60], third)
    assert len(found["test_inputs"]) == len(found["test_targets"]) == 20


def test_of_two_labels_the_finer_is_the_class():
    found = cifar.decode_hundred(hundred_contents())
    assert sorted(found["targets"]) == list(range(100))
    assert found["inputs"].shape == found["test_inputs"].shape == (100, 3, 32, 32)


def test_an_archive_is_read_by_the_bare_names_of_its_files():
    contents = ten_contents()
    assert cifar.unpacked(packed(contents)) == contents


def test_pictures_are_turned_back_into_the_binary_batches():
    contents = ten_contents()
    assert cifar.restore_from_png(pictures(contents)) == contents


@pytest.mark.parametrize("content", [b"", b"x" * 3074])
def test_what_is_no_whole_number_of_rows_is_refused(content):
    with pytest.raises(InputError, match="expected rows of 3073 bytes, got"):
        cifar.decode_rows(content, labels=1)
