"""The IDX form."""

import numpy as np
import pytest

from curvflow.errors import InputError
from curvflow.flows.published_images.idx import decode_idx, decode_images
from tests.flows.published_images.fakes import idx_bytes, idx_contents, images


@pytest.mark.parametrize("shape", [(7,), (3, 4, 5), (0, 2)])
def test_an_array_comes_back_as_it_was_written(shape):
    array = images(shape[0], shape[1:], seed=1)
    assert np.array_equal(decode_idx(idx_bytes(array)), array)


def test_the_four_files_become_images_with_a_channel_and_labels():
    found = decode_images(idx_contents(train=30, test=10))
    assert {name: (a.shape, a.dtype.name) for name, a in found.items()} == {
        "inputs": ((30, 1, 28, 28), "uint8"),
        "targets": ((30,), "int64"),
        "test_inputs": ((10, 1, 28, 28), "uint8"),
        "test_targets": ((10,), "int64"),
    }
    assert found["targets"][:4].tolist() == [0, 7, 4, 1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "got one cut short"),
        (b"\0\0\x08\x01\0\0", "got one cut short"),
        (b"\0\0\x08\x01\0\0\0\x05abc", r"got 3 values of type 8 for shape \(5,\)"),
        (b"\0\0\x0d\x01\0\0\0\x04abcd", "of type 13"),
    ],
    ids=["empty", "no sizes", "short", "floats"],
)
def test_what_is_no_idx_file_of_bytes_is_refused(content, message):
    with pytest.raises(InputError, match=rf"expected an IDX file.*{message}"):
        decode_idx(content)
