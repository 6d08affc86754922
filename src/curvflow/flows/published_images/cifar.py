"""The binary form of CIFAR-10 and CIFAR-100, and what is turned into it."""

from __future__ import annotations

import io
import json
import tarfile

import numpy as np

from curvflow.errors import InputError
from curvflow.flows.published_images.find import Contents
from curvflow.schemas.nodes import Array

PIXELS = 3 * 32 * 32
TRAIN_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST_BATCH = "test_batch"
# Spelt so in the package.
TRAIN_LABELS, TEST_LABELS = "train_lables.json", "test_lables.json"


def decode_rows(content: bytes, labels: int) -> tuple[Array, Array]:
    """Read one batch: rows of labels, one byte each, and pixels.

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
        raise InputError(f"expected rows of {width} bytes, got {len(content)} in all")
    rows = np.frombuffer(content, np.uint8).reshape(-1, width)
    images = rows[:, labels:].reshape(-1, 3, 32, 32)
    return images, rows[:, labels - 1].astype(np.int64)


def decode_ten(contents: Contents) -> dict[str, Array]:
    """Turn the six binary batches of CIFAR-10 into the arrays of a data set."""
    names = [f"{name}.bin" for name in TRAIN_BATCHES]
    train = [decode_rows(contents[name], labels=1) for name in names]
    test = decode_rows(contents[f"{TEST_BATCH}.bin"], labels=1)
    return joined(train, test)


def decode_hundred(contents: Contents) -> dict[str, Array]:
    """Turn the two binary batches of CIFAR-100 into arrays; classes are the fine."""
    train = decode_rows(contents["train.bin"], labels=2)
    return joined([train], decode_rows(contents["test.bin"], labels=2))


def joined(
    train: list[tuple[Array, Array]], test: tuple[Array, Array]
) -> dict[str, Array]:
    """Put batches together, in order."""
    return {
        "inputs": np.concatenate([images for images, _ in train]),
        "targets": np.concatenate([labels for _, labels in train]),
        "test_inputs": np.ascontiguousarray(test[0]),
        "test_targets": test[1],
    }


def unpacked(content: bytes) -> dict[str, bytes]:
    """Read the files of a tar archive, by their bare names; nothing is extracted."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:*") as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() else None
            if file is not None:
                found[member.name.rpartition("/")[2]] = file.read()
    return found


def restore_from_png(contents: Contents) -> Contents:
    """Rebuild the binary batches of CIFAR-10 from pictures of one image per row.

    Args:
        contents: the PNG files of the batches and the two lists of labels.

    Returns:
        The binary batches.
    """
    train = json.loads(contents[TRAIN_LABELS])
    size = len(train) // len(TRAIN_BATCHES)
    labels = {
        name: train[number * size : (number + 1) * size]
        for number, name in enumerate(TRAIN_BATCHES)
    }
    labels[TEST_BATCH] = json.loads(contents[TEST_LABELS])
    return {
        f"{name}.bin": _rows(contents[f"{name}.png"], labels[name]) for name in labels
    }


def _rows(picture: bytes, labels: list[int]) -> bytes:
    from PIL import Image  # seldom needed, so loaded here

    with Image.open(io.BytesIO(picture)) as image:
        pixels = np.asarray(image.convert("RGB")).reshape(len(labels), 32 * 32, 3)
    planes = pixels.transpose(0, 2, 1).reshape(len(labels), PIXELS)
    first = np.asarray(labels, dtype=np.uint8)[:, None]
    return np.concatenate([first, planes], axis=1).tobytes()
