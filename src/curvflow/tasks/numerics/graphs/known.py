"""Graphs whose spectra are known in closed form; nodes count from 0."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from curvflow.tasks.numerics.graphs.pairs import Edges, edges, joined, num_pairs, pair


def complete(n: int) -> Edges:
    """Return all pairs of n nodes."""
    return pair(np.arange(num_pairs(n)))


def path(n: int) -> Edges:
    """Return n nodes in a row."""
    return edges(np.arange(n - 1), np.arange(1, n))


def cycle(n: int) -> Edges:
    """Return n nodes in a ring, three at least."""
    return edges(np.arange(n), np.arange(1, n + 1) % n)


def star(n: int) -> Edges:
    """Return n nodes, of which the first is joined to all others."""
    return edges(np.zeros(n - 1), np.arange(1, n))


def hypercube(d: int) -> Edges:
    """Return 2^d nodes, joined where their numbers differ in one binary digit."""
    nodes = np.arange(2**d)
    lower = [nodes[nodes & bit == 0] for bit in 2 ** np.arange(d)]
    return joined(edges(low, low + 2**digit) for digit, low in enumerate(lower))


def grid(lengths: Sequence[int]) -> Edges:
    """Return points of a grid, joined to the next ones along each direction.

    Args:
        lengths: points along each direction.

    Returns:
        The edges; numbers of nodes run along the last direction first.
    """
    nodes = np.arange(prod(lengths)).reshape(lengths)
    along = [np.moveaxis(nodes, axis, 0) for axis in range(len(lengths))]
    return joined(edges(lines[:-1].ravel(), lines[1:].ravel()) for lines in along)


def complete_bipartite(n1: int, n2: int) -> Edges:
    """Return n1 nodes, each joined to all of n2 others."""
    return edges(np.repeat(np.arange(n1), n2), np.tile(np.arange(n1, n1 + n2), n1))


def ring_of_cliques(num_cliques: int, clique_size: int) -> Edges:
    """Return complete graphs in a ring, each joined to the next by one edge.

    Args:
        num_cliques: two at least.
        clique_size: nodes of each, two at least.

    Returns:
        The edges; the second node of each leads to the first of the next.
    """
    firsts = clique_size * np.arange(num_cliques)
    inside = complete(clique_size)
    return joined(
        [
            edges(
                np.add.outer(firsts, inside.sources).ravel(),
                np.add.outer(firsts, inside.targets).ravel(),
            ),
            edges(firsts + 1, np.roll(firsts, -1)),
        ]
    )
