"""Nodes with the same neighbours, found by sums of hashes and compared entry by entry.

Letters: D nodes, E entries of the compressed rows, P pairs, C classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

# Entries looked at together, which bounds memory.
CHUNK = 1 << 20


@dataclass(frozen=True)
class Twins:
    """Classes of nodes of which any two may be exchanged.

    Two nodes u and v are twins if their weights to every third node are equal, and
    their loops. All weights within a class are then equal, too, so that with s for
    them, l for the loops and d for the degree W(e_u - e_v) = (l - s)(e_u - e_v).

    Attributes:
        nodes: all that have a twin, class by class, ascending within.
        number: of the class of each.
        joined: s of each class, (C,); 0 of nodes that are not joined.
        loops: l of each class, (C,).
    """

    nodes: Array
    number: Array
    joined: Array
    loops: Array

    @property
    def counts(self) -> Array:
        """Nodes of each class, (C,)."""
        return np.bincount(self.number, minlength=len(self.joined))


def twins(indptr: Array, indices: Array, weights: Array | None = None) -> Twins:
    """Find all twins that have a neighbour other than themselves.

    A sum of hashes over each row finds those that may be alike, and entries are
    compared then, so that equal hashes of unequal rows cost time alone.

    Args:
        indptr: where each row begins, (D + 1,).
        indices: neighbours in rising order, (E,), an edge in the rows of both its ends.
        weights: of these entries; None where all are 1.

    Returns:
        The classes; time is O(E), but for the sorting of D numbers.
    """
    rows = _Rows.of(indptr, indices, weights)
    first = np.arange(rows.size)
    _merge_apart(rows, first)
    _merge_joined(rows, first)
    heads = np.unique(first[first != np.arange(rows.size)])
    is_twin = np.isin(first, heads)
    nodes = np.flatnonzero(is_twin)
    nodes = nodes[np.argsort(first[nodes], kind="stable")]
    number = np.searchsorted(heads, first[nodes])
    seconds = (
        nodes[np.flatnonzero(np.diff(number, prepend=-1)) + 1] if len(nodes) else nodes
    )
    return Twins(nodes, number, rows.between(heads, seconds), rows.loops[heads])


@dataclass(frozen=True)
class _Rows:
    """Compressed rows without loops, with hashes.

    Attributes:
        indptr: where each row begins, (D + 1,).
        indices: neighbours, (E,).
        weights: of these entries, (E,); None where all are 1.
        loops: weights of loops, (D,).
        keys: a hash of each node, (D,), uint64.
        sums: of the hashes of each row, (D,), uint64.
    """

    indptr: Array
    indices: Array
    weights: Array | None
    loops: Array
    keys: Array
    sums: Array

    @classmethod
    def of(cls, indptr: Array, indices: Array, weights: Array | None) -> _Rows:
        size = len(indptr) - 1
        sources = np.repeat(np.arange(size, dtype=indices.dtype), np.diff(indptr))
        is_loop = sources == indices
        loops = np.zeros(size)
        if is_loop.any():
            loops[indices[is_loop]] = 1.0 if weights is None else weights[is_loop]
            left = ~is_loop
            counts = np.bincount(sources[left], minlength=size)
            indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
            indices = indices[left]
            weights = None if weights is None else weights[left]
        keys = hashes(np.arange(size, dtype=np.uint64))
        sums = np.zeros(len(indices) + 1, dtype=np.uint64)
        sums[1:] = _terms(keys[indices], weights)
        np.cumsum(sums, out=sums)
        sums = sums[indptr[1:]] - sums[indptr[:-1]]  # both wrap around alike
        return cls(indptr, indices, weights, loops, keys, sums)

    @property
    def size(self) -> int:
        return len(self.loops)

    @property
    def counts(self) -> Array:
        return np.diff(self.indptr)

    def between(self, nodes: Array, others: Array) -> Array:
        """Return the weight that joins each pair, (P,); 0 where none does."""
        sums = np.zeros(len(nodes))
        for pairs in _in_chunks(self.counts[nodes]):
            at, of = _flat(self.indptr, nodes[pairs], self.counts)
            hit = self.indices[at] == others[pairs][of]
            number = np.flatnonzero(hit)
            values = 1.0 if self.weights is None else self.weights[at[number]]
            sums[np.arange(len(nodes))[pairs][of[number]]] = values
        return sums

    def are_twins(self, nodes: Array, others: Array, *, joined: bool) -> Array:
        """Return whether pairs are alike but for the edge between them, (P,)."""
        counts = self.counts
        alike: Array = counts[nodes] == counts[others]
        alike &= self.loops[nodes] == self.loops[others]
        at = np.flatnonzero(alike)
        for pairs in _in_chunks(counts[nodes[at]]):
            chosen = at[pairs]
            alike[chosen] = self._are_equal(nodes[chosen], others[chosen], joined)
        return alike

    def _are_equal(self, nodes: Array, others: Array, joined: bool) -> Array:
        first, of = _flat(self.indptr, nodes, self.counts)
        second, _ = _flat(self.indptr, others, self.counts)
        if joined:  # each stands in the other's row
            keep_first = self.indices[first] != others[of]
            keep_second = self.indices[second] != nodes[of]
            first, second, of = first[keep_first], second[keep_second], of[keep_first]
        differs = self.indices[first] != self.indices[second]
        if self.weights is not None:
            differs |= self.weights[first] != self.weights[second]
        equal: Array = np.bincount(of[differs], minlength=len(nodes)) == 0
        return equal


def hashes(numbers: Array) -> Array:
    """Return 64 bits that look random for each number, uint64.

    Reference:
        Steele, Lea and Flood (2014), doi:10.1145/2660193.2660195, for the mixing.
    """
    mixed = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    result: Array = mixed ^ (mixed >> np.uint64(31))
    return result


def _terms(keys: Array, weights: Array | None) -> Array:
    """Return the hash of entries, by those of their columns and by their weights."""
    if weights is None:
        return keys
    bits = np.ascontiguousarray(weights, dtype=np.float64).view(np.uint64)
    terms: Array = keys * (hashes(bits) | np.uint64(1))
    return terms


def _merge_apart(rows: _Rows, first: Array) -> None:
    """Write the first twin of those that are not joined."""
    left = np.flatnonzero(rows.counts > 0)
    while len(left):
        left = left[np.argsort(rows.sums[left], kind="stable")]
        begins = np.diff(rows.sums[left], prepend=~rows.sums[left[:1]]) != 0
        heads = left[begins][np.cumsum(begins) - 1]
        heads, nodes = heads[~begins], left[~begins]
        alike = rows.are_twins(heads, nodes, joined=False)
        first[nodes[alike]] = heads[alike]
        left = np.sort(nodes[~alike])


def _merge_joined(rows: _Rows, first: Array) -> None:
    """Write the first twin of those that are joined."""
    heads, nodes = _alike_neighbours(rows)
    order = np.lexsort((heads, nodes))
    heads, nodes = heads[order], nodes[order]
    while len(nodes):
        begins = np.diff(nodes, prepend=-1) != 0
        alike = rows.are_twins(heads[begins], nodes[begins], joined=True)
        first[nodes[begins][alike]] = heads[begins][alike]
        # Where entries differ the next neighbour is tried.
        still = np.isin(nodes, nodes[begins][~alike]) & ~begins
        heads, nodes = heads[still], nodes[still]


def _alike_neighbours(rows: _Rows) -> tuple[Array, Array]:
    """Return joined pairs, the first below the second, that hashes say are twins."""
    alike: list[tuple[Array, Array]] = []
    nodes = np.arange(rows.size)
    for chunk in _in_chunks(rows.counts):
        at, of = _flat(rows.indptr, nodes[chunk], rows.counts)
        sources, targets = nodes[chunk][of], rows.indices[at].astype(np.int64)
        up = sources < targets
        at, sources, targets = at[up], sources[up], targets[up]
        weights = None if rows.weights is None else rows.weights[at]
        less_target = rows.sums[sources] - _terms(rows.keys[targets], weights)
        less_source = rows.sums[targets] - _terms(rows.keys[sources], weights)
        same = less_target == less_source
        alike.append((sources[same], targets[same]))
    heads, others = zip(*alike, strict=True)
    return np.concatenate(heads), np.concatenate(others)


def _in_chunks(counts: Array) -> Iterator[slice]:
    """Yield consecutive rows of some `CHUNK` entries, or one that has more."""
    ends = np.cumsum(counts)
    start = 0
    while start < len(counts):
        before = ends[start - 1] if start else 0
        stop = int(np.searchsorted(ends, before + CHUNK, side="right"))
        stop = max(stop, start + 1)
        yield slice(start, stop)
        start = stop


def _flat(indptr: Array, nodes: Array, counts: Array) -> tuple[Array, Array]:
    """Return the places of the entries of rows, and the number of the row of each."""
    lengths = counts[nodes]
    of = np.repeat(np.arange(len(nodes)), lengths)
    begins = np.cumsum(lengths) - lengths
    return np.arange(len(of)) - begins[of] + indptr[nodes][of], of
