"""Classes of items by the nearest other item."""

from __future__ import annotations

from typing import cast

import numpy as np

from curvflow.errors import InputError, nearest
from curvflow.schemas.kinds.aggregate.classify import ClassifyParams
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.statistics.descriptive import clopper_pearson


@computes_each("aggregate.classify")
def classify(member: Member, machine: Machine) -> Outcome:
    """Give each item the class of the nearest other one, and count how often it is so.

    Args:
        member: distances of all pairs.
        machine: not used.

    Returns:
        Accuracies with their intervals, the confusion, and the nearest of each item.

    Raises:
        InputError: the items have no such axis, or there are fewer than two distances.

    Reference:
        Cover and Hart (1967), doi:10.1109/TIT.1967.1053964.
    """
    params = cast("ClassifyParams", member.params)
    node = member.one("of")
    classes_N = _classes(node["axis"], node["labels"], params.by)
    apart_NN = node["matrix"].astype(np.float64)
    np.fill_diagonal(apart_NN, np.inf)
    apart_NN[~np.isfinite(apart_NN)] = np.inf
    nearest_N, there_N = apart_NN.argmin(1), np.isfinite(apart_NN.min(1))
    if there_N.sum() < 2:
        raise InputError(
            "of: expected distances of all pairs, got one or none. Leave out the "
            "target of the stage that measures them."
        )
    found_N = np.where(there_N, classes_N[nearest_N], "")
    labels = np.array(list(dict.fromkeys(classes_N.tolist())))
    is_own_NN = classes_N[:, None] == classes_N
    least_own, least_other = (
        np.where(where, apart_NN, np.inf).min(1) for where in (is_own_NN, ~is_own_NN)
    )
    with np.errstate(invalid="ignore"):
        margin_N = least_other - least_own
    confusion = [
        [int(((classes_N == a) & (found_N == b)).sum()) for b in labels] for a in labels
    ]
    _, sizes = np.unique(classes_N, return_counts=True)
    return Outcome(
        {
            **_accuracies(classes_N, found_N, labels, params.confidence),
            "chance": np.array(sizes.max() / len(classes_N)),
            "num_unclassified": np.array((~there_N).sum(), dtype=np.int64),
            "label": labels,
            "predicted": labels,
            "confusion": np.array(confusion, dtype=np.int64),
            "item": node["item"],
            "nearest": np.where(there_N, node["item"][nearest_N], ""),
            "distance_to_nearest": np.where(there_N, apart_NN.min(1), np.nan),
            "margin": np.where(np.isfinite(margin_N), margin_N, np.nan),
        }
    )


def _classes(axes: Array, labels_NA: Array, by: str) -> Array:
    names = axes.tolist()
    if by not in names:
        raise InputError(
            f"by: expected an axis of the items, got '{by}'. {nearest(by, names)}"
        )
    classes: Array = labels_NA[:, names.index(by)]
    return classes


def _accuracies(
    classes_N: Array, found_N: Array, labels: Array, confidence: float
) -> dict[str, Array]:
    masks = {"accuracy": np.ones(len(classes_N), dtype=bool)}
    masks |= {f"accuracy: {label}": classes_N == label for label in labels}
    counts = [int((mask & (found_N != "")).sum()) for mask in masks.values()]
    correct = [int((mask & (found_N == classes_N)).sum()) for mask in masks.values()]
    limits = [
        clopper_pearson(hits, count, (1 - confidence) / 2)
        for hits, count in zip(correct, counts, strict=True)
    ]
    low, high = np.array(limits).T
    return {
        "quantity": np.array(list(masks)),
        "accuracy": np.array(
            [h / n if n else np.nan for h, n in zip(correct, counts, strict=True)]
        ),
        "low": low,
        "high": high,
        "count": np.array(counts, dtype=np.int64),
        "correct": np.array(correct, dtype=np.int64),
    }
