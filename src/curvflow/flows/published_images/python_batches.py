"""The Python form of CIFAR-10 and CIFAR-100: pickles, read once they are verified.

Whoever writes a pickle decides what runs when it is read. So a file comes here only if
it has the published checksum, and even then nothing but NumPy arrays is made of it.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np

from curvflow.errors import InputError
from curvflow.flows.published_images.cifar import TEST_BATCH, TRAIN_BATCHES, joined
from curvflow.flows.published_images.find import Contents
from curvflow.schemas.nodes import Array

_reconstruct = np.empty(0).__reduce__()[0]  # how NumPy's own pickles begin
# Under the name that it had when the files were made, and under its present one.
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


class _ArraysAlone(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise InputError(
                f"expected a pickle of arrays, got one that asks for {module}.{name}"
            ) from None


def decode_batch(content: bytes, labels: str) -> tuple[Array, Array]:
    """Read one batch.

    Args:
        content: the file, verified.
        labels: name of the list of classes in it.

    Returns:
        Images (N, 3, 32, 32) uint8 and classes (N,) int64.
    """
    batch = _ArraysAlone(io.BytesIO(content), encoding="latin1").load()
    images = np.ascontiguousarray(batch["data"], dtype=np.uint8)
    return images.reshape(-1, 3, 32, 32), np.array(batch[labels], dtype=np.int64)


def decode_ten(contents: Contents) -> dict[str, Array]:
    """Turn the six batches of CIFAR-10 into the arrays of a data set."""
    train = [decode_batch(contents[name], "labels") for name in TRAIN_BATCHES]
    return joined(train, decode_batch(contents[TEST_BATCH], "labels"))


def decode_hundred(contents: Contents) -> dict[str, Array]:
    """Turn the two batches of CIFAR-100 into arrays; classes are the fine ones."""
    train = decode_batch(contents["train"], "fine_labels")
    return joined([train], decode_batch(contents["test"], "fine_labels"))
