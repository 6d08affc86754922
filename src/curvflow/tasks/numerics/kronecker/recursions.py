"""Left factors that follow from each other through networks of any layers.

With h_l all outputs of layer l at a sample, positions and all, and J_n the derivative
of what comes next by h_l at sample n,

    G_l = mean_n J_n' G_next J_n.

Next is the first layer behind l that everything passes through, so that of branches
side by side, and of what goes around layers, the derivative is of the sample as it is;
where there is none, it is the outputs with their own matrices of each sample. Means of
G_next and of derivatives are taken apart, as of chains of dense layers, where it is the
same recursion. Of a layer used at several positions the factor is the sum of the blocks
of G_l of each position, or of all pairs of positions with `reduce`.

Letters of shapes: see `uses` and `layers`; K entries of h_next, H of h_l.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.autograd_nodes import nodes_of
from curvflow.tasks.numerics.derivatives.passes import Part
from curvflow.tasks.numerics.kronecker.chains import is_chain, recursive_factors
from curvflow.tasks.numerics.kronecker.forms import Block, Product, decomposed
from curvflow.tasks.numerics.kronecker.layers import Approximation, Piece
from curvflow.tasks.numerics.kronecker.moments import add_to, gram, spanned
from curvflow.tasks.numerics.kronecker.recorded import Recorded, backward
from curvflow.tasks.numerics.kronecker.uses import AnyUse, Rows, Use, Windows

# Numbers that what comes back through a layer may hold at once.
MOST_NUMBERS = 1 << 23


def recursive_blocks(
    of: Recorded, pieces: Sequence[Piece], kfac_approx: Approximation
) -> tuple[list[Block], int]:
    """Return products of two factors, of which the left ones follow from each other.

    Args:
        of: networks and data.
        pieces: the blocks wanted.
        kfac_approx: whether each position counts by itself, or a sample's sum.

    Returns:
        The blocks, and the number of derivatives back of each sample; none of chains
        of dense layers, whose derivatives are products of known matrices.

    Raises:
        InputError: a layer is used twice, or is neither dense nor a convolution.
    """
    if is_chain(of):
        factors, count = recursive_factors(of, pieces), 0
    else:
        factors, count = branched_factors(of, pieces, kfac_approx)
    blocks: list[Block] = [
        Product(piece.name, piece.columns, *both)
        for piece, both in zip(pieces, factors, strict=True)
    ]
    return blocks, count


def check_recursion(of: Recorded, pieces: Sequence[Piece]) -> None:
    """Refuse layers that `recursive_blocks` cannot cross, by a few samples.

    Args:
        of: networks and data.
        pieces: the blocks wanted.

    Raises:
        InputError: a layer is used twice, or is neither dense nor a convolution.
    """
    if not is_chain(of):
        _check(of.forward(next(of.parts()).first(2))[1], pieces)


@dataclass
class _Wanted:
    """Sums over samples at the outputs of a layer.

    Attributes:
        number: of its use in the record.
        pieces: blocks of its weight, one or two; none of a layer not looked at.
        is_next: whether G_l is needed, in addition to its blocks.
        left: sums of the blocks of G_l, (M, G, O, O), of each span of models.
        whole: sums of J' G_next J, (M, H, H).
        right: sums of what goes in, (M, G, I, I), of each piece.
    """

    number: int
    pieces: list[Piece] = field(default_factory=list)
    is_next: bool = False
    left: list[Tensor] = field(default_factory=list)
    whole: list[Tensor] = field(default_factory=list)
    right: dict[str, list[Tensor]] = field(default_factory=dict)


def branched_factors(
    of: Recorded, pieces: Sequence[Piece], kfac_approx: Approximation
) -> tuple[list[tuple[Tensor, Tensor]], int]:
    """Return left and right factors of layers of any network.

    Args:
        of: networks and data.
        pieces: the blocks wanted.
        kfac_approx: as for `recursive_blocks`.

    Returns:
        Factors (M, G, O, O) and (M, G, I, I) of each piece, and the number of
        derivatives back of each sample.

    Raises:
        InputError: a layer is used twice, or is neither dense nor a convolution.
    """
    outputs, record, _ = of.forward(next(of.parts()).first(2))
    _check(record, pieces)
    following = _following(outputs, record, None if of.notes_all else pieces)
    wanted = _wanted(pieces, following)
    roots: dict[int, Tensor] = {}
    count = 0
    ends = {following[number] for number in wanted}
    for end in sorted(ends, key=lambda n: len(record) if n is None else n)[::-1]:
        group = [place for place in wanted.values() if following[place.number] == end]
        count += _sweep(of, group, kfac_approx, end, roots)
        for place in group:
            if place.is_next:
                roots[place.number] = _root(spanned(place.whole) / of.num_samples)
                place.whole.clear()
    factors = {
        piece.name: (spanned(place.left), spanned(place.right[piece.name]))
        for place in wanted.values()
        for piece in place.pieces
    }
    samples = of.num_samples
    return [
        (factors[p.name][0] / samples, factors[p.name][1] / samples) for p in pieces
    ], count


def _wanted(
    pieces: Sequence[Piece], following: Mapping[int, int | None]
) -> dict[int, _Wanted]:
    """Return the layers looked at, and those that are next to any, by their numbers."""
    wanted: dict[int, _Wanted] = {}
    for piece in pieces:
        (number,) = piece.layer.uses
        wanted.setdefault(number, _Wanted(number)).pieces.append(piece)
    for number in list(wanted):
        after = following[number]
        while after is not None:
            wanted.setdefault(after, _Wanted(after)).is_next = True
            after = following[after]
    return wanted


def _root(matrices: Tensor) -> Tensor:
    """Return S of positive semidefinite matrices S'S, (M, K, K)."""
    values, vectors = decomposed(matrices)
    return values.clamp(min=0).sqrt().unsqueeze(2) * vectors.mT


def _check(record: Sequence[AnyUse], pieces: Sequence[Piece]) -> None:
    """Refuse layers whose outputs are not those of one dense layer or convolution.

    Raises:
        InputError: there is one.
    """
    for piece in pieces:
        uses = [record[number] for number in piece.layer.uses]
        forms = [use.form for use in uses if isinstance(use, Use)]
        if len(uses) != 1 or not isinstance(forms[0], Rows | Windows):
            raise InputError(
                "fisher_type: expected dense layers and convolutions that are used "
                f"once, for recursive, got '{piece.layer.weight}'. Take type-2, or "
                "leave it out of layers."
            )


def _following(
    outputs: Tensor, record: Sequence[AnyUse], tried: Sequence[Piece] | None
) -> dict[int, int | None]:
    """Return of each layer the next that all that comes of it passes through.

    Args:
        outputs: of a pass.
        record: of the pass.
        tried: blocks of layers whose rows are known to be of single samples; None for
            all layers.

    Returns:
        Numbers of uses; None where there is none before the outputs.
    """
    layers = [number for number, use in enumerate(record) if isinstance(use, Use)]
    by_sample = [n for n in layers if _is_by_sample(record[n])]
    if tried is not None:
        known = {n for p in tried if not p.layer.tokens_first for n in p.layer.uses}
        by_sample = [n for n in by_sample if n in known]
    around = {n: _reached(outputs, record[n]) for n in by_sample}

    def is_passed(before: int, number: int) -> bool:
        nodes = [tensor.grad_fn for tensor in record[before].outputs]
        return not around[number].intersection(nodes)

    return {
        before: next((n for n in around if n > before and is_passed(before, n)), None)
        for before in layers
    }


def _is_by_sample(use: AnyUse) -> bool:
    """Return whether outputs of a sample stand together."""
    return not (
        isinstance(use, Use) and isinstance(use.form, Rows) and use.form.tokens_first
    )


def _reached(outputs: Tensor, use: AnyUse) -> set[Any]:
    """Return the graph that outputs are made of but through a layer's outputs."""
    return set(nodes_of([outputs], closed={tensor.grad_fn for tensor in use.outputs}))


def _sweep(
    of: Recorded,
    group: Sequence[_Wanted],
    how: Approximation,
    end: int | None,
    roots: Mapping[int, Tensor],
) -> int:
    """Add up what comes back to layers that have the same next one.

    Args:
        of: networks and data.
        group: of these layers.
        how: whether each position counts by itself, or a sample's sum.
        end: the next one; None for the outputs.
        roots: S of next ones, (M, K, K), so that G_next = S'S.

    Returns:
        The number of derivatives back of each sample.
    """
    count = 0
    for part in of.parts():
        outputs, record, _ = of.forward(part)
        if end is None:
            ends: tuple[Tensor, ...] = (outputs,)
            rows = of.roots(part, outputs.detach())
        else:
            ends = record[end].outputs
            samples = part.inputs.shape[1]
            rows = roots[end][part.models].unsqueeze(1).expand(-1, samples, -1, -1)
        count = rows.shape[2]
        uses = [record[place.number] for place in group]
        added = [_Added(place, how) for place in group]
        for few in torch.split(rows, _at_once(uses, part), dim=2):
            swept = backward(ends, uses, few, keeps_graph=True)
            for place, use, deltas in zip(added, uses, swept, strict=True):
                place.add(use, deltas, part)
        for place in added:
            place.into(part)
    return count


def _at_once(uses: Sequence[AnyUse], part: Part) -> int:
    """Return how many roots may go back at once, whatever the number of models."""
    each = sum(tensor.numel() for use in uses for tensor in use.outputs)
    return max(1, MOST_NUMBERS * len(part.weights) // max(1, each))


@dataclass
class _Added:
    """Terms that a pass adds to the sums of a layer.

    Attributes:
        wanted: the sums.
        how: whether each position counts by itself, or a sample's sum.
        left: of the blocks.
        whole: of G_l.
        right: of what goes in, by names of pieces.
    """

    wanted: _Wanted
    how: Approximation
    left: Tensor | None = None
    whole: Tensor | None = None
    right: dict[str, Tensor] = field(default_factory=dict)

    def add(self, use: AnyUse, deltas: Sequence[Tensor], part: Part) -> None:
        """Add what comes back of some roots, of each (M, N, ...)."""
        samples = part.inputs.shape[1]
        if self.wanted.is_next:
            rows = torch.stack([d.reshape(len(d), samples, -1) for d in deltas], dim=2)
            self.whole = _sum(self.whole, gram(rows.flatten(1, 2)))
        if not self.wanted.pieces:
            return
        layer = self.wanted.pieces[0].layer
        use = layer.ordered(use)
        several = layer.returned(use, deltas, samples)
        self.left = _sum(self.left, self._moment(torch.stack(several, dim=2)))
        if self.right:
            return
        given = use.form.given(use.inputs.detach(), layer.shape, samples).to(deltas[0])
        given = given.unsqueeze(2).expand(len(deltas[0]), *[-1] * 5)
        for piece in self.wanted.pieces:
            ones = [torch.ones_like(given[..., :1])] if piece.has_bias else []
            rows = torch.cat([given, *ones] if piece.has_weight else ones, dim=5)
            if self.how == "reduce":
                rows = rows.mean(3, keepdim=True)
            self.right[piece.name] = self._moment(rows) / rows.shape[3]

    def _moment(self, rows: Tensor) -> Tensor:
        """Return the sum of r r' of rows (M, N, R, T, G, K), (M, G, K, K)."""
        if self.how == "reduce":
            rows = rows.sum(3, keepdim=True)
        return gram(rows.permute(0, 4, 1, 2, 3, 5).flatten(2, 4))

    def into(self, part: Part) -> None:
        """Add the sums of the pass to those of all."""
        for total, added in (
            (self.wanted.left, self.left),
            (self.wanted.whole, self.whole),
        ):
            if added is not None:
                add_to(total, part, added)
        for name, added in self.right.items():
            add_to(self.wanted.right.setdefault(name, []), part, added)


def _sum(before: Tensor | None, added: Tensor) -> Tensor:
    return added if before is None else before + added
