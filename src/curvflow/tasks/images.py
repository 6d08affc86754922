"""Published images, from the bytes of their files to a data set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import numpy as np

from curvflow.schemas.images import ImageParams
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.modifications import each_once, modified


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory.

    The images kept as computed, as checked or permuted, and as written, float32, and
    the bytes that they are made from; and the targets twice, float64.
    """
    params = cast("ImageParams", member.params)
    original = params.original
    channels, height, width = original.shape
    pixels = channels * (params.crop or height) * (params.crop or width)
    train, test = original.counts(params.classes)
    rows = min(params.num_train or train, train)
    rows += test if params.num_test is None else params.num_test
    bytes_kept = 16
    if params.labels == "one_hot":
        bytes_kept = (original.num_classes + 2) * 8
    elif params.targets == "inputs":
        bytes_kept = 2 * 8 * pixels
    return rows * (pixels * (3 * 4 + 1) + bytes_kept) + math.prod(original.shape) * (
        train + test
    ) * (params.classes is not None)


def images(members: Sequence[Member]) -> list[Outcome]:
    """Make data sets of images, modified as asked.

    Args:
        members: parameters, and the arrays of the published files.

    Returns:
        The data sets; inputs are (N, channels, height, width) unless flattened.
    """
    return each_once(members, _images)


def _images(member: Member) -> Outcome:
    params = cast("ImageParams", member.params)
    arrays = member.files["originals"]
    classes = params.original.num_classes
    return Outcome(modified(arrays, params, num_classes=classes, dtype=np.float32))
