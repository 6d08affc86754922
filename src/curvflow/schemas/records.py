"""Results as flat records, for JSON, CSV and tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from curvflow.schemas.nodes import Array, Label
from curvflow.schemas.variables import Variable

Record = dict[str, Any]
Dims = tuple[str, ...]
NodeResult = tuple[Mapping[str, Label], str, Mapping[str, Array]]


def records(
    nodes: Sequence[NodeResult],
    outputs: Sequence[Variable],
    *,
    variables: Sequence[str] | None = None,
    series: bool = False,
) -> list[Record]:
    """Write results as one record per node, and one per element of its arrays.

    A node's single values form one record. Variables that share dimensions form one
    record per element, which bears each dimension's coordinate, or else its index. A
    node that has nothing of what is wanted keeps one record that says its status.

    Args:
        nodes: axis labels, status, and arrays by name.
        outputs: the declared variables.
        variables: those wanted; all that tables hold by default.
        series: take series too.

    Returns:
        Records with the fields axes, `status`, dimensions, variables, in this order;
        values are plain Python.
    """
    chosen = [v for v in outputs if _wanted(v, variables, series)]
    rows: list[Record] = []
    for coords, status, arrays in nodes:
        head = {**coords, "status": status}
        own = [
            {**head, **element}
            for dims, names in _groups(chosen, arrays).items()
            for element in _elements(dims, names, arrays)
        ]
        rows += own or [head]
    return rows


def _wanted(v: Variable, names: Sequence[str] | None, series: bool) -> bool:
    if names is not None:
        return v.name in names
    return v.tabular or (series and not (v.bulk or v.file))


def _groups(
    chosen: Sequence[Variable], arrays: Mapping[str, Array]
) -> dict[Dims, list[str]]:
    """Return the variables by their dimensions, single values first."""
    groups: dict[Dims, list[str]] = defaultdict(list)
    for variable in sorted(chosen, key=lambda v: bool(v.dims)):
        if variable.name in arrays:
            dims = _dims(variable, arrays[variable.name].ndim)
            groups[dims].append(variable.name)
    # A coordinate is a field of every record along it, so needs none of its own.
    used = {dim for dims, names in groups.items() if (*names,) != dims for dim in dims}
    return {
        dims: names
        for dims, names in groups.items()
        if (*names,) != dims or dims[0] not in used
    }


def _dims(variable: Variable, ndim: int) -> Dims:
    # Dimensions that `...` stands for are named by their position.
    named = tuple(dim for dim in variable.dims if dim != "...")
    return named + tuple(f"dim_{number}" for number in range(len(named), ndim))


def _elements(
    dims: Dims, names: Sequence[str], arrays: Mapping[str, Array]
) -> Iterator[Record]:
    shape = arrays[names[0]].shape
    labels = [_labels(dim, size, arrays) for dim, size in zip(dims, shape, strict=True)]
    for index in np.ndindex(shape):
        place = {d: labels[axis][index[axis]] for axis, d in enumerate(dims)}
        yield place | {n: _plain(arrays[n][index]) for n in names if n not in place}


def _labels(dim: str, size: int, arrays: Mapping[str, Array]) -> list[Any]:
    coordinate = arrays.get(dim)
    if coordinate is None or coordinate.shape != (size,):
        return list(range(size))
    return [_plain(item) for item in coordinate]


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic | np.ndarray) else value
