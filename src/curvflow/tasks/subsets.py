"""Which samples and classes of a data set are kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from curvflow.errors import InputError
from curvflow.schemas.nodes import Array
from curvflow.tasks.numerics.streams import stream


def of_classes(targets: Array, classes: Sequence[int]) -> tuple[Array, Array]:
    """Find the samples of some classes.

    Args:
        targets: labels, (N,).
        classes: labels kept; the first becomes 0, the second 1, and so on.

    Returns:
        Which samples are kept, in order, and their new labels.
    """
    rows = np.flatnonzero(np.isin(targets, classes))
    order = np.argsort(classes)
    found = np.searchsorted(np.asarray(classes)[order], targets[rows])
    return rows, order[found]


def drawn(
    targets: Array, count: int, *, seed: int, purpose: str, stratified: bool
) -> Array:
    """Draw samples without replacement.

    A larger count keeps what a smaller one drew, unless it is stratified.

    Args:
        targets: of all samples; labels (N,) where it is stratified.
        count: how many are kept.
        seed: of the draw.
        purpose: names the stream.
        stratified: draw from each class in proportion to its size.

    Returns:
        Which samples are kept, in their order.

    Raises:
        InputError: there are fewer, or there are no labels to stratify by.
    """
    if count > len(targets):
        raise InputError(
            f"num_{purpose}: expected at most the {len(targets)} samples there are, "
            f"got {count}. Lower it."
        )
    order = torch.randperm(len(targets), generator=stream(seed, f"subset {purpose}"))
    if not stratified:
        return np.sort(order.numpy()[:count])
    if targets.ndim != 1:
        raise InputError("stratified: expected labels, got values as targets")
    labels, sizes = np.unique(targets, return_counts=True)
    shares = _shares(sizes, count)
    kept = [
        order.numpy()[targets[order.numpy()] == label][:share]
        for label, share in zip(labels, shares, strict=True)
    ]
    return np.sort(np.concatenate(kept))


def _shares(sizes: Array, count: int) -> list[int]:
    """Part a count in proportion to sizes, by largest remainders, in whole numbers."""
    total = int(sizes.sum())
    shares = [int(size) * count // total for size in sizes]
    remainders = [int(size) * count % total for size in sizes]
    first = sorted(range(len(sizes)), key=lambda c: -remainders[c])
    for label in first[: count - sum(shares)]:
        shares[label] += 1
    return shares
