"""Degrees, components, twins and triangles of graphs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from curvflow.schemas.nodes import Array, Member, NodeData, Outcome
from curvflow.tasks.networks.problems import Apart, grouped
from curvflow.tasks.numerics.graphs.structure import (
    components,
    is_bipartite,
    num_triangles,
)
from curvflow.tasks.numerics.graphs.twins import CHUNK, twins
from curvflow.tasks.registry import Machine, computes


def member_bytes(member: Member) -> int:
    """Return one graph's estimated peak memory: its rows, and hashes of entries."""
    graph = member.one("graph")
    stored = sum(array.nbytes for array in graph.arrays.values())
    entries = len(graph["indices"])
    at_once = 64 * min(entries, CHUNK)
    return stored + 25 * entries + 64 * len(graph["indptr"]) + at_once + (1 << 20)


@computes("probe.graph_structure", member_bytes=member_bytes)
def graph_structure(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Count what each graph has, one graph after the other.

    Args:
        members: `graph`.
        machine: not used: nothing here is arithmetic.

    Returns:
        Per member the numbers, and how often each degree occurs.
    """
    return grouped(members, lambda member: Apart(id(member)), _of_one)


def _of_one(members: Sequence[Member]) -> list[Outcome]:
    return [Outcome(_counts(members[0].one("graph")))]


def _counts(graph: NodeData) -> dict[str, Array]:
    indptr, indices = graph["indptr"], graph["indices"]
    weights = graph["weights"] if len(graph["weights"]) else None
    loops, degrees = _loops_and_degrees(indptr, indices, weights)
    num_loops = int(np.count_nonzero(loops))
    labels = components(indptr, indices)
    sizes = np.bincount(labels)
    values, occurrences = np.unique(degrees, return_counts=True)
    alike = twins(indptr, indices, weights)
    is_open = alike.joined == 0
    whole = {
        "size": len(degrees),
        "num_edges": (len(indices) + num_loops) // 2,
        "num_loops": num_loops,
        "num_components": len(sizes),
        "largest_component": sizes.max(),
        "num_isolated": np.count_nonzero(np.diff(indptr) == 0),
        "num_open_classes": np.count_nonzero(is_open),
        "num_open_twins": alike.counts[is_open].sum(),
        "num_closed_classes": np.count_nonzero(~is_open),
        "num_closed_twins": alike.counts[~is_open].sum(),
        "num_triangles": num_triangles(indptr, indices),
    }
    return {
        **{name: np.array(count, dtype=np.int64) for name, count in whole.items()},
        "total_weight": np.array((degrees.sum() + loops.sum()) / 2),
        "mean_degree": np.array(degrees.mean()),
        "least_degree": np.array(values[0]),
        "largest_degree": np.array(values[-1]),
        "degree": values,
        "degree_count": occurrences.astype(np.int64),
        "bipartite": np.array(is_bipartite(indptr, indices, labels)),
    }


def _loops_and_degrees(
    indptr: Array, indices: Array, weights: Array | None
) -> tuple[Array, Array]:
    """Return the weights of loops and the sums of rows, (D,) each."""
    size = len(indptr) - 1
    rows = np.repeat(np.arange(size, dtype=np.int32), np.diff(indptr))
    on = rows == indices
    loops = np.zeros(size)
    loops[indices[on]] = 1.0 if weights is None else weights[on]
    if weights is None:
        return loops, np.diff(indptr).astype(np.float64)
    return loops, np.bincount(rows, weights, minlength=size)
