"""Measured variables of the results of stages, their elements and verdicts."""

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
class Measurement:
    """One variable over the nodes of the stage that measures it.

    Attributes:
        variable: declaration of the variable.
        nodes: nodes of the stage, each once, in the order of the study's axes.
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
        """The nodes that diverged."""
        return [node for node in self.nodes if node.status == "diverged"]


def measurements(
    nodes: Iterable[NodeData], names: Collection[str] | None = None
) -> Iterator[Measurement]:
    """Yield every variable that the stages of these nodes declare, stage by stage.

    Args:
        nodes: results of one or several stages; repeated nodes count once.
        names: requested variables, which are yielded even if every node diverged.

    Yields:
        The variables in the order declared. An optional variable has the nodes that
        hold it, and those that diverged.
    """
    stages: dict[str, dict[tuple[tuple[str, Label], ...], NodeData]] = {}
    for node in nodes:
        stages.setdefault(node.stage, {})[tuple(node.coords.items())] = node
    for unique in stages.values():
        nodes = list(unique.values())
        requested = names or () if all(n.status == "diverged" for n in nodes) else ()
        for variable in find_kind(nodes[0].kind).outputs:
            name, is_required = variable.name, not variable.optional
            if is_required or name in requested or any(name in node for node in nodes):
                # A diverged node holds no variable but is counted.
                yield Measurement(
                    variable,
                    [
                        n
                        for n in nodes
                        if is_required or name in n or n.status == "diverged"
                    ],
                )


def find_measurement(field: str, name: str, nodes: Iterable[NodeData]) -> Measurement:
    """Return the numeric variable of a name.

    Args:
        field: the parameter that names it, for messages.
        name: name of the variable.
        nodes: results of one or several stages.

    Returns:
        The variable with its nodes.

    Raises:
        InputError: no stage has a number of this name, or several stages have it.
    """
    numbers = [m for m in measurements(nodes, [name]) if is_number(m.variable)]
    matches = [m for m in numbers if m.variable.name == name]
    if not matches:
        known = nearest(name, {m.variable.name for m in numbers})
        raise InputError(
            f"{field}: expected a measured variable, got '{name}'. {known}"
        )
    if len(matches) > 1:
        stages = " and ".join(m.stage for m in matches)
        raise InputError(
            f"{field}: expected a variable of one stage, got '{name}' of {stages}. "
            "Name only one of them in `of`."
        )
    return matches[0]


def unconverged_mask(node: NodeData, variable: Variable) -> Array:
    """Return a mask of the elements of a variable that are not converged.

    Args:
        node: node that holds the variable.
        variable: declaration of the variable.

    Returns:
        Booleans in the variable's shape; all false if the variable has no verdict.
    """
    shape = node[variable.name].shape
    verdict = node.arrays.get(variable.judged_by or "")
    if verdict is None:
        return np.zeros(shape, dtype=bool)
    good = verdict if verdict.dtype == bool else np.asarray(verdict == CONVERGED)
    return np.broadcast_to(~good, shape)


def is_unconverged(node: NodeData, variable: Variable) -> bool:
    """Return whether a node that did not diverge has an unconverged element."""
    return node.status == "ok" and bool(unconverged_mask(node, variable).any())


def mask_unconverged(
    nodes: Sequence[NodeData], unconverged: Unconverged
) -> Sequence[NodeData]:
    """Replace unconverged values by NaN, if statistics exclude them.

    Args:
        nodes: results of one or several stages.
        unconverged: `count` leaves all values; `exclude` replaces those that are not
            converged by NaN, and keeps their verdicts for the counts.

    Returns:
        The results, in their order.
    """
    return (
        nodes
        if unconverged == "count"
        else [_without_unconverged(node) for node in nodes]
    )


def _without_unconverged(node: NodeData) -> NodeData:
    masked = {
        variable.name: np.where(
            unconverged_mask(node, variable), np.nan, node[variable.name]
        )
        for variable in find_kind(node.kind).outputs
        if variable.name in node and is_unconverged(node, variable)
    }
    return replace(node, arrays={**node.arrays, **masked}) if masked else node


def doubts(measurement: Measurement) -> Measurement:
    """Return the variable with 1 where it is not converged, and 0 elsewhere.

    Args:
        measurement: the variable and its nodes.

    Returns:
        The same nodes, in their order.
    """
    variable = measurement.variable
    nodes = [
        node
        if node.status != "ok"
        else replace(
            node,
            arrays={
                **node.arrays,
                variable.name: unconverged_mask(node, variable).astype(np.float64),
            },
        )
        for node in measurement.nodes
    ]
    return Measurement(variable, nodes)


def without_doubtful(measurement: Measurement, unconverged: str) -> Measurement:
    """Return the variable as it is, or NaN where it is not converged on `exclude`."""
    how: Unconverged = "exclude" if unconverged == "exclude" else "count"
    nodes = mask_unconverged(measurement.nodes, how)
    return Measurement(measurement.variable, nodes)


def drop_unjudged_counts(
    measurements: Iterable[Measurement], table: Mapping[str, Array]
) -> dict[str, Array]:
    """Drop the counts of unconverged values from a table without verdicts.

    Args:
        measurements: variables of the table.
        table: columns of the table.

    Returns:
        The columns; all of them if a variable has a verdict.
    """
    is_judged = any(m.variable.judged_by for m in measurements)
    return {n: v for n, v in table.items() if is_judged or n not in COUNTS}


def is_number(variable: Variable) -> bool:
    """Return whether a variable holds numbers or booleans, not text or a file."""
    return variable.dtype != "str" and variable.file is None


def dim_labels(node: NodeData, dim: str, size: int) -> list[Label]:
    """Return the coordinate along a dimension within a node, else 0, 1, 2, ...

    Args:
        node: node that may hold the coordinate.
        dim: the dimension.
        size: length of the dimension.

    Returns:
        A label per index.
    """
    coordinate = node.arrays.get(dim)
    if coordinate is None or coordinate.shape != (size,):
        return list(range(size))
    return [item.item() for item in coordinate]


def values_along(
    node: NodeData, variable: Variable, along: Sequence[str | None]
) -> tuple[list[list[Label]], Array]:
    """Arrange one node's variable along axes and dimensions.

    Args:
        node: node that holds the variable.
        variable: declaration; each of its dimensions must be in `along`.
        along: dimensions within the node, axes of the study, or None for a single row.

    Returns:
        Labels of each entry of `along`, and the values as float64, in the shape of
        their counts.
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
    return labels, array.reshape([len(axis_labels) for axis_labels in labels])


def select_measurements(
    nodes: Sequence[NodeData], names: Sequence[str] | None
) -> list[Measurement]:
    """Return the numeric variables of the given names.

    Args:
        nodes: results of one or several stages.
        names: names of variables; None for all that tables hold.

    Returns:
        The variables, stage by stage, in the order declared.

    Raises:
        InputError: a name is not that of a number, or there are no numbers.
    """
    numbers = [m for m in measurements(nodes, names) if is_number(m.variable)]
    if names is None:  # coordinates such as ranks are not quantities
        variables = [(m, m.variable) for m in numbers]
        tabular = [m for m, v in variables if v.tabular and v.dims != (v.name,)]
        if not tabular:
            raise InputError(
                "of: expected stages with numbers in their tables, got none. "
                "Name variables under `quantities`."
            )
        return tabular
    known_names = {m.variable.name for m in numbers}
    for name in names:
        if name not in known_names:
            raise InputError(
                f"quantities: expected measured variables, got '{name}'. "
                f"{nearest(name, known_names)}"
            )
    return [m for m in numbers if m.variable.name in names]


@dataclass(frozen=True)
class Elements:
    """The E elements of a variable at the N nodes that did not diverge.

    Attributes:
        names: names of the elements.
        values: shape (N, E), NaN where a node lacks an element.
        present: shape (N, E), true where a node has an element.
        unconverged: shape (N, E), true where an element is not converged.
    """

    names: Sequence[str]
    values: Array
    present: Array
    unconverged: Array


def element_matrix(measurement: Measurement) -> Elements:
    """Return nodes against elements, which may differ from node to node."""
    elements = [list(_elements(node, measurement.variable)) for node in measurement.ok]
    # A diverged node names its elements too, so that a table keeps its rows.
    further = [_elements(node, measurement.variable) for node in measurement.diverged]
    names = list(dict.fromkeys(chain(*elements, *further))) or [
        measurement.variable.name
    ]
    column = {name: number for number, name in enumerate(names)}
    values_NE = np.full((len(elements), len(names)), np.nan)
    present_NE, unconverged_NE = np.zeros((2, *values_NE.shape), dtype=bool)
    for row, (node, element_names) in enumerate(
        zip(measurement.ok, elements, strict=True)
    ):
        columns = [column[name] for name in element_names]
        values_NE[row, columns] = node[measurement.variable.name].ravel()
        present_NE[row, columns] = True
        unconverged_NE[row, columns] = unconverged_mask(
            node, measurement.variable
        ).ravel()
    return Elements(names, values_NE, present_NE, unconverged_NE)


def _elements(node: NodeData, variable: Variable) -> Iterator[str]:
    """Yield each element's name, by its labels if they are distinct, else by number."""
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
