"""Functionals of graphs' spectra, from stored Ritz data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

from curvflow.errors import InputError
from curvflow.schemas.kinds.probes.graphs.graph_functionals import (
    GraphFunctionalsParams,
)
from curvflow.schemas.nodes import Array, Member, NodeData, Outcome
from curvflow.tasks.curvature.operators import adjacency_bytes, adjacency_of, atoms_of
from curvflow.tasks.curvature.ritz_data import functional_arrays, without_atoms
from curvflow.tasks.numerics.graphs import functionals
from curvflow.tasks.numerics.graphs.structure import components
from curvflow.tasks.numerics.krylov.functionals import Bounded
from curvflow.tasks.numerics.krylov.lanczos import RitzData
from curvflow.tasks.numerics.operators.deflation import Atoms
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
        InputError: triangles of a graph with loops are requested, the entropy of loops
            alone, an index that is infinite of several components, or one beyond the
            largest number.

    Reference:
        see `curvflow.tasks.numerics.graphs.functionals`.
    """
    return [_of_member(member) for member in members]


def _of_member(member: Member) -> Outcome:
    params = cast("GraphFunctionalsParams", member.params)
    spectrum = _Spectrum(
        without_atoms([member]),
        atoms_of(member.one("ritz")),
        member.one("graph"),
        params.operator,
    )
    arrays: dict[str, Array] = {"size": np.array(spectrum.size, dtype=np.int64)}
    for name in params.taken:
        computed = [
            functional_arrays(name, value.of_model(0), flag=f"{name}_converged")
            for value in FUNCTIONALS[name](spectrum, params)
        ]
        if name not in SEVERAL:
            arrays |= computed[0]
            continue
        coordinate, values = SEVERAL[name](params)
        arrays[coordinate] = values
        arrays |= {
            key: np.stack([value[key] for value in computed]) for key in computed[0]
        }
    return Outcome(arrays)


@dataclass(frozen=True)
class _Spectrum:
    """Ritz data of a graph, and the graph's exact numbers.

    Attributes:
        ritz: of one operator, without the atoms.
        atoms: eigenvalues that were taken out.
        graph: the graph.
        operator: name of the operator.
    """

    ritz: RitzData
    atoms: Atoms
    graph: NodeData
    operator: str

    @property
    def size(self) -> int:
        """Eigenvalues in all, D."""
        return self.ritz.size + self.atoms.total

    @cached_property
    def adjacency(self) -> Adjacency:
        """W, its degrees and loops."""
        return adjacency_of(self.graph)

    @property
    def trace(self) -> float:
        """Trace of a Laplacian."""
        degrees, loops = self.adjacency.degrees, self.adjacency.loops
        if self.operator == "laplacian":
            return float((degrees - loops).sum())
        linked = degrees > 0
        return float((1 - loops[linked] / degrees[linked]).sum())

    @property
    def largest(self) -> float:
        """An upper bound of the eigenvalues."""
        degrees = self.adjacency.degrees
        if self.operator == "adjacency":
            # The square's largest eigenvalue is at most its largest sum of a row.
            return math.sqrt(float((self.adjacency.matrix() @ degrees[:, None]).max()))
        return 2 * float(degrees.max()) if self.operator == "laplacian" else 2.0

    @cached_property
    def labels(self) -> Array:
        """Component of each node."""
        return components(self.graph["indptr"], self.graph["indices"])

    @property
    def tree_term(self) -> float:
        """Difference of the spanning trees' logarithm and the sum of logarithms."""
        degrees = self.adjacency.degrees.numpy()
        linked = degrees > 0
        if self.operator == "laplacian":
            return -float(np.log(np.bincount(self.labels)).sum())
        volumes = np.bincount(self.labels, weights=degrees)
        of_nodes = np.log(degrees[linked]).sum()
        return float(of_nodes - np.log(volumes[volumes > 0]).sum())

    @property
    def num_components(self) -> int:
        """Components, without nodes that were left out."""
        return int(self.labels.max()) + 1 - (len(self.labels) - self.size)

    @property
    def is_zero_left(self) -> bool:
        """True if the runs are of the zero of one component, as all else is known."""
        zeros = int(self.atoms.counts[self.atoms.values == 0].sum())
        return zeros < self.num_components

    def check_connected(self, name: str) -> None:
        """Refuse a graph of several components.

        Args:
            name: of the functional that is infinite of one.

        Raises:
            InputError: it has several.
        """
        if self.num_components > 1:
            raise InputError(
                f"functionals: expected a connected graph for {name}, which is "
                f"infinite otherwise, got {self.num_components} components. Take "
                "another graph, a file's with component: largest, or leave it out."
            )

    def check_linked(self) -> None:
        """Refuse a graph whose Laplacian is zero.

        Raises:
            InputError: all edges are loops.
        """
        if self.num_components == self.size:
            raise InputError(
                "functionals: expected an edge between two nodes for entropy, got "
                "loops alone. Set self_loops to drop, or leave it out."
            )


Params = GraphFunctionalsParams


def _heat_trace(of: _Spectrum, params: Params) -> Iterator[Bounded]:
    for t in params.times:
        yield functionals.heat_trace(of.ritz, t, atoms=of.atoms)


def _entropy(of: _Spectrum, _: Params) -> Iterator[Bounded]:
    of.check_linked()
    yield functionals.entropy(of.ritz, of.trace, largest=of.largest, atoms=of.atoms)


def _log_trees(of: _Spectrum, _: Params) -> Iterator[Bounded]:
    yield functionals.log_trees(
        of.ritz, of.tree_term, atoms=of.atoms, is_zero=of.is_zero_left
    )


def _kirchhoff_index(of: _Spectrum, _: Params) -> Iterator[Bounded]:
    of.check_connected("kirchhoff_index")
    yield functionals.sum_of_inverses(
        of.ritz, of.size, atoms=of.atoms, is_zero=of.is_zero_left
    )


def _kemeny_constant(of: _Spectrum, _: Params) -> Iterator[Bounded]:
    of.check_connected("kemeny_constant")
    yield functionals.sum_of_inverses(
        of.ritz, 1.0, atoms=of.atoms, is_zero=of.is_zero_left
    )


def _estrada_index(of: _Spectrum, params: Params) -> Iterator[Bounded]:
    largest = float(of.ritz.values.nan_to_num(nan=0.0).max())
    largest = max(largest, float(of.atoms.values.max(initial=0.0)))
    if params.beta * largest > MOST_EXPONENT:
        raise InputError(
            f"beta: expected at most {MOST_EXPONENT / largest:.3g}, since the largest "
            f"eigenvalue is {largest:.4g} or more and exp overflows, got "
            f"{params.beta:g}. Lower it."
        )
    yield functionals.estrada_index(
        of.ritz, params.beta, largest=of.largest, atoms=of.atoms
    )


def _closed_walks(of: _Spectrum, params: Params) -> Iterator[Bounded]:
    for length in params.lengths:
        yield functionals.closed_walks(of.ritz, length, atoms=of.atoms)


def _triangles(of: _Spectrum, _: Params) -> Iterator[Bounded]:
    if of.adjacency.loops.any():
        raise InputError(
            "functionals: expected a graph without loops for triangles, got one with "
            "them. Set self_loops to drop, or take closed_walks."
        )
    yield functionals.triangles(of.ritz, atoms=of.atoms)


FUNCTIONALS: dict[str, Callable[[_Spectrum, Params], Iterator[Bounded]]] = {
    "heat_trace": _heat_trace,
    "entropy": _entropy,
    "log_trees": _log_trees,
    "kirchhoff_index": _kirchhoff_index,
    "kemeny_constant": _kemeny_constant,
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
