"""Random graphs of independent edges, of rewired rings, and of growth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from curvflow.tasks.numerics.graphs.pairs import (
    CHUNK,
    Edges,
    Keys,
    below,
    chosen_by_chance,
    distinct,
    edges,
    joined,
    num_pairs,
    pair,
    pair_keys,
    uniform,
)
from curvflow.tasks.numerics.graphs.rows import Array


def erdos_renyi(n: int, p: float, generator: torch.Generator) -> Edges:
    """Draw a graph in which each pair of n nodes is joined with probability p."""
    return joined(_by_chance(n, p, generator))


def _by_chance(n: int, p: float, generator: torch.Generator) -> Iterator[Edges]:
    return map(pair, chosen_by_chance(num_pairs(n), p, generator))


def gnm(n: int, m: int, generator: torch.Generator) -> Edges:
    """Draw a graph of n nodes and m edges, all such graphs alike in chance."""
    return pair(distinct(m, num_pairs(n), generator))


def stochastic_block(
    sizes: Sequence[int],
    probabilities: Sequence[Sequence[float]],
    generator: torch.Generator,
) -> Edges:
    """Draw a graph in which the blocks of two nodes say with what chance they join.

    Args:
        sizes: nodes of each block.
        probabilities: of an edge, by block and block, symmetric.
        generator: of the draws.

    Returns:
        The edges; nodes are numbered block by block.
    """
    starts = np.concatenate([[0], np.cumsum(sizes)])

    def parts() -> Iterator[Edges]:
        for i, rows in enumerate(sizes):
            for part in _by_chance(rows, probabilities[i][i], generator):
                yield moved(part, int(starts[i]))
            for j in range(i):
                columns, p = sizes[j], probabilities[i][j]
                for numbers in chosen_by_chance(rows * columns, p, generator):
                    row, column = np.divmod(numbers, columns)
                    yield edges(starts[i] + row, starts[j] + column)

    return joined(parts())


def moved(part: Edges, by: int) -> Edges:
    """Return edges between nodes whose numbers are larger by some."""
    return Edges(part.sources + np.int32(by), part.targets + np.int32(by))


def watts_strogatz(n: int, k: int, p: float, generator: torch.Generator) -> Edges:
    """Draw a ring of which each edge is led elsewhere with probability p.

    One after the other, first those to the next nodes, then those to the nodes behind
    them, and so on, edges from u are led to a node drawn evenly of those that u is not
    joined to; where u is joined to all, the edge stays.

    Args:
        n: nodes.
        k: neighbours in the ring, even, below n.
        p: probability that an edge is led elsewhere.
        generator: of the draws.

    Returns:
        The edges, n k / 2; the graph may fall apart.

    Reference:
        Watts and Strogatz (1998), doi:10.1038/30918.
    """
    ring = np.arange(n, dtype=np.int32)
    targets = np.concatenate([np.roll(ring, -ahead) for ahead in range(1, k // 2 + 1)])
    led = np.flatnonzero(uniform(len(targets), generator) < p)
    # Where few nodes are free, a draw of all of them would hardly ever hit one.
    in_turn = n < 64 or 4 * k > n
    lead = _led_in_turn if in_turn else _led_at_once
    targets[led] = lead(n, k, led, targets, generator)
    return Edges(np.tile(ring, k // 2), targets)


def _led_in_turn(
    n: int, k: int, led: Array, targets: Array, generator: torch.Generator
) -> Array:
    """Return where edges lead, drawn one by one of the nodes that are free."""
    joined_to = np.zeros((n, n), dtype=bool)
    ring = np.arange(len(targets)) % n
    joined_to[ring, targets] = joined_to[targets, ring] = True
    new = targets[led]
    for number, share in enumerate(uniform(len(led), generator)):
        u, v = led[number] % n, new[number]
        free = np.flatnonzero(~joined_to[u])
        free = free[free != u]
        if len(free):
            w = free[int(share * len(free))]
            joined_to[u, v] = joined_to[v, u] = False
            joined_to[u, w] = joined_to[w, u] = True
            new[number] = w
    return new


def _led_at_once(
    n: int, k: int, led: Array, targets: Array, generator: torch.Generator
) -> Array:
    """Return where edges lead, of the same law as one by one.

    A node drawn is drawn again if the ring has that edge still, which is known of each
    edge at its turn, or if another has come to it earlier. What was refused for an
    earlier edge stays refused, for only a yet earlier one can take its place.
    """
    is_led = np.zeros(n * (k // 2), dtype=bool)
    is_led[led] = True
    sources = led % n
    new = np.empty(len(led), dtype=np.int64)
    drawn = np.arange(len(led))
    while len(drawn):
        for start in range(0, len(drawn), CHUNK):
            part = drawn[start : start + CHUNK]
            while len(part):
                new[part] = below(np.full(len(part), n), generator)
                refused = _in_ring(n, k, sources[part], new[part], led[part], is_led)
                part = part[refused]
        drawn = Keys(pair_keys(sources, new, n)).repeats
    return new


def _in_ring(
    n: int, k: int, sources: Array, nodes: Array, turns: Array, is_led: Array
) -> Array:
    """Return which nodes are joined to a source by the ring at its turn, or are it."""
    ahead = (nodes - sources) % n
    forward, backward = ahead <= k // 2, n - ahead <= k // 2
    owner = np.where(forward, sources, nodes)
    distance = np.where(forward, ahead, n - ahead)
    slot = np.where((forward | backward) & (ahead > 0), (distance - 1) * n + owner, 0)
    there = ~is_led[slot] | (slot >= turns)
    joined_to: Array = (ahead == 0) | ((forward | backward) & there)
    return joined_to


def barabasi_albert(n: int, m: int, generator: torch.Generator) -> Edges:
    """Draw a graph grown node by node, each joined to m others by their degrees.

    It begins as a star of m + 1 nodes.

    Args:
        n: nodes.
        m: edges of each new node, from 1 to n - 1.
        generator: of the draws.

    Returns:
        The edges, m (n - m).

    Reference:
        Barabasi and Albert (1999), doi:10.1126/science.286.5439.509; Batagelj and
        Brandes (2005), doi:10.1103/PhysRevE.71.036113.
    """
    targets = np.full((n - m, m), -1, dtype=np.int32)  # a row for each node from m on
    targets[0] = 0
    first = min(n, 8 * m)
    _race(targets, first, generator)
    while first < n:
        # Longer blocks have more nodes that wait; shorter ones are more calls.
        last = min(n, first + max(16, first // 8))
        _attach(targets, first, last, generator)
        first = last
    sources = np.repeat(np.arange(m, n, dtype=np.int32), m)
    sources[:m] = np.arange(1, m + 1)
    return Edges(sources, targets.ravel())


def _race(targets: Array, last: int, generator: torch.Generator) -> None:
    """Draw what nodes before the last are joined to, one by one.

    The m least of exponential times with the degrees as rates are m nodes drawn one
    after the other by their degrees: exact, where most nodes would be drawn repeatedly.
    """
    m = targets.shape[1]
    degrees = np.zeros(max(last, m + 1))
    degrees[: m + 1] = 1
    degrees[0] = m
    for node in range(m + 1, last):
        times = -np.log1p(-uniform(node, generator)) / degrees[:node]
        chosen = np.argpartition(times, m - 1)[:m]
        targets[node - m] = chosen
        degrees[chosen] += 1
        degrees[node] = m


def _attach(targets: Array, first: int, last: int, generator: torch.Generator) -> None:
    """Draw what nodes from first to last are joined to.

    An end of an edge drawn evenly is a node drawn by its degree. Nodes wait for those
    that their draws lead to; of a node drawn twice one is drawn again.
    """
    m = targets.shape[1]
    waiting = np.arange(first, last)
    # Ends of all edges of earlier nodes, each twice its edge's number, or one more.
    ends = np.broadcast_to(2 * m * (waiting - m)[:, None], (last - first, m))
    drawn = below(ends, generator)
    while len(waiting):
        chosen = _nodes_at(targets, drawn)
        settled = np.all(chosen >= 0, axis=1)
        again = _repeated(chosen) & settled[:, None]
        done = settled & ~np.any(again, axis=1)
        targets[waiting[done] - m] = chosen[done]
        drawn[again] = below(ends[again], generator)
        waiting, ends, drawn = waiting[~done], ends[~done], drawn[~done]


def _nodes_at(targets: Array, ends: Array) -> Array:
    """Return the nodes at ends of edges, -1 where that is not drawn yet."""
    m = targets.shape[1]
    edge = ends >> 1
    sources = np.where(edge < m, edge + 1, edge // m + m)
    nodes: Array = np.where(ends & 1, sources, targets.ravel()[edge])
    return nodes


def _repeated(rows: Array) -> Array:
    """Return which entries stand in their rows before."""
    order = np.argsort(rows, axis=1, kind="stable")
    ordered = np.take_along_axis(rows, order, axis=1)
    again = np.zeros(rows.shape, dtype=bool)
    np.put_along_axis(again, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
    return again
