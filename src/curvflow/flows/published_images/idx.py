"""The IDX form of MNIST and Fashion-MNIST."""

from __future__ import annotations

import math
import struct

import numpy as np

from curvflow.errors import InputError
from curvflow.flows.published_images.find import Contents
from curvflow.schemas.nodes import Array

PARTS = {
    "train-images": "inputs",
    "train-labels": "targets",
    "t10k-images": "test_inputs",
    "t10k-labels": "test_targets",
}
_UNSIGNED_BYTES = 8


def decode_idx(content: bytes) -> Array:
    """Read an array of bytes in the IDX form.

    Args:
        content: a magic number, the sizes in big-endian order, and the bytes.

    Returns:
        The array, uint8.

    Raises:
        InputError: the content is of another form or length.
    """
    try:
        zero, kind, dims = struct.unpack_from(">HBB", content)
        shape = struct.unpack_from(f">{dims}I", content, 4)
    except struct.error as error:
        raise InputError("expected an IDX file, got one cut short") from error
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * dims)
    if (zero, kind) != (0, _UNSIGNED_BYTES) or values.size != math.prod(shape):
        raise InputError(
            f"expected an IDX file of bytes, got {values.size} values of type {kind} "
            f"for shape {shape}"
        )
    return values.reshape(shape)


def decode_images(contents: Contents) -> dict[str, Array]:
    """Turn the four files of MNIST into the arrays of a data set.

    Args:
        contents: per part, see `PARTS`.

    Returns:
        Images (N, 1, height, width) uint8 and labels (N,) int64.
    """
    arrays = {role: decode_idx(contents[part]) for part, role in PARTS.items()}
    return {
        role: array[:, None] if array.ndim == 3 else array.astype(np.int64)
        for role, array in arrays.items()
    }
