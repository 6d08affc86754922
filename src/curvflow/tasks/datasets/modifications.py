"""All that can be done to a data set, in the one order that there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.datasets import Floats, dataset_of, has_labels
from curvflow.schemas.kinds.shared.modifications import Modifications
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.datasets.pixels import cropped, flattened, permuted, scaled
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
