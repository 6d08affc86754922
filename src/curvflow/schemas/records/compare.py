"""Comparison of numbers before and after: differences of arrays and tables."""

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
    """Difference of one variable of one node between two runs.

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
    """Yield the difference of each numeric variable of one node that has one."""
    for name in sorted(before.keys() | after.keys()):
        before_array, after_array = before.get(name), after.get(name)
        if (
            before_array is None
            or after_array is None
            or before_array.shape != after_array.shape
        ):
            yield Difference(name, at, math.inf, math.inf)
        elif before_array.dtype.kind in "biuf" and after_array.dtype.kind in "biuf":
            difference, relative = elementwise_differences(before_array, after_array)
            if difference.size and difference.max() > 0:
                absolute = float(difference.max())
                yield Difference(name, at, absolute, float(relative.max()))


def elementwise_differences(old: Array, new: Array) -> tuple[Array, Array]:
    """Return |new - old|, and that over max(|old|, |new|), element by element."""
    before, after = np.asarray(old, np.float64), np.asarray(new, np.float64)
    # Equal elements differ by 0, two NaN too; one non-finite value differs by infinity.
    equal = (before == after) | (np.isnan(before) & np.isnan(after))
    finite = np.isfinite(before) & np.isfinite(after)
    safe = finite & ~equal
    otherwise = np.where(equal, 0.0, np.inf)
    left, right = np.where(safe, before, 0), np.where(safe, after, 0)
    scale = np.where(safe, np.maximum(np.abs(before), np.abs(after)), 1)
    with np.errstate(over="ignore"):
        apart = np.abs(right - left)
    # Of two huge numbers, whose difference is no number; tiny ones have no half.
    halved = 2 * (np.abs(right / 2 - left / 2) / scale)
    relative = np.where(np.isfinite(apart), apart / scale, halved)
    return np.where(safe, apart, otherwise), np.where(safe, relative, otherwise)


def largest_differences(
    differences: Sequence[Difference], units: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return one row per variable with its largest differences, largest first."""
    by_name: dict[str, list[Difference]] = defaultdict(list)
    for difference in differences:
        by_name[difference.variable].append(difference)
    rows = []
    for name, several in by_name.items():
        worst = max(several, key=lambda difference: difference.absolute)
        rows.append(
            {
                "variable": name,
                "units": units.get(name, "1"),
                "nodes": len(several),
                "absolute": worst.absolute,
                "relative": max(difference.relative for difference in several),
                "at": dict(worst.at),
            }
        )
    return sorted(rows, key=lambda row: (-row["relative"], row["variable"]))


def compare_rows(before: Sequence[Row], after: Sequence[Row]) -> list[dict[str, Any]]:
    """Compare the numbers of a table, largest differences first; None is missing."""
    old, new = _keyed(before), _keyed(after)
    cells = [
        cell
        for key in {**old, **new}
        for cell in _cells(dict(key), old.get(key, {}), new.get(key, {}))
        if cell["relative"] > 0
    ]
    return sorted(cells, key=_size)


def _keyed(rows: Sequence[Row]) -> dict[tuple[tuple[str, Any], ...], Row]:
    rows_by_labels: dict[tuple[tuple[str, Any], ...], Row] = {}
    for row in rows:
        numbers = {name: value for name, value in row.items() if _is_number(name, row)}
        labels = {name: row[name] for name in row if name not in numbers}
        labels.pop("status", None)
        rows_by_labels[tuple(labels.items())] = numbers
    return rows_by_labels


def _is_number(name: str, row: Row) -> bool:
    value = row[name]
    # Labels come before the status, whatever their type.
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
        extra = {} if errors is None else {"standard_errors": errors}
        difference = after - before
        yield cell | {"difference": difference, "relative": float(relative), **extra}


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
