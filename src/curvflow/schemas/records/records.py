"""Results as flat records, and their timing variables.

Times differ between equal computations, so receipts alone hold them: no digest, key,
table, figure or comparison of runs does.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from curvflow.schemas.kind import Kind, Variable
from curvflow.schemas.nodes import Array, Label
from curvflow.schemas.records.receipts import Receipt

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
    """Return results as records: one per node, and one per element of its arrays."""
    # A node's scalars form one record. Variables that share dimensions form one
    # record per element, with each dimension's coordinate, or else its index. A
    # node without any wanted variable keeps one record with its status.
    chosen = [v for v in outputs if _wanted(v, variables, series)]
    rows: list[Record] = []
    for coords, status, arrays in nodes:
        head = {**coords, "status": status}
        elements = [
            {**head, **element}
            for dims, names in _groups(chosen, arrays).items()
            for element in _elements(dims, names, arrays)
        ]
        rows += elements or [head]
    return rows


def _wanted(v: Variable, names: Sequence[str] | None, series: bool) -> bool:
    if names is not None:
        return v.name in names
    return v.tabular or (series and not (v.bulk or v.file))


def _groups(
    chosen: Sequence[Variable], arrays: Mapping[str, Array]
) -> dict[Dims, list[str]]:
    """Return variables by their dimensions, single values first."""
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


SECONDS = "seconds"


def time_variables(kind: Kind, axes: Collection[str] = ()) -> list[Variable]:
    """Return the timing variables of a kind, without names its results use."""
    variables = [
        Variable(
            SECONDS,
            "share of the time of the tile that computed the node",
            units="s",
        )
    ]
    if kind.continues is not None:
        many = kind.continues.param
        unit = many.removesuffix("s")
        variables.append(
            Variable(
                f"{SECONDS}_per_{unit}",
                f"seconds over the {many} computed in them{_begun(kind)}; NaN where "
                "the receipt does not know these, and for what diverged",
                units=f"s / {unit}",
            )
        )
    taken = {*axes, *(name for v in kind.outputs for name in (v.name, *v.dims))}
    return [variable for variable in variables if variable.name not in taken]


def _begun(kind: Kind) -> str:
    """Return the description of costs that a first run has in addition."""
    has_beginning = kind.output("calibration_equivalents") is not None
    return ", calibration and burn-in of a first run included" if has_beginning else ""


def time_of(receipt: Receipt, variable: Variable) -> float:
    """Return one of `time_variables` of a receipt; NaN if it is unknown."""
    if variable.name == SECONDS:
        return receipt.seconds
    # A member that diverged has a share of the time of those that went on.
    if receipt.status != "ok" or not receipt.covered:
        return math.nan
    return receipt.seconds / receipt.covered
