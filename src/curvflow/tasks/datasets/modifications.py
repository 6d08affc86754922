"""All that can be done to a data set, in the one order that there is, and to inputs.

Inputs are (N, channels, height, width), or (N, ...) with columns in place of pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
import torch

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.datasets import Floats, dataset_of, has_labels
from curvflow.schemas.kinds.shared.modifications import Modifications
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.numerics.streams import stream


def noisy(labels: Array, num_classes: int, share: float, seed: int) -> Array:
    """Replace a share of the labels by another class each, drawn uniformly.

    A larger share keeps what a smaller one replaced.

    Args:
        labels: (N,), 0..C-1.
        num_classes: C, at least 2.
        share: of the labels, rounded to a whole number of them.
        seed: of the draw.

    Returns:
        The new labels.
    """
    generator = stream(seed, "label noise")
    order = torch.randperm(len(labels), generator=generator).numpy()
    steps = torch.randint(1, num_classes, (len(labels),), generator=generator).numpy()
    chosen = order[: round(share * len(labels))]
    noisy_labels = labels.astype(np.int64)
    noisy_labels[chosen] = (noisy_labels[chosen] + steps[chosen]) % num_classes
    return noisy_labels


def one_hot(labels: Array, num_classes: int) -> Array:
    """Write labels as one column of 0 and 1 per class, (N, C)."""
    return np.eye(num_classes)[labels.astype(np.int64)]


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
    places = np.searchsorted(np.asarray(classes)[order], targets[rows])
    return rows, order[places]


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
        raise InputError(
            "stratified cannot be combined with values as targets. Remove it, or take "
            "data with labels."
        )
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


Arrays = dict[str, Array]
SETS = (("train", ""), ("test", "test_"))


def modified(
    arrays: Mapping[str, Array],
    params: Modifications,
    *,
    num_classes: int,
    dtype: Floats,
) -> Arrays:
    """Change a data set, in the order that docs/data.md states.

    Args:
        arrays: `inputs`, `targets`, and both for the test set.
        params: what to do.
        num_classes: of the labels; 0 if the targets are values.
        dtype: of the inputs returned.

    Returns:
        The variables of a data set.

    Raises:
        InputError: the data set has no such class, samples, pixels or labels.
    """
    changed = dict(arrays)
    _refuse_values(changed, params)
    if params.classes is not None:
        changed = _chosen(changed, params.classes, num_classes)
        num_classes = len(params.classes)
    if params.relabel == "parity":
        changed, num_classes = _by_parity(changed, params.classes), 2
    changed = _drawn(changed, params)
    if params.label_noise:
        share, seed = params.label_noise, params.seed
        changed["targets"] = noisy(changed["targets"], num_classes, share, seed)
    changed = _with_inputs(changed, params, dtype)
    if params.targets == "inputs":
        return _of_themselves(changed, dtype)
    return _with_targets(changed, params, num_classes, dtype)


def _with_inputs(arrays: Arrays, params: Modifications, dtype: Floats) -> Arrays:
    both = arrays["inputs"], arrays["test_inputs"]
    if params.crop is not None:
        both = cropped(both[0], params.crop), cropped(both[1], params.crop)
    if params.permute_pixels:
        both = permuted(both[0], params.seed), permuted(both[1], params.seed)
    both = scaled(*both, params.normalise, dtype)
    if params.flatten:
        both = flattened(both[0]), flattened(both[1])
    return {**arrays, "inputs": both[0], "test_inputs": both[1]}


def _refuse_values(arrays: Arrays, params: Modifications) -> None:
    targets = arrays["targets"]
    if targets.ndim == 1:
        return
    got = "labels of tokens" if has_labels(targets) else "values"
    asked = {
        "classes": params.classes,
        "relabel": params.relabel != "none",
        "label_noise": params.label_noise,
        "labels": params.labels == "one_hot",
    }
    for name, is_asked in asked.items():
        if is_asked:
            raise InputError(
                f"{name} cannot be combined with {got} as targets. Remove it, or take "
                "data with labels."
            )


def _chosen(arrays: Arrays, classes: Sequence[int], num_classes: int) -> Arrays:
    kept = {}
    for label in classes:
        if label >= num_classes:
            raise InputError(
                f"classes: expected labels below {num_classes}, got {label}. Remove "
                "that label."
            )
    for _, prefix in SETS:
        rows, labels = of_classes(arrays[f"{prefix}targets"], classes)
        kept[f"{prefix}inputs"] = arrays[f"{prefix}inputs"][rows]
        kept[f"{prefix}targets"] = labels
    return kept


def _by_parity(arrays: Arrays, classes: Sequence[int] | None) -> Arrays:
    """Make labels 0 where they were even, and 1 where odd, before `classes` renamed."""
    changed = dict(arrays)
    for _, prefix in SETS:
        labels = arrays[f"{prefix}targets"].astype(np.int64)
        if classes is not None:
            labels = np.asarray(classes)[labels]
        changed[f"{prefix}targets"] = labels % 2
    return changed


def _drawn(arrays: Arrays, params: Modifications) -> Arrays:
    kept = dict(arrays)
    for purpose, prefix in SETS:
        count = getattr(params, f"num_{purpose}")
        if count is not None:
            rows = drawn(
                arrays[f"{prefix}targets"],
                count,
                seed=params.seed,
                purpose=purpose,
                stratified=params.stratified,
            )
            for name in (f"{prefix}inputs", f"{prefix}targets"):
                kept[name] = arrays[name][rows]
    return kept


def _with_targets(
    arrays: Arrays,
    params: Modifications,
    num_classes: int,
    dtype: Floats,
) -> Arrays:
    """Write the targets as asked, and hold the whole to what a data set must be."""
    # Of values there may be none, or two, written as signs: that the data tell.
    are_values = not has_labels(arrays["targets"])
    for name in ("targets", "test_targets"):
        labels = arrays[name]
        if params.labels == "one_hot":
            arrays[name] = one_hot(labels, num_classes)
        elif has_labels(labels):
            arrays[name] = labels.astype(np.int64)
    return dataset_of(dtype, None if are_values else num_classes, **arrays)


def _of_themselves(arrays: Arrays, dtype: Floats) -> Arrays:
    """Take the inputs for their own targets: regression, whatever their values."""
    rows = {
        f"{prefix}targets": flattened(arrays[f"{prefix}inputs"]).astype(np.float64)
        for _, prefix in SETS
    }
    return dataset_of(dtype, 0, **{**arrays, **rows})


def each_once(
    members: Sequence[Member], compute: Callable[[Member], Outcome]
) -> list[Outcome]:
    """Compute members one after another; a repeated one only once.

    Args:
        members: of one tile.
        compute: from a member to its outcome.

    Returns:
        One outcome per member.
    """
    outcomes: dict[int, Outcome] = {}
    for member in members:
        if id(member) not in outcomes:
            outcomes[id(member)] = compute(member)
    return [outcomes[id(member)] for member in members]


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
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            mean = train.mean(axis=axes, keepdims=True).astype(np.float32)
            width = train.std(axis=axes, keepdims=True).astype(np.float32)
        # Of equal numbers a mean is off by rounding, and that is no width.
        least = train.min(axis=axes, keepdims=True)
        varies = train.max(axis=axes, keepdims=True) > least
        _check_single(mean, width, varies)
        return np.where(varies, mean, least.astype(np.float32)), width * varies
    columns = np.moveaxis(train, 1, 0)
    moments = np.array([_moments_of_bytes(column) for column in columns])
    shape = (1, -1, *(1 for _ in train.shape[2:]))
    return moments[:, 0].reshape(shape), moments[:, 1].reshape(shape)


def _check_single(mean: Array, width: Array, varies: Array) -> None:
    """Refuse moments beyond single precision, by which inputs would be 0 or NaN.

    Raises:
        InputError: there are such; the deviation of what does not vary is not taken.
    """
    limits = np.finfo(np.float32)
    is_single = (width >= limits.tiny) & (width <= limits.max)
    if (beyond := ~np.isfinite(mean) | (varies & ~is_single)).any():
        raise InputError(
            "normalise: expected inputs whose mean and deviation are 0 or from "
            f"{limits.tiny:.2g} to {limits.max:.2g}, got a mean of "
            f"{mean[beyond][0]:.3g} and a deviation of {width[beyond][0]:.3g} in "
            "single precision. Take another unit, or normalise: unit."
        )


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
