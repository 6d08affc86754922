"""Random graphs of given degrees."""

from __future__ import annotations

import numpy as np
import torch

from curvflow.tasks.numerics.graphs.known import complete
from curvflow.tasks.numerics.graphs.pairs import (
    Edges,
    Keys,
    below,
    edges,
    once,
    pair_keys,
    uniform,
)
from curvflow.tasks.numerics.graphs.rows import Array

ROUNDS = 200  # of switches, before ends are paired anew
PAIRINGS = 50  # before degrees count as those of no graph


def random_regular(n: int, d: int, generator: torch.Generator) -> Edges:
    """Draw a graph of n nodes that have d neighbours each.

    Args:
        n: nodes.
        d: below n; n d is even.
        generator: of the draws.

    Returns:
        The edges; of large graphs all are alike in chance.
    """
    if 2 * d > n - 1:  # where most pairs are joined, those that are not are drawn
        apart = random_regular(n, n - 1 - d, generator)
        drawn = np.zeros((n, n), dtype=bool)  # of as many entries as edges, nearly
        drawn[apart.sources, apart.targets] = drawn[apart.targets, apart.sources] = True
        every = complete(n)
        left = ~drawn[every.sources, every.targets]
        return Edges(every.sources[left], every.targets[left])
    simple = None
    while simple is None:
        simple = switched(paired(np.full(n, d), generator), n, generator)
    return simple


def paired(degrees: Array, generator: torch.Generator) -> Edges:
    """Pair the ends of edges at random, loops and repeated edges among them.

    Args:
        degrees: of each node, (n,), of an even sum.
        generator: of the draws.

    Returns:
        The edges.

    Reference:
        Bollobas (1980), doi:10.1016/S0195-6698(80)80030-8.
    """
    ends = np.repeat(np.arange(len(degrees), dtype=np.int32), degrees)
    ends = ends[torch.randperm(len(ends), generator=generator).numpy()]
    return edges(ends[::2], ends[1::2])


def erased(given: Edges, size: int) -> Edges:
    """Return edges without loops, and repeated ones once."""
    apart = given.sources != given.targets
    sources, targets = given.sources[apart], given.targets[apart]
    keys = once(pair_keys(sources, targets, size))
    return edges(keys // size, keys % size)


def with_degrees(degrees: Array, generator: torch.Generator) -> Edges | None:
    """Draw a graph without loops and repeated edges whose nodes have these degrees.

    Args:
        degrees: of each node, (n,), of an even sum.
        generator: of the draws.

    Returns:
        The edges; None where switches come to no such graph.
    """
    for _ in range(PAIRINGS):
        simple = switched(paired(degrees, generator), len(degrees), generator)
        if simple is not None:
            return simple
    return None


def switched(given: Edges, size: int, generator: torch.Generator) -> Edges | None:
    """Replace loops and repeated edges by switches, which leave degrees as they are.

    An edge (u, v) that is one, and another (x, y) drawn evenly, become (u, x) and
    (v, y), if both are new.

    Args:
        given: edges, (E,).
        size: nodes.
        generator: of the draws.

    Returns:
        Edges of the same degrees; None where too many switches did not suffice.

    Reference:
        McKay and Wormald (1990), doi:10.1016/0196-6774(90)90029-E, whose switches these
        are in a simpler order: of large graphs of bounded degrees all are alike in
        chance.
    """
    u, v = given.sources.copy(), given.targets.copy()
    for _ in range(ROUNDS):
        keys = Keys(pair_keys(u, v, size))
        bad = once(np.concatenate([np.flatnonzero(u == v), keys.repeats]))
        if not len(bad):
            return Edges(u, v)
        _switch(u, v, bad, keys, size, generator)
    return None


def _switch(
    u: Array,
    v: Array,
    bad: Array,
    keys: Keys,
    size: int,
    generator: torch.Generator,
) -> None:
    """Switch those of some edges, in place, whose partners drawn allow it."""
    partner = below(np.full(len(bad), len(u)), generator)
    turned = uniform(len(bad), generator) < 0.5
    x = np.where(turned, v[partner], u[partner])
    y = np.where(turned, u[partner], v[partner])
    new = np.stack([pair_keys(u[bad], x, size), pair_keys(v[bad], y, size)])
    fits = (u[bad] != x) & (v[bad] != y) & ~keys.have(new).any(axis=0)
    fits &= ~np.isin(partner, bad)
    # Of switches at the same time no two may take one edge, nor make one.
    fits[Keys(partner).repeats] = False
    fits[Keys(new.T.ravel()).repeats // 2] = False
    u[partner[fits]], v[partner[fits]] = v[bad[fits]], y[fits]
    v[bad[fits]] = x[fits]


def power_law_degrees(
    n: int, exponent: float, least: int, most: int, generator: torch.Generator
) -> Array:
    """Draw degrees k from least to most with probabilities ~ k^-exponent.

    Args:
        n: nodes.
        exponent: of the power.
        least: smallest degree, from 1 on.
        most: largest degree.
        generator: of the draws.

    Returns:
        Degrees, (n,) int64. Where their sum is odd, the first of the smallest ones is
        larger by one.
    """
    degrees = np.arange(least, most + 1)
    heights = np.cumsum(degrees ** -float(exponent))
    drawn = np.searchsorted(heights, uniform(n, generator) * heights[-1], side="right")
    values: Array = degrees[drawn]
    values[np.argmin(values)] += values.sum() % 2
    return values
