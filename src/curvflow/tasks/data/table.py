"""Columns of a table as a data set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from curvflow.errors import InputError
from curvflow.schemas.kinds.data.table import (
    Read,
    TableParams,
    num_test,
    read,
)
from curvflow.schemas.kinds.shared.datasets import dataset_of
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.datasets.images import shuffled
from curvflow.tasks.datasets.splits import parts_by_group, parts_by_time
from curvflow.tasks.registry import Machine, computes_each

# Numbers of which the squares of so many rows can surely be added up.
LARGEST = 1e150


@computes_each("data.table")
def table(member: Member, machine: Machine) -> Outcome:
    """Split the rows of a table, and scale its columns by the training part.

    Args:
        member: the parameters, and the bytes of the file.
        machine: not used.

    Returns:
        The data set, inputs (N, F); the names, shifts and widths of its F features,
        and the names of its classes if it has labels.

    Raises:
        InputError: the file cannot be used, or the test part has a category that the
            training part lacks.
    """
    params = cast("TableParams", member.params)
    data = read(params, member.files)
    train, test = _parts(params, data)
    features = [
        _one_hot(params, data, name, train)
        if name in data.are_categories
        else _scaled(params, data, name, train)
        for name in data.inputs
    ]
    inputs = np.concatenate([feature.columns for feature in features], axis=1)
    targets = data.targets
    parts = inputs[train], targets[train], inputs[test], targets[test]
    arrays = dataset_of(np.float64, len(data.classes) or None, *parts)
    arrays["feature"] = np.array([n for feature in features for n in feature.names])
    arrays["shift"] = np.concatenate([feature.shift for feature in features])
    arrays["width"] = np.concatenate([feature.width for feature in features])
    if data.classes:
        arrays["class_names"] = np.array(data.classes)
    return Outcome(arrays)


@dataclass(frozen=True)
class _Features:
    """The inputs made of one column of the table.

    Attributes:
        names: of the F inputs.
        columns: (N, F).
        shift: subtracted from the entries of the table, (F,).
        width: divided by then, (F,).
    """

    names: Sequence[str]
    columns: Array
    shift: Array
    width: Array


def _parts(params: TableParams, data: Read) -> tuple[Array, Array]:
    """Return the rows of the training and of the test part."""
    count = num_test(params, data)
    if params.time is not None and data.by is not None:
        return parts_by_time(data.by, count)
    if params.group is not None and data.by is not None and count:
        return parts_by_group(data.by, count, params.seed)
    order = shuffled(len(data.places), params.seed)
    return order[count:], order[:count]


def _scaled(params: TableParams, data: Read, name: str, train: Array) -> _Features:
    """Return a column of numbers, scaled by the training part."""
    numbers, missing = data.inputs[name].numbers, data.inputs[name].missing
    assert numbers is not None
    known = numbers[train][~missing[train]]
    if not len(known):
        raise InputError(
            f"missing: expected a value in column '{name}' of the training part, got "
            "none. Leave the column out."
        )
    if not np.abs(known).max() < LARGEST:
        raise InputError(
            f"path: expected numbers below {LARGEST:g} in column '{name}', got "
            f"{np.abs(known).max():g}. Take another unit, or leave it out of columns."
        )
    spread = known.max() - known.min()
    if params.scaling == "standard" and 0 < spread < 1 / LARGEST:
        raise InputError(
            f"path: expected numbers in column '{name}' that are equal, or differ by "
            f"{1 / LARGEST:g} or more, got {spread:g}. Take another unit, or leave it "
            "out of columns."
        )
    # Sums that are exact are the same on every processor, and so are keys behind them.
    mean = math.fsum(known) / len(known)
    if (
        known.min() == known.max()
    ):  # whose mean may be off by rounding, as three times 0.1 is
        mean = float(known[0])
    filled = np.where(missing, mean, numbers)
    shift, width = 0.0, 1.0
    if params.scaling == "standard":
        shift = mean
        width = math.sqrt(math.fsum((filled[train] - mean) ** 2) / len(train))
    elif params.scaling == "minmax":
        shift, width = float(known.min()), float(known.max() - known.min())
    width = width or 1.0  # what does not vary is shifted alone
    scaled = (filled - shift) / width
    return _Features(
        [name], scaled[:, np.newaxis], np.array([shift]), np.array([width])
    )


def _one_hot(params: TableParams, data: Read, name: str, train: Array) -> _Features:
    """Return a column of 0 and 1 for each category of the training part."""
    cells = data.inputs[name].as_texts()
    categories = sorted(set(cells[train]))
    number = {category: n for n, category in enumerate(categories)}
    columns = np.zeros((len(cells), len(categories)))
    for row, cell in enumerate(cells):
        if cell in number:
            columns[row, number[cell]] = 1
        elif params.unknown == "refuse":
            raise InputError(
                f"unknown: expected a category of the training part in column "
                f"'{name}', got '{cell}' in {data.place(row)}. Set unknown: zeros, "
                f"change the split, or leave '{name}' out of columns, as one of dates."
            )
    names = [f"{name}={category}" for category in categories]
    ones = np.ones(len(categories))
    return _Features(names, columns, np.zeros(len(categories)), ones)
