"""Independent routes to one quantity, compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import numpy as np

from curvflow.errors import InputError, nearest
from curvflow.schemas.kinds.probes.crosscheck import CrosscheckParams
from curvflow.schemas.nodes import Array, Member, NodeData, Outcome
from curvflow.tasks.agreement import Agreement, Route, agreement
from curvflow.tasks.registry import Machine, computes_each


@computes_each("probe.crosscheck")
def crosscheck(member: Member, machine: Machine) -> Outcome:
    """Compare all routes to a quantity by z-scores.

    Args:
        member: the stages that hold the quantity, and what is stated.
        machine: not used.

    Returns:
        Values, errors and deviations of all routes, and whether they agree.

    Raises:
        InputError: there are fewer than two routes, a stage named is not taken, or one
            has no such variable.
    """
    params = cast("CrosscheckParams", member.params)
    nodes = {node.stage: node for node in member.inputs["of"]}
    if lost := [node for node in nodes.values() if node.status == "diverged"]:
        return Outcome({}, "diverged", f"{lost[0].stage}: {lost[0].reason}")
    routes = list(_routes(nodes, params))
    if len(routes) < 2:
        raise InputError(
            f"of: expected two routes to {params.quantity} or more, got "
            f"{len(routes)}. Name further stages, or state a value."
        )
    found = agreement(routes, confidence=params.confidence, rounding=params.rounding)
    return Outcome(_arrays(routes, found))


def _arrays(routes: Sequence[Route], found: Agreement) -> Mapping[str, Array]:
    most_R = np.where(found.judged, np.abs(found.z), -1.0).argmax(axis=1)
    largest = np.abs(found.z[found.judged])
    seen = found.resolution[np.isfinite(found.resolution)]
    return {
        "route": np.array([route.name for route in routes]),
        "route_value": np.array([route.value for route in routes], dtype=np.float64),
        "route_sem": np.array([route.sem for route in routes], dtype=np.float64),
        "z": found.z[np.arange(len(routes)), most_R],
        "pair_z": found.z,
        "largest_z": np.array(largest.max() if largest.size else np.nan),
        "limit": np.array(found.limit),
        "resolution": np.array(seen.max() if seen.size else np.nan),
        "consistent": np.array(found.consistent),
    }


def _routes(nodes: Mapping[str, NodeData], params: CrosscheckParams) -> Iterator[Route]:
    _check_names(nodes, params)
    summed = {stage for stages in params.sums.values() for stage in stages}
    for stage, node in nodes.items():
        if stage not in summed:
            name = params.variables.get(stage, params.quantity)
            yield _of_node(node, params)
            if f"layer_{name}" in node:
                yield _of_layers(node, params)
    for name, stages in params.sums.items():
        yield _sum(name, [_of_node(nodes[stage], params) for stage in stages])
    for name, stated in params.stated.items():
        yield Route(name, stated.value, stated.sem)


def _check_names(nodes: Mapping[str, NodeData], params: CrosscheckParams) -> None:
    for stages in (params.variables, params.draws, *params.sums.values()):
        for stage in stages:
            if stage not in nodes:
                raise InputError(
                    f"of: expected every stage named elsewhere, got none of {stage}. "
                    f"{nearest(stage, nodes)}"
                )


def _of_node(node: NodeData, params: CrosscheckParams) -> Route:
    name = params.variables.get(node.stage, params.quantity)
    if name not in node or node[name].shape != ():
        numbers = [key for key, array in node.arrays.items() if array.shape == ()]
        raise InputError(
            f"quantity: expected a single number of {node.stage}, got {name}. "
            f"{nearest(name, numbers)}"
        )
    sem = float(node[f"{name}_sem"]) if f"{name}_sem" in node else 0.0
    draws = params.draws.get(node.stage)
    if "num_draws" in node:
        draws = int(node["num_draws"])
    return Route(node.stage, float(node[name]), sem, draws if sem else None)


def _of_layers(node: NodeData, params: CrosscheckParams) -> Route:
    """Return the sum over layers: of the same draws, so of the same error."""
    whole = _of_node(node, params)
    name = params.variables.get(node.stage, params.quantity)
    total = float(node[f"layer_{name}"].sum())
    return Route(f"{node.stage} by layer", total, whole.sem, whole.draws)


def _sum(name: str, parts: Sequence[Route]) -> Route:
    """Add routes, and their errors: equal seeds may make these fully correlated."""
    draws = [part.draws for part in parts if part.draws is not None]
    value, sem = sum(part.value for part in parts), sum(part.sem for part in parts)
    return Route(name, value, sem, min(draws) if draws else None)
