"""Cross-check of independent routes to one quantity by z-scores.

Letters: R routes to the quantity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from scipy.special import ndtri, stdtr, stdtrit

from curvflow.errors import InputError, nearest
from curvflow.schemas.kinds.probes.crosscheck import CrosscheckParams
from curvflow.schemas.nodes import Array, Member, NodeData, Outcome
from curvflow.tasks.registry import Machine, computes_each


@dataclass(frozen=True)
class Route:
    """One estimate of a quantity.

    Attributes:
        name: name of the route.
        value: the estimate.
        sem: standard error of the estimate; 0 if it is exact.
        draws: number of draws behind the standard error; None if it is known.
    """

    name: str
    value: float
    sem: float = 0.0
    draws: int | None = None


@dataclass(frozen=True)
class Agreement:
    """Deviations of all pairs of routes.

    Attributes:
        z: difference of each pair as a normal deviate of the same tail, (R, R); NaN on
            the diagonal and where an error is unknown.
        limit: the |z| beyond which a pair disagrees.
        resolution: least detectable difference of each pair, relative to the larger
            value, (R, R).
    """

    z: Array
    limit: float
    resolution: Array

    @property
    def judged(self) -> Array:
        """Mask of the pairs that can be compared, (R, R)."""
        return np.isfinite(self.z)

    @property
    def consistent(self) -> bool:
        """True if all pairs can be compared and none disagrees."""
        off_diagonal = ~np.eye(len(self.z), dtype=bool)
        return bool(
            self.judged[off_diagonal].all() and self.z[off_diagonal].max() <= self.limit
        )


def agreement(
    routes: Sequence[Route], *, confidence: float, rounding: float
) -> Agreement:
    """Compare all pairs of routes.

    Errors from few draws have Student's heavier tails, with Welch's degrees of freedom.
    By Bonferroni's bound, correct routes agree in all pairs with the given confidence.

    Args:
        routes: R routes.
        confidence: probability that correct routes are reported as consistent.
        rounding: error of every route relative to the larger value of a pair, for
            truncation and rounding, which estimates do not state.

    Returns:
        Deviates of all pairs and the least detectable differences.

    Reference:
        Welch (1947), doi:10.1093/biomet/34.1-2.28, for the degrees of freedom.
    """
    value_R = np.array([route.value for route in routes])
    sem_R = np.array([route.sem for route in routes])
    # Every route agrees with one of infinite error: nothing is known of it.
    square_R = np.where(np.isinf(sem_R), np.nan, sem_R) ** 2
    freedom_R = np.array([np.inf if r.draws is None else r.draws - 1 for r in routes])
    scale_RR = np.maximum.outer(np.abs(value_R), np.abs(value_R))
    pairs = max(1, len(routes) * (len(routes) - 1) // 2)
    tail = (1 - confidence) / (2 * pairs)
    with np.errstate(divide="ignore", invalid="ignore"):
        sum_RR = np.add.outer(square_R, square_R)
        fourth_R = square_R**2 / freedom_R
        freedom_RR = sum_RR**2 / np.add.outer(fourth_R, fourth_R)
        freedom_RR = np.where(np.isnan(freedom_RR), np.inf, freedom_RR)
        half_RR = np.sqrt(sum_RR + (rounding * scale_RR) ** 2)
        t_RR = np.subtract.outer(value_R, value_R) / half_RR
        t_RR[(np.subtract.outer(value_R, value_R) == 0) & (half_RR == 0)] = 0.0
        z_RR = np.sign(t_RR) * -ndtri(_upper_tail(np.abs(t_RR), freedom_RR))
        limit_RR = -stdtrit(np.where(np.isinf(freedom_RR), 1e12, freedom_RR), tail)
        resolution_RR = limit_RR * half_RR / scale_RR
    np.fill_diagonal(z_RR, np.nan)
    np.fill_diagonal(resolution_RR, np.nan)
    return Agreement(z_RR, float(-ndtri(tail)), resolution_RR)


def _upper_tail(t: Array, freedom: Array) -> Array:
    """Return Student's upper tail, bounded below to avoid underflow."""
    tail = np.where(
        np.isinf(freedom), stdtr(1e12, -t), stdtr(np.minimum(freedom, 1e12), -t)
    )
    kept: Array = np.where(np.isnan(t), np.nan, np.maximum(tail, 1e-300))
    return kept


@computes_each("probe.crosscheck")
def crosscheck(member: Member, machine: Machine) -> Outcome:
    """Compare all routes to a quantity by z-scores.

    Args:
        member: the stages that hold the quantity, and the stated values.
        machine: not used.

    Returns:
        Values, errors and deviations of all routes, and the flag of their agreement.

    Raises:
        InputError: there are fewer than two routes, or a named stage is missing or
            lacks the variable.
    """
    params = cast("CrosscheckParams", member.params)
    nodes = {node.stage: node for node in member.inputs["of"]}
    if lost := [node for node in nodes.values() if node.status == "diverged"]:
        return Outcome({}, "diverged", f"{lost[0].stage}: {lost[0].reason}")
    routes = list(_routes(nodes, params))
    if len(routes) < 2:
        raise InputError(
            f"of: expected at least two routes to {params.quantity}, got "
            f"{len(routes)}. Name further stages, or state a value."
        )
    result = agreement(routes, confidence=params.confidence, rounding=params.rounding)
    return Outcome(_arrays(routes, result))


def _arrays(routes: Sequence[Route], agreement: Agreement) -> Mapping[str, Array]:
    most_R = np.where(agreement.judged, np.abs(agreement.z), -1.0).argmax(axis=1)
    largest = np.abs(agreement.z[agreement.judged])
    resolutions = agreement.resolution[np.isfinite(agreement.resolution)]
    return {
        "route": np.array([route.name for route in routes]),
        "route_value": np.array([route.value for route in routes], dtype=np.float64),
        "route_sem": np.array([route.sem for route in routes], dtype=np.float64),
        "z": agreement.z[np.arange(len(routes)), most_R],
        "pair_z": agreement.z,
        "largest_z": np.array(largest.max() if largest.size else np.nan),
        "limit": np.array(agreement.limit),
        "resolution": np.array(resolutions.max() if resolutions.size else np.nan),
        "consistent": np.array(agreement.consistent),
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
        yield _sum_of_routes(name, [_of_node(nodes[stage], params) for stage in stages])
    for name, stated in params.stated.items():
        yield Route(name, stated.value, stated.sem)


def _check_names(nodes: Mapping[str, NodeData], params: CrosscheckParams) -> None:
    for stages in (params.variables, params.draws, *params.sums.values()):
        for stage in stages:
            if stage not in nodes:
                raise InputError(
                    f"of: expected all stages that other parameters name, got none "
                    f"called {stage}. {nearest(stage, nodes)}"
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
    """Return the sum over layers; it has the draws and so the error of the whole."""
    whole = _of_node(node, params)
    name = params.variables.get(node.stage, params.quantity)
    total = float(node[f"layer_{name}"].sum())
    return Route(f"{node.stage} by layer", total, whole.sem, whole.draws)


def _sum_of_routes(name: str, parts: Sequence[Route]) -> Route:
    """Add routes and their errors, since equal seeds may correlate them fully."""
    draws = [part.draws for part in parts if part.draws is not None]
    value, sem = sum(part.value for part in parts), sum(part.sem for part in parts)
    return Route(name, value, sem, min(draws) if draws else None)
