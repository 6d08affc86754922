"""Functionals of graphs' spectra, from stored Ritz data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from curvflow.errors import InputError
from curvflow.schemas.kinds.probes.graphs.graph_functionals import (
    GraphFunctionalsParams,
)
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.curvature.operators import adjacency_bytes, adjacency_of
from curvflow.tasks.curvature.ritz_data import functional_arrays, runs_of
from curvflow.tasks.numerics.graphs import functionals
from curvflow.tasks.numerics.krylov.functionals import Bounded
from curvflow.tasks.numerics.krylov.lanczos import RitzData
from curvflow.tasks.numerics.operators.graphs import Adjacency
from curvflow.tasks.registry import Machine, computes

# Exponent beyond which exp is infinite.
MOST_EXPONENT = 709.0


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory."""
    ritz = member.one("ritz")["ritz_values"].nbytes
    return 32 * ritz + adjacency_bytes(member.one("graph")) + (1 << 20)


@computes("probe.graph_functionals", member_bytes=member_bytes)
def graph_functionals(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Estimate functionals of the spectra of graphs.

    Args:
        members: with `ritz`, and the `graph` that they are of.
        machine: the device to compute on, not used.

    Returns:
        Per member its functionals, with standard errors, intervals, and whether the
        quadratures have converged.

    Raises:
        InputError: triangles of a graph with loops are asked for, or the Estrada index
            is beyond the largest number.

    Reference:
        see `curvflow.tasks.numerics.graphs.functionals`.
    """
    return [_of_member(member) for member in members]


def _of_member(member: Member) -> Outcome:
    params = cast("GraphFunctionalsParams", member.params)
    ritz = runs_of([member])
    facts = _Facts.of(adjacency_of(member.one("graph")), params.operator, ritz.size)
    arrays: dict[str, Array] = {"size": np.array(ritz.size, dtype=np.int64)}
    for name in params.taken:
        found = [
            functional_arrays(name, one.of_model(0), flag=f"{name}_converged")
            for one in FUNCTIONALS[name](ritz, params, facts)
        ]
        if name not in SEVERAL:
            arrays |= found[0]
            continue
        coordinate, values = SEVERAL[name](params)
        arrays[coordinate] = values
        arrays |= {key: np.stack([one[key] for one in found]) for key in found[0]}
    return Outcome(arrays)


@dataclass(frozen=True)
class _Facts:
    """What degrees tell of a matrix of a graph.

    Attributes:
        trace: of it.
        largest: an upper bound of its eigenvalues.
        has_loops: whether the graph has any.
    """

    trace: float
    largest: float
    has_loops: bool

    @classmethod
    def of(cls, adjacency: Adjacency, operator: str, size: int) -> _Facts:
        """Take the facts of one operator, with its `size` D."""
        degrees, loops = adjacency.degrees, adjacency.loops
        has_loops = bool(loops.any())
        if operator == "adjacency":
            # The square's largest eigenvalue is at most its largest sum of a row.
            around = adjacency.matrix @ degrees[:, None]
            return cls(float(loops.sum()), float(around.max()) ** 0.5, has_loops)
        if operator == "laplacian":
            return cls(
                float((degrees - loops).sum()), 2 * float(degrees.max()), has_loops
            )
        linked = degrees > 0
        trace = (1 - loops[linked] / degrees[linked]).sum()
        return cls(float(trace), 2.0, has_loops)


Params = GraphFunctionalsParams


def _heat_trace(ritz: RitzData, params: Params, _: _Facts) -> Iterator[Bounded]:
    return (functionals.heat_trace(ritz, t) for t in params.times)


def _entropy(ritz: RitzData, _: Params, facts: _Facts) -> Iterator[Bounded]:
    yield functionals.entropy(ritz, facts.trace, largest=facts.largest)


def _estrada_index(ritz: RitzData, params: Params, facts: _Facts) -> Iterator[Bounded]:
    largest = float(ritz.values.nan_to_num(nan=0.0).max())
    if params.beta * largest > MOST_EXPONENT:
        raise InputError(
            f"beta: expected at most {MOST_EXPONENT / largest:.3g}, since the largest "
            f"eigenvalue is {largest:.4g} or more and exp overflows, got "
            f"{params.beta:g}. Lower it."
        )
    yield functionals.estrada_index(ritz, params.beta, largest=facts.largest)


def _closed_walks(ritz: RitzData, params: Params, _: _Facts) -> Iterator[Bounded]:
    return (functionals.closed_walks(ritz, length) for length in params.lengths)


def _triangles(ritz: RitzData, _: Params, facts: _Facts) -> Iterator[Bounded]:
    if facts.has_loops:
        raise InputError(
            "functionals: expected a graph without loops for triangles, got one with "
            "them. Set self_loops to drop, or take closed_walks."
        )
    yield functionals.triangles(ritz)


FUNCTIONALS: dict[str, Callable[[RitzData, Params, _Facts], Iterator[Bounded]]] = {
    "heat_trace": _heat_trace,
    "entropy": _entropy,
    "estrada_index": _estrada_index,
    "closed_walks": _closed_walks,
    "triangles": _triangles,
}


def _times(params: Params) -> tuple[str, Array]:
    return "time", np.array(params.times)


def _lengths(params: Params) -> tuple[str, Array]:
    return "length", np.array(params.lengths, dtype=np.int64)


# Those of several values, with the coordinate of these.
SEVERAL: dict[str, Callable[[Params], tuple[str, Array]]] = {
    "heat_trace": _times,
    "closed_walks": _lengths,
}
