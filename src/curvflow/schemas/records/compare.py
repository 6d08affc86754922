"""Numbers before and after: how far apart they are, and which differ most."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from curvflow.schemas.nodes import Array, Label

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Difference:
    """How far one variable of one node is from what it was.

    Attributes:
        variable: its name.
        at: labels of the node.
        absolute: largest difference of its elements; infinite if a shape is another or
            only one of two values is finite.
        relative: largest difference over the larger of two values, from 0 to 2.
    """

    variable: str
    at: Mapping[str, Label]
    absolute: float
    relative: float


def compare_arrays(
    at: Mapping[str, Label], before: Mapping[str, Array], after: Mapping[str, Array]
) -> Iterator[Difference]:
    """Compare one node's arrays by name.

    Args:
        at: labels of the node.
        before: its arrays.
        after: the same later.

    Yields:
        One entry per variable of numbers that differs.
    """
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old is None or new is None or old.shape != new.shape:
            yield Difference(name, at, math.inf, math.inf)
        elif old.dtype.kind in "biuf" and new.dtype.kind in "biuf":
            difference, relative = elementwise_differences(old, new)
            if difference.size and difference.max() > 0:
                absolute = float(difference.max())
                yield Difference(name, at, absolute, float(relative.max()))


def elementwise_differences(old: Array, new: Array) -> tuple[Array, Array]:
    """Return absolute and relative differences, element by element.

    Args:
        old: numbers.
        new: numbers of the same shape.

    Returns:
        |new - old|, and that over the larger of |old| and |new|; 0 for equal elements,
        two NaN among them, and infinity where one of two is not finite.
    """
    one, two = np.asarray(old, np.float64), np.asarray(new, np.float64)
    equal = (one == two) | (np.isnan(one) & np.isnan(two))
    finite = np.isfinite(one) & np.isfinite(two)
    safe = finite & ~equal
    absolute = np.where(equal, 0.0, np.inf)
    relative = absolute.copy()
    # Halved, so that the difference of two huge numbers stays finite.
    half = np.abs(np.where(safe, two, 0) / 2 - np.where(safe, one, 0) / 2)
    scale = np.where(safe, np.maximum(np.abs(one), np.abs(two)), 1)
    with np.errstate(over="ignore"):
        absolute = np.where(safe, 2 * half, absolute)
    relative = np.where(safe, 2 * (half / scale), relative)
    return absolute, relative


def largest_differences(
    found: Sequence[Difference], units: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Sum up what differs by variable.

    Args:
        found: differences of nodes.
        units: per variable.

    Returns:
        `variable`, `units`, `nodes`, `absolute`, `relative` and `at`, the variable that
        differs most first.
    """
    by_name: dict[str, list[Difference]] = defaultdict(list)
    for one in found:
        by_name[one.variable].append(one)
    rows = []
    for name, several in by_name.items():
        worst = max(several, key=lambda one: one.absolute)
        rows.append(
            {
                "variable": name,
                "units": units.get(name, "1"),
                "nodes": len(several),
                "absolute": worst.absolute,
                "relative": max(one.relative for one in several),
                "at": dict(worst.at),
            }
        )
    return sorted(rows, key=lambda row: (-row["relative"], row["variable"]))


def compare_rows(before: Sequence[Row], after: Sequence[Row]) -> list[dict[str, Any]]:
    """Compare the rows of a table, number by number.

    Args:
        before: records; what is neither a number with a fraction nor a count tells
            the rows apart.
        after: records of the same table later.

    Returns:
        `labels`, `statistic`, `old`, `new`, `difference`, `relative`, and of a mean
        `standard_errors`, what differs most first; None stands for a row that is not
        there.
    """
    old, new = _keyed(before), _keyed(after)
    found = [
        one
        for key in {**old, **new}
        for one in _cells(dict(key), old.get(key, {}), new.get(key, {}))
        if one["relative"] > 0
    ]
    return sorted(found, key=_size)


def _keyed(rows: Sequence[Row]) -> dict[tuple[tuple[str, Any], ...], Row]:
    found: dict[tuple[tuple[str, Any], ...], Row] = {}
    for row in rows:
        numbers = {name: value for name, value in row.items() if _is_number(name, row)}
        labels = {name: row[name] for name in row if name not in numbers}
        labels.pop("status", None)
        found[tuple(labels.items())] = numbers
    return found


def _is_number(name: str, row: Row) -> bool:
    value = row[name]
    # Labels stand before the status, whatever their type.
    is_label = list(row).index(name) < list(row).index("status")
    return not is_label and isinstance(value, int | float)


def _cells(labels: Row, old: Row, new: Row) -> Iterator[dict[str, Any]]:
    for name in [*old, *(other for other in new if other not in old)]:
        before, after = old.get(name), new.get(name)
        cell = {"labels": labels, "statistic": name, "old": before, "new": after}
        if before is None or after is None:
            yield cell | {"difference": None, "relative": math.inf}
            continue
        _, relative = elementwise_differences(np.array(before), np.array(after))
        errors = _in_errors(name, old, new)
        told = {} if errors is None else {"standard_errors": errors}
        difference = after - before
        yield cell | {"difference": difference, "relative": float(relative), **told}


def _in_errors(name: str, old: Row, new: Row) -> float | None:
    """Return a difference of means over the standard error of that difference."""
    if name != "mean" or not all(
        isinstance(row.get("sem"), float) for row in (old, new)
    ):
        return None
    error = math.hypot(old["sem"], new["sem"])
    is_known = math.isfinite(error) and error > 0
    return (new[name] - old[name]) / error if is_known else None


def _size(row: Row) -> tuple[float, float]:
    errors = row.get("standard_errors")
    known = errors is not None and not math.isnan(errors)
    return (-abs(errors) if known and errors is not None else 0.0, -row["relative"])
