"""The numbers that aggregates take of nodes, element by element."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, product

import numpy as np

from curvflow.errors import InputError, nearest
from curvflow.schemas.nodes import Array, NodeData
from curvflow.schemas.variables import Variable
from curvflow.tasks.measurements import (
    Measured,
    dim_labels,
    doubtful,
    is_number,
    measured,
)


def chosen(nodes: Sequence[NodeData], names: Sequence[str] | None) -> list[Measured]:
    """Return the numbers of some names.

    Args:
        nodes: results of one or several stages.
        names: of variables; None for all that tables hold.

    Returns:
        The variables, stage by stage, in the order declared.

    Raises:
        InputError: a name is no number's, or there is none at all.
    """
    numbers = [one for one in measured(nodes, names) if is_number(one.variable)]
    if names is None:  # coordinates such as ranks are no quantities
        variables = [(one, one.variable) for one in numbers]
        tabular = [one for one, v in variables if v.tabular and v.dims != (v.name,)]
        if not tabular:
            raise InputError(
                "of: expected stages with numbers in their tables, got none. "
                "Name the variables wanted under `quantities`."
            )
        return tabular
    known_names = {one.variable.name for one in numbers}
    for name in names:
        if name not in known_names:
            raise InputError(
                f"quantities: expected measured variables, got '{name}'. "
                f"{nearest(name, known_names)}"
            )
    return [one for one in numbers if one.variable.name in names]


@dataclass(frozen=True)
class Elements:
    """The E elements of a variable at the N nodes that did not diverge.

    Attributes:
        names: of the elements.
        values: shape (N, E), NaN where a node lacks one.
        present: shape (N, E), where they are there.
        doubtful: shape (N, E), where they are there and not converged.
    """

    names: Sequence[str]
    values: Array
    present: Array
    doubtful: Array


def matrix(one: Measured) -> Elements:
    """Set nodes against elements, which need not be the same at every node."""
    elements = [list(_elements(node, one.variable)) for node in one.ok]
    # A diverged node names its elements too, so that a table keeps its rows.
    further = [_elements(node, one.variable) for node in one.diverged]
    names = list(dict.fromkeys(chain(*elements, *further))) or [one.variable.name]
    column = {name: number for number, name in enumerate(names)}
    values_NE = np.full((len(elements), len(names)), np.nan)
    present_NE, doubtful_NE = np.zeros((2, *values_NE.shape), dtype=bool)
    for row, (node, own) in enumerate(zip(one.ok, elements, strict=True)):
        where = [column[name] for name in own]
        values_NE[row, where] = node[one.variable.name].ravel()
        present_NE[row, where] = True
        doubtful_NE[row, where] = doubtful(node, one.variable).ravel()
    return Elements(names, values_NE, present_NE, doubtful_NE)


def _elements(node: NodeData, variable: Variable) -> Iterator[str]:
    """Yield each element's name: by labels that tell them apart, else by number."""
    array = node.arrays.get(variable.name)
    if array is None:
        return
    ranges = []
    for position, size in enumerate(array.shape):
        # Dimensions that `...` stands for have no name and so no labels.
        dim = variable.dims[position] if position < len(variable.dims) else ""
        labels = dim_labels(node, dim, size)
        is_distinct = len(set(labels)) == size
        ranges.append(labels if is_distinct else range(size))
    for element in product(*ranges):
        inside = ",".join(map(str, element))
        yield f"{variable.name}[{inside}]" if element else variable.name
