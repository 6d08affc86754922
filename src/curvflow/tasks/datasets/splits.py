"""Splits that keep what belongs together, or comes later, out of the training part."""

from __future__ import annotations

import numpy as np

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.datasets import latest
from curvflow.schemas.nodes import Array
from curvflow.tasks.datasets.images import shuffled


def parts_by_time(by: Array, count: int) -> tuple[Array, Array]:
    """Hold out the latest samples.

    Args:
        by: the time of each sample.
        count: samples to be held out.

    Returns:
        Numbers of the samples that are trained on, and held out, each in the order of
        time; none that is as late as one held out is trained on.
    """
    order = np.argsort(by, kind="stable")
    late = latest(by, count)[order]
    return order[~late], order[late]


def parts_by_group(by: Array, count: int, seed: int) -> tuple[Array, Array]:
    """Hold out whole groups, drawn until the samples are as near to a count as can be.

    Args:
        by: the group of each sample, at least two of them.
        count: samples to be held out.
        seed: of the draw.

    Returns:
        Numbers of the samples that are trained on, and held out, each in their order.
        At least one group is in either part.

    Raises:
        InputError: a single sample is left to train on.
    """
    groups, number, sizes = np.unique(by, return_inverse=True, return_counts=True)
    order = shuffled(len(groups), seed)
    reached = np.cumsum(sizes[order])[:-1]
    drawn = order[: np.argmin(abs(reached - count)) + 1]
    held_out = np.isin(number, drawn)
    if len(by) - held_out.sum() < 2:
        raise InputError(
            "group: expected at least 2 samples left for training, got 1: the others "
            f"are one group. Take another seed than {seed}, or a smaller test_fraction."
        )
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)
