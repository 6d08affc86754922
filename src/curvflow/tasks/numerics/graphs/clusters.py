"""Graphs of clusters, each drawn by a separate law, that few edges join."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from curvflow.tasks.numerics.graphs.pairs import (
    Edges,
    distinct,
    edges,
    joined,
    uniform,
)
from curvflow.tasks.numerics.graphs.random import moved
from curvflow.tasks.numerics.graphs.rows import Array

Law = Callable[[int, torch.Generator], Edges]


def planted_clusters(
    sizes: Sequence[int], laws: Sequence[Law], links: int, generator: torch.Generator
) -> Edges:
    """Draw clusters, and edges between nodes of different ones.

    Args:
        sizes: nodes of each cluster.
        laws: that of each cluster, from its nodes to its edges.
        links: edges between clusters, of all pairs of nodes alike in chance.
        generator: of the draws.

    Returns:
        The edges; nodes are numbered cluster by cluster.
    """
    ends = np.cumsum(sizes)
    starts = ends - sizes
    clusters = [
        moved(law(size, generator), int(start))
        for size, law, start in zip(sizes, laws, starts, strict=True)
    ]
    return joined([*clusters, _between(np.asarray(sizes), ends, links, generator)])


def _between(
    sizes: Array, ends: Array, links: int, generator: torch.Generator
) -> Edges:
    """Draw edges between different clusters, none of them twice."""
    last = np.repeat(ends, sizes)  # of each node's cluster; it takes later nodes only
    numbered = np.cumsum(ends[-1] - last)
    numbers = distinct(links, int(numbered[-1]), generator)
    nodes = np.searchsorted(numbered, numbers, side="right")
    before = numbered[nodes] - (ends[-1] - last[nodes])
    return edges(nodes, last[nodes] + numbers - before)


def cluster_sizes(
    least: Array, most: Array, total: int | None, generator: torch.Generator
) -> Array:
    """Draw the nodes of clusters, each between a least and a most number.

    Without a total all numbers between are alike in chance. With one, chances go as
    exp(theta s), the law of largest entropy with that mean; what the sum lacks or has
    too much is then evened out by ones at random clusters.

    Args:
        least: nodes of each cluster, (c,).
        most: nodes of each cluster, (c,).
        total: nodes of all; between the sums of both.
        generator: of the draws.

    Returns:
        Nodes of each cluster, (c,) int64.
    """
    theta = 0.0 if total is None else _tilt(least, most, total)
    sizes = _tilted(least, most, theta, uniform(len(least), generator))
    while total is not None and (lacking := total - int(sizes.sum())):
        room = np.flatnonzero(sizes < most if lacking > 0 else sizes > least)
        count = min(abs(lacking), len(room))
        moved_ones = room[distinct(count, len(room), generator)]
        sizes[moved_ones] += np.sign(lacking)
    return sizes


def _tilted(least: Array, most: Array, theta: float, shares: Array) -> Array:
    """Return sizes at these shares of the laws ~ exp(theta s) from least to most."""
    width = most - least + 1
    if abs(theta) < 1e-12:
        steps = shares * width
    else:
        steps = np.log1p(shares * np.expm1(theta * width)) / theta
    sizes: Array = least + np.minimum(steps.astype(np.int64), width - 1)
    return sizes


def _tilt(least: Array, most: Array, total: int) -> float:
    """Return the theta with which the sizes have the total as their mean."""
    from scipy import optimize

    # Means by the quantiles in the middle of equal shares.
    shares = (np.arange(256) + 0.5) / 256
    kinds, counts = np.unique(np.stack([least, most]), axis=1, return_counts=True)

    def excess(theta: float) -> float:
        means = [_tilted(low, high, theta, shares).mean() for low, high in kinds.T]
        return float(counts @ means) - total

    steepest = 100 / max(1, int((most - least).max()))
    if excess(-steepest) >= 0 or excess(steepest) <= 0:
        return float(np.sign(total - counts @ kinds.mean(axis=0))) * steepest
    root: float = optimize.bisect(excess, -steepest, steepest, xtol=1e-6 * steepest)
    return root
