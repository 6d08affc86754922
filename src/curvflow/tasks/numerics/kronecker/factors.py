"""Kronecker factors of Gauss-Newton and Fisher matrices, for a batch of models.

A block is the mean over samples n, and the sum over roots s of each, of vec(V) vec(V)',
where V = sum_t l_t r_t' is the gradient of s'f by the weight, over positions t. Of L =
mean_n sum_t l l' and R = mean_n mean_t r r' the block is approximated by L x R, row by
row of the weight. See `uses` and `layers` for the letters of shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.kronecker.blocks import BlockOperator
from curvflow.tasks.numerics.kronecker.chains import check_chain, hessian_blocks
from curvflow.tasks.numerics.kronecker.forms import (
    Block,
    Product,
    dense_block,
    diagonal_block,
)
from curvflow.tasks.numerics.kronecker.layers import (
    Approximation,
    Pass,
    Piece,
    Places,
    Read,
    SharedRows,
    Sides,
    check_positions,
    pieces,
)
from curvflow.tasks.numerics.kronecker.moments import (
    Added,
    Moments,
    Spread,
    Spreads,
    add_to,
    gradients,
    outer_of,
    some_at_a_time,
    spanned,
    squares_along,
    squares_of,
    turned,
)
from curvflow.tasks.numerics.kronecker.others import other_blocks
from curvflow.tasks.numerics.kronecker.recorded import (
    Begun,
    Recorded,
    accounted,
    alike,
    check_finite,
)
from curvflow.tasks.numerics.kronecker.recursions import (
    check_recursion,
    recursive_blocks,
)
from curvflow.tasks.numerics.kronecker.uses import AnyUse

Structure = Literal["kron", "ekfac", "kfoc", "block", "diag"]
Other = Literal["block", "diag", "refuse"]
Recursion = Literal["recursive", "hessian"]

# Iterations of the best product of two factors at most, and the change that ends them,
# as a multiple of the precision.
MOST_ITERATIONS, ENOUGH = 200, 4096


@dataclass(frozen=True)
class Choices:
    """The choice of factors.

    Attributes:
        structure: form of a layer's block.
        kfac_approx: whether each position counts by itself, or a sample's sum.
        separate_weight_and_bias: the bias has a separate block.
        other: form of the block of parameters of no layer.
        is_forward_only: what comes back through outputs is not looked at: I stands for
            its factor.
        layers: names of the tensors looked at; None for all.
        recursion: matrices by the outputs of layers follow from each other: those of
            means over samples, or of each sample's Hessian; None derives by roots.
        has_draws: roots are drawn at random, so that their spread is an error.
    """

    structure: Structure = "kron"
    kfac_approx: Approximation = "expand"
    separate_weight_and_bias: bool = False
    other: Other = "block"
    is_forward_only: bool = False
    layers: tuple[str, ...] | None = None
    recursion: Recursion | None = None
    has_draws: bool = False


@dataclass(frozen=True)
class Factors:
    """Factors, spreads and counts of sweeps over the data.

    Attributes:
        operator: all blocks.
        places: of the parameter tensors looked at.
        spreads: of each block with two factors, by its name.
        uses: number of uses of each layer, by the name of its weight.
        converged: whether iterations have ended by themselves, where there are some,
            (M,).
        num_backward: derivatives back through the networks, per sample.
    """

    operator: BlockOperator
    places: Places
    spreads: Mapping[str, Spread]
    uses: Mapping[str, int]
    converged: Tensor
    num_backward: int


def factors(of: Recorded, choices: Choices) -> Factors:
    """Return the blocks of the mean over all samples.

    Args:
        of: networks and data.
        choices: which factors.

    Returns:
        The blocks, in the order of the record; parameters of no layer come last.

    Raises:
        InputError: a parameter is in no layer that is known and `other` refuses it.

    Reference:
        Martens and Grosse (2015), arXiv:1503.05671; Grosse and Martens (2016),
        arXiv:1602.01407; Botev, Ritter and Barber (2017), arXiv:1706.03662; George et
        al. (2018), arXiv:1806.03884, for corrected eigenvalues; Eschenhagen et al.
        (2023), arXiv:2311.00636, for `expand` and `reduce`; Koroko et al. (2022),
        arXiv:2201.10285, for the best product.
    """
    return alike(of, lambda of: _factors(of, choices))


def _factors(of: Recorded, choices: Choices) -> Factors:
    """Return the blocks; see `factors`."""
    sweep = _Sweep(of, choices)
    is_dense = choices.structure == "block"
    spreads: Mapping[str, Spread] = {}
    blocks: list[Block]
    if choices.recursion is not None:
        blocks = sweep.recursion(choices.recursion, is_dense=is_dense)
    elif choices.structure in ("block", "diag"):
        blocks = sweep.whole(is_dense=is_dense)
    else:
        products, spreads = sweep.products()
        blocks = [*products]
        if choices.structure != "kron":
            spreads = dict(spreads)  # found now, so that the products need not be kept
        if choices.structure == "kfoc":
            blocks = sweep.best_products(products)
        if choices.structure == "ekfac":
            blocks = sweep.corrected(products)
    blocks += sweep.others()
    return Factors(
        BlockOperator(blocks, sweep.places.size),
        sweep.places,
        spreads,
        {layer.weight: len(layer.uses) for layer in sweep.read.layers},
        sweep.converged,
        sweep.num_backward,
    )


def check_factors(of: Recorded, choices: Choices) -> None:
    """Refuse layers that factors cannot be taken of, by a few samples.

    Args:
        of: networks and data; roots are not taken.
        choices: which factors.

    Raises:
        InputError: a recursion cannot cross a layer, positions cannot be summed, or a
            parameter is in no layer that is known and `other` refuses it.
    """
    _, _, several, of = alike(of, lambda of: _sorted(of, choices))
    if choices.recursion == "recursive":
        check_recursion(of, several)
    if choices.recursion == "hessian":
        check_chain(of)


def _sorted(
    of: Recorded, choices: Choices, begun: Begun | None = None
) -> tuple[Places, Read, list[Piece], Recorded]:
    """Return where parameters are, what they are in, and the blocks of layers.

    The networks come with passes that have to be like the one that was sorted.
    """
    chosen = set(of.names if choices.layers is None else choices.layers)
    places = Places.of(of.names, of.shapes, chosen, of.unselected)
    places_of, record = accounted(of, places, begun)
    for layer in places_of.layers:
        check_positions(layer, record, choices.kfac_approx)
    if choices.other == "refuse":
        _check_others(places_of, record)
    several = [
        piece
        for layer in places_of.layers
        for piece in pieces(layer, places, separate=choices.separate_weight_and_bias)
    ]
    if begun is None:
        of = of.expecting(places_of, record, of.few().inputs.shape[1])
    return places, places_of, several, of


class _Sweep:
    """Passes over the data, and the sums made in them."""

    def __init__(self, of: Recorded, choices: Choices) -> None:
        self._choices = choices
        # Of networks that need not be tried, the first pass tells what it is made of.
        sweeps = of.notes_all and choices.recursion is None
        self._begun = of.begun() if sweeps else None
        sorted_ = _sorted(of, choices, self._begun)
        self.places, self.read, self._pieces, self._of = sorted_
        self.converged = torch.ones(len(of.weights), dtype=torch.bool)
        self.num_backward = 0

    def products(self) -> tuple[list[Product], Mapping[str, Spread]]:
        """Return the products of two factors, and the errors of these."""
        how = self._choices
        moments = [
            Moments(
                piece,
                how.kfac_approx,
                self._of.num_samples,
                knows_returned=how.is_forward_only,
                has_draws=how.has_draws,
            )
            for piece in self._pieces
        ]
        for pass_ in self._passes():
            # Of what first layers have as a rule, many columns, the moments leave
            # nothing else in the cache.
            added: Added = {}
            for each in reversed(moments):
                each.add(pass_, added)
        made = [each.matrices() for each in moments]
        blocks = [
            Product(each.piece.name, each.piece.find_columns, *both)
            for each, both in zip(moments, made, strict=True)
        ]
        return blocks, Spreads(moments, made)

    def recursion(self, how: Recursion, *, is_dense: bool) -> list[Block]:
        """Return blocks by a recursion over the layers."""
        if how == "recursive":
            approx = self._choices.kfac_approx
            blocks, self.num_backward = recursive_blocks(self._of, self._pieces, approx)
            return blocks
        return hessian_blocks(self._of, self._pieces, is_dense=is_dense)

    def corrected(self, blocks: Sequence[Product]) -> list[Block]:
        """Return blocks with the exact second moments along their eigenvectors."""
        by_name = {block.name: block for block in blocks}

        def along(piece: Piece, pass_: Pass, sides: Sequence[Sides]) -> Tensor:
            block, models = by_name[piece.name].eigenpairs, pass_.part.models
            left, right = block.left[models], block.right[models]
            parts = [squares_along(few, left, right) for few in some_at_a_time(sides)]
            return parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)

        corrections = self._mean(along)
        return [
            replace(
                b.eigenpairs,
                values=corrections[b.name],
                left_values=None,
                right_values=None,
            )
            for b in blocks
        ]

    def whole(self, *, is_dense: bool) -> list[Block]:
        """Return the exact blocks, or their diagonals."""

        def exact(_: Piece, __: Pass, sides: Sequence[Sides]) -> Tensor:
            return outer_of(sides) if is_dense else squares_of(sides).flatten(1)

        blocks = self._mean(exact)
        make = dense_block if is_dense else diagonal_block
        return [make(p.name, p.columns, blocks[p.name]) for p in self._pieces]

    def best_products(self, blocks: Sequence[Product]) -> list[Block]:
        """Return the products of two factors that are closest to the exact blocks.

        In turn each factor is the best one for the other as it is: the
        power method for the leading pair of the rearranged block.
        """
        right = {block.name: block.right_factor for block in blocks}
        left = {block.name: block.left_factor for block in blocks}
        before = {name: _norm(left[name]) * _norm(right[name]) for name in left}
        going_M = torch.ones(
            len(self._of.weights), dtype=torch.bool, device=self._of.weights.device
        )
        eps = ENOUGH * torch.finfo(self._of.weights.dtype).eps
        for _ in range(MOST_ITERATIONS if blocks else 0):
            # A model that has ended stays as it is, whatever its siblings do.
            left = _moved(left, self._beside(right, transposed=False), going_M)
            right = _moved(right, self._beside(left, transposed=True), going_M)
            now = {name: _norm(left[name]) * _norm(right[name]) for name in left}
            changed = [((now[n] - before[n]).abs() > eps * now[n]).any(1) for n in now]
            going_M = going_M & torch.stack(changed).any(0)
            # Where memory is counted iterations are alike, and none has an end.
            if going_M.is_meta or not going_M.any():
                break
            before = now
        if not going_M.is_meta:
            self.converged = ~going_M.cpu() | (not blocks)
        return [Product(b.name, b.columns, left[b.name], right[b.name]) for b in blocks]

    def _beside(
        self, given: Mapping[str, Tensor], *, transposed: bool
    ) -> dict[str, Tensor]:
        """Return the mean of V B V' / ||B||^2 for each block, or of V' B V."""

        def beside(piece: Piece, pass_: Pass, sides: Sequence[Sides]) -> Tensor:
            middle = given[piece.name][pass_.part.models]
            blocks = [
                (turned(matrices, middle) @ matrices.mT).sum((1, 2))
                for matrices in gradients(sides, transposed=transposed)
            ]
            return torch.stack(blocks).sum(0)

        means = self._mean(beside)
        return {name: _over(mean, given[name]) for name, mean in means.items()}

    def _mean(
        self, added: Callable[[Piece, Pass, Sequence[Sides]], Tensor]
    ) -> dict[str, Tensor]:
        """Return the mean over samples of what each pass adds to each block."""
        sums: dict[str, list[Tensor]] = {piece.name: [] for piece in self._pieces}
        for pass_ in self._passes():
            for piece in self._pieces:
                sides = [each for _, each in piece.sides(pass_)]
                add_to(sums[piece.name], pass_.part, added(piece, pass_, sides))
        count = self._of.num_samples
        return {name: spanned(parts) / count for name, parts in sums.items()}

    def others(self) -> list[Block]:
        """Return the blocks of parameters of no layer."""
        blocks, number = other_blocks(
            self._of, self.read, self.places, self._choices.other == "block"
        )
        self.num_backward += number
        return blocks

    def _passes(self) -> Iterator[Pass]:
        """Yield a sweep's passes, with what comes back through layers alone."""
        if not self._pieces:
            return
        begun, self._begun = self._begun, None
        uses = {number for layer in self.read.layers for number in layer.uses}
        for pass_ in self._of.swept(begun, uses):
            if pass_.part.rows.start == 0 and pass_.part.models.start == 0:
                self.num_backward += pass_.num_draws
                if begun is not None:
                    few = [each[0][:, :2] for each in pass_.deltas if each]
                    check_finite([begun.outputs[:, :2], *few])
                    begun = None  # else its graph would be kept to the last pass
            yield replace(pass_, shared=SharedRows(pass_.record))


def _norm(matrices: Tensor) -> Tensor:
    """Return the norm of the factor of each group, (M, G)."""
    norms: Tensor = torch.linalg.vector_norm(matrices, dim=(2, 3))
    return norms


def _moved(
    before: Mapping[str, Tensor], after: Mapping[str, Tensor], going_M: Tensor
) -> dict[str, Tensor]:
    """Return what comes after for the models that go on."""
    kept_M111 = going_M[:, None, None, None]
    return {n: torch.where(kept_M111, after[n], before[n]) for n in before}


def _over(mean: Tensor, given: Tensor) -> Tensor:
    """Return means over squared norms, group by group; 0 for a factor that is zero."""
    square = given.square().sum((2, 3), keepdim=True)
    return torch.where(square > 0, mean / square, 0.0)


def _check_others(reading: Read, record: Sequence[AnyUse]) -> None:
    """Refuse parameters that are in no layer.

    Raises:
        InputError: there are some.
    """
    others = [*reading.rest, *(record[number].weight for number in reading.scalings)]
    if others:
        raise InputError(
            "other: expected every parameter in a dense layer, a convolution or an "
            f"embedding, got '{others[0]}'. Set other to block or diag, or leave it "
            "out of layers."
        )
