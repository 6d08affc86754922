"""Published images as data sets, and draws that are the same on every machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor

from curvflow.schemas.kinds.shared.images import ImageParams
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.datasets.modifications import each_once, modified
from curvflow.tasks.numerics.streams import stream


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory.

    The images kept as computed, as checked or permuted, and as written, float32, and
    the bytes that they are made from; and the targets twice, float64.
    """
    params = cast("ImageParams", member.params)
    channels, height, width = params.shape
    pixels = channels * (params.crop or height) * (params.crop or width)
    train, test = params.counts
    rows = min(params.num_train or train, train)
    rows += test if params.num_test is None else params.num_test
    bytes_kept = 16
    if params.labels == "one_hot":
        bytes_kept = (params.num_labels + 2) * 8
    elif params.targets == "inputs":
        bytes_kept = 2 * 8 * pixels
    return rows * (pixels * (3 * 4 + 1) + bytes_kept) + math.prod(params.shape) * (
        train + test
    ) * (params.classes is not None)


def images(members: Sequence[Member]) -> list[Outcome]:
    """Make data sets of images, modified as asked.

    Args:
        members: parameters, and the arrays of the published files.

    Returns:
        The data sets; inputs are (N, channels, height, width) unless flattened.
    """
    return each_once(members, lambda m: changed_images(m, m.files["originals"]))


def changed_images(member: Member, arrays: Mapping[str, Array]) -> Outcome:
    """Modify images as a member's parameters say.

    Args:
        member: its parameters.
        arrays: images uint8 (N, channels, height, width) and labels, in two sets.

    Returns:
        The data set.
    """
    params = cast("ImageParams", member.params)
    labels = params.num_labels
    return Outcome(modified(arrays, params, num_classes=labels, dtype=np.float32))


def shuffled(count: int, seed: int) -> Array:
    """Return a permutation of `count` samples, from the seed's stream for splits."""
    return torch.randperm(count, generator=stream(seed, "split")).numpy()


def single(values: Tensor) -> Array:
    """Round to single precision, so that no processor's last bits enter a digest.

    Sums, sines and the like in double precision differ between processors in their
    last bits; the keys of all that is computed from a data set hold its digest.

    Args:
        values: in double precision.

    Returns:
        The rounded values as float64.
    """
    return values.float().double().numpy()
