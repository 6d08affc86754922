"""Measured variables among the results of several stages, and their elements."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product

import numpy as np

from curvflow.errors import InputError, nearest
from curvflow.schemas.kind import Variable
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.shared.tables import CONVERGED, COUNTS, Unconverged
from curvflow.schemas.nodes import Array, Label, NodeData


@dataclass(frozen=True)
class Measured:
    """One variable over the nodes of the stage that measures it.

    Attributes:
        variable: its declaration.
        nodes: the stage's nodes, each once, in the order of the study's axes.
    """

    variable: Variable
    nodes: Sequence[NodeData]

    @property
    def stage(self) -> str:
        """Name of the stage."""
        return self.nodes[0].stage

    @property
    def ok(self) -> list[NodeData]:
        """The nodes that did not diverge."""
        return [node for node in self.nodes if node.status == "ok"]

    @property
    def diverged(self) -> list[NodeData]:
        """The nodes that did."""
        return [node for node in self.nodes if node.status == "diverged"]


def measured(
    nodes: Iterable[NodeData], names: Collection[str] | None = None
) -> Iterator[Measured]:
    """Yield every variable that the stages of these nodes declare, stage by stage.

    Args:
        nodes: results of one or several stages; a repeated one counts once.
        names: variables asked for, which are there even if every node diverged.

    Yields:
        The variables in the order declared. One that some results lack has the nodes
        that hold it, and those that diverged.
    """
    stages: dict[str, dict[tuple[tuple[str, Label], ...], NodeData]] = {}
    for node in nodes:
        stages.setdefault(node.stage, {})[tuple(node.coords.items())] = node
    for unique in stages.values():
        once = list(unique.values())
        asked = names or () if all(n.status == "diverged" for n in once) else ()
        for variable in find_kind(once[0].kind).outputs:
            name, is_sure = variable.name, not variable.optional
            if is_sure or name in asked or any(name in node for node in once):
                # What diverged holds nothing, and is counted all the same.
                yield Measured(
                    variable,
                    [n for n in once if is_sure or name in n or n.status == "diverged"],
                )


def find_measured(field: str, name: str, nodes: Iterable[NodeData]) -> Measured:
    """Return the one variable of this name.

    Args:
        field: the parameter that names it, for messages.
        name: the variable.
        nodes: results of one or several stages.

    Returns:
        The variable with its nodes.

    Raises:
        InputError: no stage has a number of this name, or several have.
    """
    numbers = [one for one in measured(nodes, [name]) if is_number(one.variable)]
    found = [one for one in numbers if one.variable.name == name]
    if not found:
        known = nearest(name, {one.variable.name for one in numbers})
        raise InputError(
            f"{field}: expected a measured variable, got '{name}'. {known}"
        )
    if len(found) > 1:
        stages = " and ".join(one.stage for one in found)
        raise InputError(
            f"{field}: expected a variable of one stage, got '{name}' of {stages}. "
            "Name only one of them in `of`."
        )
    return found[0]


def doubtful(node: NodeData, variable: Variable) -> Array:
    """Return which elements of a variable its node says are not converged.

    Args:
        node: holds the variable.
        variable: its declaration.

    Returns:
        Booleans in the variable's shape; false throughout if nothing judges it.
    """
    shape = node[variable.name].shape
    verdict = node.arrays.get(variable.judged_by or "")
    if verdict is None:
        return np.zeros(shape, dtype=bool)
    good = verdict if verdict.dtype == bool else np.asarray(verdict == CONVERGED)
    return np.broadcast_to(~good, shape)


def is_unconverged(node: NodeData, variable: Variable) -> bool:
    """Return whether a node that did not diverge is in doubt of any element."""
    return node.status == "ok" and bool(doubtful(node, variable).any())


def relied_on(nodes: Sequence[NodeData], how: Unconverged) -> Sequence[NodeData]:
    """Return results to take statistics of.

    Args:
        nodes: results of one or several stages.
        how: `count` for all as they are; `exclude` to hold NaN in place of values that
            are not converged, whose verdicts stay to be counted.

    Returns:
        The results, in their order.
    """
    return nodes if how == "count" else [_without_unconverged(node) for node in nodes]


def _without_unconverged(node: NodeData) -> NodeData:
    blank = {
        variable.name: np.where(doubtful(node, variable), np.nan, node[variable.name])
        for variable in find_kind(node.kind).outputs
        if variable.name in node and is_unconverged(node, variable)
    }
    return replace(node, arrays={**node.arrays, **blank}) if blank else node


def judged(of: Iterable[Measured], table: Mapping[str, Array]) -> dict[str, Array]:
    """Return a table, without counts of what is not converged if nothing is judged.

    Args:
        of: the variables it is of.
        table: its columns.

    Returns:
        The columns, all of them if a variable has a verdict.
    """
    is_judged = any(one.variable.judged_by for one in of)
    return {n: v for n, v in table.items() if is_judged or n not in COUNTS}


def is_number(variable: Variable) -> bool:
    """Return whether a variable holds numbers or booleans, not text or a file."""
    return variable.dtype != "str" and variable.file is None


def dim_labels(node: NodeData, dim: str, size: int) -> list[Label]:
    """Return the coordinate along a dimension within a node, else 0, 1, 2, ...

    Args:
        node: holds the coordinate, if there is one.
        dim: the dimension.
        size: its length.

    Returns:
        One label per index.
    """
    coordinate = node.arrays.get(dim)
    if coordinate is None or coordinate.shape != (size,):
        return list(range(size))
    return [item.item() for item in coordinate]


def spread(
    node: NodeData, variable: Variable, along: Sequence[str | None]
) -> tuple[list[list[Label]], Array]:
    """Lay one node's variable out along axes and its own dimensions.

    Args:
        node: holds the variable.
        variable: its declaration; each of its dimensions must be in `along`.
        along: dimensions within the node, axes of the study, or None for a single row.

    Returns:
        Per entry of `along` its labels, and the values as float64, shape their counts.
    """
    array = np.asarray(node[variable.name], dtype=np.float64)
    inner = [dim for dim in along if dim in variable.dims]
    array = array.transpose([variable.dims.index(dim) for dim in inner])
    sizes = dict(zip(inner, array.shape, strict=True))
    labels: list[list[Label]] = []
    for dim in along:
        if dim in sizes:
            labels.append(dim_labels(node, dim, sizes[dim]))
        else:
            labels.append([node.coords[dim] if dim is not None else ""])
    return labels, array.reshape([len(some) for some in labels])


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
