"""All that can be done to a data set, in the one order that there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from curvflow.errors import InputError
from curvflow.schemas.datasets import Floats, dataset_of
from curvflow.schemas.modifications import Modifications
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.pixels import cropped, flattened, permuted, scaled
from curvflow.tasks.relabelled import noisy, one_hot
from curvflow.tasks.subsets import drawn, of_classes

Arrays = dict[str, Array]
SETS = (("train", ""), ("test", "test_"))


def modified(
    arrays: Mapping[str, Array],
    params: Modifications,
    *,
    num_classes: int,
    dtype: Floats,
) -> Arrays:
    """Change a data set, in the order that docs/data.md tells.

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
    found = dict(arrays)
    _refuse_values(found, params)
    if params.classes is not None:
        found = _chosen(found, params.classes, num_classes)
        num_classes = len(params.classes)
    found = _drawn(found, params)
    if params.label_noise:
        share, seed = params.label_noise, params.seed
        found["targets"] = noisy(found["targets"], num_classes, share, seed)
    found = _with_inputs(found, params, dtype)
    if params.targets == "inputs":
        return _of_themselves(found, dtype)
    return _with_targets(found, params, num_classes, dtype)


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
    if arrays["targets"].ndim == 1:
        return
    for name in ("classes", "label_noise"):
        if getattr(params, name):
            raise InputError(f"{name}: expected labels, got values as targets")
    if params.labels == "one_hot":
        raise InputError("labels: expected labels, got values as targets")


def _chosen(arrays: Arrays, classes: Sequence[int], num_classes: int) -> Arrays:
    found = {}
    for label in classes:
        if label >= num_classes:
            raise InputError(
                f"classes: expected labels below {num_classes}, got {label}"
            )
    for _, prefix in SETS:
        rows, labels = of_classes(arrays[f"{prefix}targets"], classes)
        found[f"{prefix}inputs"] = arrays[f"{prefix}inputs"][rows]
        found[f"{prefix}targets"] = labels
    return found


def _drawn(arrays: Arrays, params: Modifications) -> Arrays:
    found = dict(arrays)
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
                found[name] = arrays[name][rows]
    return found


def _with_targets(
    arrays: Arrays,
    params: Modifications,
    num_classes: int,
    dtype: Floats,
) -> Arrays:
    """Write the targets as asked, and hold the whole to what a data set must be."""
    for name in ("targets", "test_targets"):
        labels = arrays[name]
        if params.labels == "one_hot":
            arrays[name] = one_hot(labels, num_classes)
        elif labels.ndim == 1:
            arrays[name] = labels.astype(np.int64)
    # Of values there may be none, or two, written as signs: that the data tell.
    are_values = labels.ndim == 2
    return dataset_of(dtype, None if are_values else num_classes, **arrays)


def _of_themselves(arrays: Arrays, dtype: Floats) -> Arrays:
    """Take the inputs for their own targets: regression, whatever their values."""
    rows = {
        f"{prefix}targets": flattened(arrays[f"{prefix}inputs"]) for _, prefix in SETS
    }
    return dataset_of(dtype, 0, **{**arrays, **rows})


def each_once(
    members: Sequence[Member], compute: Callable[[Member], Outcome]
) -> list[Outcome]:
    """Compute members one after another; one that stands beside itself only once.

    Args:
        members: of one tile.
        compute: from a member to its outcome.

    Returns:
        One outcome per member.
    """
    found: dict[int, Outcome] = {}
    for member in members:
        if id(member) not in found:
            found[id(member)] = compute(member)
    return [found[id(member)] for member in members]
