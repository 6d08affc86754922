"""Changes of inputs: crops, scales, permutations.

Inputs are (N, channels, height, width), or (N, ...) with columns in place of pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import torch

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.datasets import Floats
from curvflow.schemas.nodes import Array
from curvflow.tasks.numerics.streams import stream

LEVELS = 256
ROWS = 4096  # counted at once


def cropped(images: Array, side: int) -> Array:
    """Keep the square at the centre; where it cannot be central, up and left of it.

    Args:
        images: (N, channels, height, width).
        side: of the square, pixels.

    Returns:
        (N, channels, side, side).

    Raises:
        InputError: these are no images, or smaller ones.
    """
    if images.ndim != 4 or min(images.shape[2:]) < side:
        raise InputError(
            "crop: expected images (channels, height, width) of at least "
            f"{side}x{side} pixels, got inputs of shape {images.shape[1:]}. Lower "
            "crop, or remove it."
        )
    top, left = ((size - side) // 2 for size in images.shape[2:])
    return images[:, :, top : top + side, left : left + side]


def permuted(inputs: Array, seed: int) -> Array:
    """Move pixels, or columns, by the permutation of a seed, the same in all channels.

    Args:
        inputs: (N, channels, ...) or (N, columns).
        seed: of the permutation.

    Returns:
        Inputs of the same shape.
    """
    channels = inputs.shape[1] if inputs.ndim > 2 else 1
    pixels = math.prod(inputs.shape[1:]) // channels
    flat = inputs.reshape(len(inputs), channels, pixels)
    generator = stream(seed, "permute pixels")
    order = torch.randperm(pixels, generator=generator).numpy()
    return np.take(flat, order, axis=2).reshape(inputs.shape)


def flattened(inputs: Array) -> Array:
    """Return inputs as rows, (N, features), also where there are none."""
    return inputs.reshape(len(inputs), math.prod(inputs.shape[1:]))


def scaled(
    train: Array,
    test: Array,
    to: Literal["unit", "standard", "none"],
    dtype: Floats,
) -> tuple[Array, Array]:
    """Bring inputs to a common scale, which the training inputs set.

    Args:
        train: bytes, whose range is 0 to 255 whatever occurs, or other numbers.
        test: the like.
        to: see `Modifications.normalise`.
        dtype: of the results; whole numbers that are not scaled stay so.

    Returns:
        The training and test inputs.
    """
    if to == "none":
        if train.dtype == np.int64:  # such as tokens
            return train, test
        return train.astype(dtype), test.astype(dtype)
    if to == "standard":
        shift, width = _moments(train)
    elif train.dtype == np.uint8:
        shift, width = np.array(0.0), np.array(LEVELS - 1.0)
    else:
        shift, width = np.array(train.min()), np.array(train.max() - train.min())
    width = np.where(width == 0, 1, width)  # what does not vary is shifted alone
    return _affine(train, shift, width, dtype), _affine(test, shift, width, dtype)


def _affine(inputs: Array, shift: Array, width: Array, dtype: Floats) -> Array:
    # A few rows at once: the whole in double precision would take twice the room.
    scaled_rows = np.empty(inputs.shape, dtype)
    look_up = _look_up(shift, width, dtype) if inputs.dtype == np.uint8 else None
    for start in range(0, len(inputs), ROWS):
        rows = inputs[start : start + ROWS]
        scaled_rows[start : start + ROWS] = (
            look_up(rows) if look_up else (rows - shift) / width
        )
    return scaled_rows


def _look_up(shift: Array, width: Array, dtype: Floats) -> Callable[[Array], Array]:
    """Return the same map for bytes: each of 256 levels is computed but once."""
    levels = np.arange(LEVELS) - shift.reshape(-1, 1)
    tables = (levels / width.reshape(-1, 1)).astype(dtype)

    def of(rows: Array) -> Array:
        channels = [tables[c % len(tables)][rows[:, c]] for c in range(rows.shape[1])]
        return np.stack(channels, axis=1)

    return of


def _moments(train: Array) -> tuple[Array, Array]:
    """Return mean and standard deviation, per channel of images, else per column."""
    axes = (0, *range(2, train.ndim)) if train.ndim > 2 else (0,)
    if train.dtype != np.uint8:
        # The last bits of a sum differ between processors; what follows does not.
        mean = train.mean(axis=axes, keepdims=True).astype(np.float32)
        width = train.std(axis=axes, keepdims=True).astype(np.float32)
        # Of equal numbers a mean is off by rounding, and that is no width.
        least = train.min(axis=axes, keepdims=True)
        varies = train.max(axis=axes, keepdims=True) > least
        return np.where(varies, mean, least.astype(np.float32)), width * varies
    columns = np.moveaxis(train, 1, 0)
    moments = np.array([_moments_of_bytes(column) for column in columns])
    shape = (1, -1, *(1 for _ in train.shape[2:]))
    return moments[:, 0].reshape(shape), moments[:, 1].reshape(shape)


def _moments_of_bytes(values: Array) -> tuple[float, float]:
    # Whole numbers, so that no order of summation counts.
    counts = np.zeros(LEVELS, dtype=np.int64)
    for start in range(0, len(values), ROWS):
        rows = values[start : start + ROWS].reshape(-1)
        counts += np.bincount(rows, minlength=LEVELS)
    number = int(counts.sum())
    first = sum(level * int(count) for level, count in enumerate(counts))
    second = sum(level**2 * int(count) for level, count in enumerate(counts))
    return first / number, float(np.sqrt(number * second - first**2)) / number
