"""Pairs of nodes by number, and random choices of such numbers in O(those chosen)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf, log1p
from typing import NamedTuple

import numpy as np
import torch

from curvflow.tasks.numerics.graphs.rows import Array

CHUNK = 1 << 22  # numbers drawn at once


class Edges(NamedTuple):
    """Both ends of edges that are given once each, (E,) int32."""

    sources: Array
    targets: Array


def edges(sources: Array, targets: Array) -> Edges:
    """Return edges of the smallest type that holds their ends."""
    return Edges(sources.astype(np.int32), targets.astype(np.int32))


def joined(parts: Iterable[Edges]) -> Edges:
    """Return all edges of some lists as one."""
    lists = [*parts, edges(np.zeros(0), np.zeros(0))]
    return Edges(
        np.concatenate([part.sources for part in lists]),
        np.concatenate([part.targets for part in lists]),
    )


def uniform(count: int, generator: torch.Generator) -> Array:
    """Return numbers from [0, 1) in double precision."""
    drawn: Array = torch.rand(count, generator=generator, dtype=torch.float64).numpy()
    return drawn


def below(limits: Array, generator: torch.Generator) -> Array:
    """Return for each limit a whole number from 0 up to it, all alike in chance."""
    drawn: Array = (uniform(limits.size, generator) * limits.ravel()).astype(np.int64)
    return drawn.reshape(limits.shape)


def chosen_by_chance(
    total: int, p: float, generator: torch.Generator
) -> Iterator[Array]:
    """Yield, in rising order, numbers below a total, each taken with probability p.

    The gaps between those taken are geometric, so that nothing is done for the others.

    Args:
        total: numbers to choose from.
        p: probability of each.
        generator: of the draws.

    Yields:
        The numbers, int64, some millions at a time.

    Reference:
        Batagelj and Brandes (2005), doi:10.1103/PhysRevE.71.036113.
    """
    last, missed = -1, (log1p(-p) if p < 1 else -inf)
    while p > 0 and last < total - 1:
        expected = (total - 1 - last) * p
        count = min(int(expected + 4 * expected**0.5) + 16, CHUNK)
        skipped = np.log1p(-uniform(count, generator)) / missed
        gaps = np.minimum(skipped, total).astype(np.int64) + 1
        taken = last + np.cumsum(gaps)
        last = int(taken[-1])
        yield taken[: np.searchsorted(taken, total)]


def distinct(count: int, total: int, generator: torch.Generator) -> Array:
    """Return a set of numbers below a total, each set of that size alike in chance.

    Args:
        count: numbers to be taken.
        total: numbers to choose from.
        generator: of the draws.

    Returns:
        The numbers, (count,) int64.
    """
    if 2 * count > total:
        every: Array = torch.randperm(total, generator=generator).numpy()
        return every[:count]
    taken = np.zeros(0, dtype=np.int64)
    while len(taken) < count:
        # As many as are lacking, so that none is ever to be thrown away again.
        lacking = torch.randint(total, (count - len(taken),), generator=generator)
        taken = once(np.concatenate([taken, lacking.numpy()]))
    return taken


def once(numbers: Array) -> Array:
    """Return the numbers that occur, in rising order; `np.unique`, but by sorting."""
    ordered = np.sort(numbers)
    is_first = np.ones(len(ordered), dtype=bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    unrepeated: Array = ordered[is_first]
    return unrepeated


def pair(numbers: Array) -> Edges:
    """Return the pairs of nodes that have these numbers: (1, 0), (2, 0), (2, 1), ...

    Args:
        numbers: t = v (v - 1) / 2 + w of nodes v > w, int64.

    Returns:
        The nodes v and w.
    """
    v = ((1 + np.sqrt(1.0 + 8.0 * numbers)) / 2).astype(np.int64)
    v -= v * (v - 1) // 2 > numbers  # the root is rounded
    v += v * (v + 1) // 2 <= numbers
    return edges(v, numbers - v * (v - 1) // 2)


def num_pairs(size: int) -> int:
    """Return the number of pairs of different nodes."""
    return size * (size - 1) // 2


def pair_keys(sources: Array, targets: Array, size: int) -> Array:
    """Return a number for each pair of nodes, the same for either order of the two."""
    keys: Array = np.minimum(sources, targets).astype(np.int64) * size
    keys += np.maximum(sources, targets)
    return keys


class Keys:
    """Keys of edges in rising order, to be looked up.

    Attributes:
        repeats: places of those that occur before.
    """

    def __init__(self, keys: Array) -> None:
        order = np.argsort(keys, kind="stable")
        self._ordered = keys[order]
        self.repeats = order[1:][self._ordered[1:] == self._ordered[:-1]]

    def have(self, others: Array) -> Array:
        """Return which of other keys are among these."""
        places = np.searchsorted(self._ordered, others)
        nearest = self._ordered[np.minimum(places, len(self._ordered) - 1)]
        there: Array = nearest == others
        return there
