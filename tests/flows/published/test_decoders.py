"""Published forms become arrays: IDX files, and the batches of CIFAR in both forms."""

import io
import pickle
import pickletools
import tarfile

import numpy as np
import pytest

from curvflow.errors import InputError
from curvflow.flows.published import decoders
from curvflow.flows.published.arrays import read_verified
from curvflow.flows.published.catalogue import CATALOGUE
from curvflow.flows.published.find import LocatedFiles
from tests.flows.published.fakes import (
    hundred_contents,
    idx_bytes,
    idx_contents,
    images,
    knowing,
    ten_contents,
)


@pytest.mark.parametrize("shape", [(7,), (3, 4, 5), (0, 2)])
def test_an_array_comes_back_as_it_was_written(shape):
    array = images(shape[0], shape[1:], seed=1)
    assert np.array_equal(decoders.decode_idx(idx_bytes(array)), array)


def test_the_four_files_become_images_with_a_channel_and_labels():
    arrays = decoders.decode_idx_parts(idx_contents(train=30, test=10))
    assert {name: (a.shape, a.dtype.name) for name, a in arrays.items()} == {
        "inputs": ((30, 1, 28, 28), "uint8"),
        "targets": ((30,), "int64"),
        "test_inputs": ((10, 1, 28, 28), "uint8"),
        "test_targets": ((10,), "int64"),
    }
    assert arrays["targets"][:4].tolist() == [0, 7, 4, 1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "truncated"),
        (b"\0\0\x08\x01\0\0", "truncated"),
        (b"\0\0\x08\x01\0\0\0\x05abc", r"got 3 values of type 8 for shape \(5,\)"),
        (b"\0\0\x0d\x01\0\0\0\x04abcd", "of type 13"),
    ],
    ids=["empty", "no sizes", "short", "floats"],
)
def test_what_is_no_idx_file_of_bytes_is_refused(content, message):
    with pytest.raises(InputError, match=rf"expected an IDX file.*{message}"):
        decoders.decode_idx(content)


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
    images_, classes = decoders.decode_rows(row, labels=1)
    assert classes.tolist() == [7]
    assert images_.shape == (1, 3, 32, 32)
    assert images_[0, 0, 1].tolist() == list(range(32, 64))
    assert (images_[0, 1].max(), images_[0, 2].min()) == (0, 255)


def test_batches_are_joined_in_their_order():
    contents = ten_contents()
    arrays = decoders.decode_ten_binary(contents)
    third, _ = decoders.decode_rows(contents["data_batch_3.bin"], labels=1)
    assert arrays["inputs"].shape == (100, 3, 32, 32)
    assert np.array_equal(arrays["inputs"][40:60], third)
    assert len(arrays["test_inputs"]) == len(arrays["test_targets"]) == 20


def test_of_two_labels_the_finer_is_the_class():
    arrays = decoders.decode_hundred_binary(hundred_contents())
    assert sorted(arrays["targets"]) == list(range(100))
    assert arrays["inputs"].shape == arrays["test_inputs"].shape == (100, 3, 32, 32)


def test_an_archive_is_read_by_the_bare_names_of_its_files():
    contents = ten_contents()
    assert decoders.archived(packed(contents)) == contents


@pytest.mark.parametrize("content", [b"", b"x" * 3074])
def test_what_is_no_whole_number_of_rows_is_refused(content):
    with pytest.raises(InputError, match="expected rows of 3073 bytes, got"):
        decoders.decode_rows(content, labels=1)


def batch(pixels, classes, name="labels", order="C"):
    data = np.asarray(pixels.reshape(len(pixels), -1), order=order)
    made = {"data": data, name: classes.tolist(), "filenames": ["a.png"]}
    return as_python_2(pickle.dumps(made, protocol=3))


def as_python_2(content):
    """Return a pickle as Python 2 wrote it, where bytes were text."""
    older = {"PROTO": b"\x80\x02", "BINBYTES": b"T", "SHORT_BINBYTES": b"U"}
    rewritten = bytearray(content)
    for operation, _, at in pickletools.genops(content):
        code = older.get(operation.name, b"")
        rewritten[at : at + len(code)] = code
    return bytes(rewritten)


def ten(order="C"):
    return {
        name.removesuffix(".bin"): batch(*decoders.decode_rows(rows, 1), order=order)
        for name, rows in ten_contents().items()
    }


@pytest.mark.parametrize("order", ["C", "F"])
def test_both_forms_of_cifar_10_hold_the_same(order):
    arrays = decoders.decode_ten_python(ten(order))
    for name, array in decoders.decode_ten_binary(ten_contents()).items():
        assert np.array_equal(arrays[name], array)
        assert arrays[name].dtype == array.dtype


def test_both_forms_of_cifar_100_hold_the_same():
    contents = {
        name.removesuffix(".bin"): batch(*decoders.decode_rows(rows, 2), "fine_labels")
        for name, rows in hundred_contents().items()
    }
    arrays = decoders.decode_hundred_python(contents)
    for name, array in decoders.decode_hundred_binary(hundred_contents()).items():
        assert np.array_equal(arrays[name], array)


def test_a_batch_written_by_an_old_numpy_is_read():
    content = ten()["test_batch"].replace(b"numpy._core", b"numpy.core")
    assert b"numpy.core" in content
    arrays, _ = decoders.decode_pickle(content, "labels")
    assert arrays.shape == (20, 3, 32, 32)


class Harmful:
    """Something whose pickle runs code when it is read."""

    def __reduce__(self):
        return print, ("harm done",)


def test_a_pickle_that_needs_more_than_arrays_is_refused(capsys):
    content = pickle.dumps({"data": Harmful()}, protocol=2)
    with pytest.raises(InputError, match=r"pickle of arrays, got one .*\.print"):
        decoders.decode_pickle(content, "labels")
    assert capsys.readouterr().out == ""


def test_nothing_is_unpickled_before_its_checksum_is_known_to_be_right(tmp_path):
    contents = ten()
    known = knowing(CATALOGUE["cifar10"], 2, contents)
    paths = {part: tmp_path / part for part in contents}
    for part, content in contents.items():
        paths[part].write_bytes(content)
    located = LocatedFiles(known.layouts[2], tuple(paths.items()))
    assert len(read_verified(located)["inputs"]) == 100
    paths["test_batch"].write_bytes(pickle.dumps({"data": Harmful()}))
    with pytest.raises(InputError, match=r"test_batch: expected .* with MD5 .* got"):
        read_verified(located)


FACE = b"P5\n92 112\n255\n" + bytes(14 + place % 200 for place in range(112 * 92))


def test_a_photograph_is_read_whether_its_line_ends_are_damaged_or_not():
    # Levels 14 to 213, none of which is an end of a line, but for two.
    photo = FACE[:500] + b"\n" + FACE[501:9000] + b"\r" + FACE[9001:]
    plain = decoders.decode_face(photo, "s1/1.pgm")
    assert plain.shape == (112, 92)
    assert plain.tobytes() == photo[14:]
    damaged = photo.replace(b"\n", b"\r\n")
    assert len(damaged) == len(photo) + 4
    assert np.array_equal(decoders.decode_face(damaged, "s1/1.pgm"), plain)


@pytest.mark.parametrize(("name", "place"), [("s8/10.pgm", 7181), ("s9/8.pgm", 5140)])
def test_a_pixel_that_the_damage_has_lost_is_put_back_where_it_is_known(name, place):
    at = 14 + place
    photo = FACE[:at] + b"\r\n" + FACE[at + 2 :]
    # As Git converts line ends: those that are CR LF stay.
    damaged = photo.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    assert decoders.decode_face(damaged, name).tobytes() == photo[14:]
    with pytest.raises(InputError, match=r"s1/1\.pgm: expected a PGM file of 92x112"):
        decoders.decode_face(damaged, "s1/1.pgm")


@pytest.mark.parametrize(
    "content",
    [b"", FACE[:-1], FACE + b"x", FACE.replace(b"92 112", b"112 92"), FACE[14:]],
)
def test_a_photograph_of_another_form_is_refused(content):
    with pytest.raises(InputError, match=r"s2/3\.pgm: expected a PGM file"):
        decoders.decode_face(content, "s2/3.pgm")
