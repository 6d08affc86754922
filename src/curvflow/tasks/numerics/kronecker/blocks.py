"""Curvature by blocks, as an operator and as a preconditioner of a batch of models.

Letters of shapes, besides M models and D parameters: see `forms`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, Self

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.kronecker.forms import (
    Block,
    Eigenpairs,
    Pi,
    damped_values,
)

# Of the width of a spectrum, how far from its end a preconditioner has its pole.
EDGE = 0.01


class BlockOperator:
    """A symmetric operator of M models of shape (M, D, D) by blocks.

    Parameters that are in no block are multiplied by zero.
    """

    def __init__(self, blocks: Sequence[Block], size: int) -> None:
        """Take blocks that have no parameter in common, and D."""
        if not blocks:
            raise InputError("layers: expected at least one block, got none. Add one.")
        first = blocks[0].trace
        self.blocks = tuple(_on(block, first.device) for block in blocks)
        self.shape = (len(first), size, size)
        self.dtype, self.device = first.dtype, first.device
        self._inverse: tuple[object, BlockOperator] | None = None

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the products with vectors (M, D) or columns (M, D, S)."""
        return self._by_blocks(columns, lambda block, part: block.times(part))

    def select(self, models: Tensor) -> Self:
        """Return the operator of some of the models, by their indices (m,)."""
        blocks = [block.select(models) for block in self.blocks]
        return type(self)(blocks, self.shape[1])

    def inverse(
        self, damping: float | Tensor = 0.0, *, pi: Pi | float | None = None
    ) -> BlockOperator:
        """Return (K + damping)^-1 as an operator, to be multiplied many times.

        Args:
            damping: a number, or one of each model, (M,); not negative.
            pi: splits the root of the damping between both factors of a block, whose
                inverses are then multiplied: `trace`, `frobenius`, `spectral` or a
                number; None inverts K + damping itself, by eigenpairs.

        Returns:
            The inverse; not finite where K is singular and nothing is added.

        Raises:
            InputError: the damping is negative.
        """
        damping_M = self.each(damping)
        key = tuple(damping_M.tolist()), pi
        if self._inverse is None or self._inverse[0] != key:
            blocks = [block.inverse(damping_M, pi) for block in self.blocks]
            self._inverse = key, BlockOperator(blocks, self.shape[1])
        return self._inverse[1]

    def solve(
        self,
        columns: Tensor,
        damping: float | Tensor = 0.0,
        *,
        pi: Pi | float | None = None,
    ) -> Tensor:
        """Return (K + damping)^-1 v of vectors (M, D) or columns (M, D, S).

        Args:
            columns: v.
            damping: as for `inverse`.
            pi: as for `inverse`.

        Returns:
            The solutions; not finite where K is singular and nothing is added.

        Raises:
            InputError: the damping is negative.
        """
        return self.inverse(damping, pi=pi) @ columns

    def scaled(self, columns: Tensor, scale: Callable[[Eigenpairs], Tensor]) -> Tensor:
        """Return products with a function of the operator.

        Args:
            columns: vectors (M, D) or columns (M, D, S).
            scale: from a block to what stands for its eigenvalues, (M, G, O, I).

        Returns:
            The products, of the shape of the columns.
        """

        def times(block: Block, part: Tensor) -> Tensor:
            pairs = block.eigenpairs
            return pairs.scaled(part, scale(pairs))

        return self._by_blocks(columns, times)

    def _by_blocks(
        self, columns: Tensor, times: Callable[[Block, Tensor], Tensor]
    ) -> Tensor:
        if columns.ndim == 2:
            return self._by_blocks(columns.unsqueeze(2), times).squeeze(2)
        is_whole = sum(len(block.columns) for block in self.blocks) == self.shape[1]
        # Where all is written, nothing is to be cleared before.
        found_MDS = (torch.empty_like if is_whole else torch.zeros_like)(columns)
        for block in self.blocks:
            if (span := block.span) is None:
                part = columns.index_select(1, block.columns)
                found_MDS.index_copy_(1, block.columns, times(block, part))
            else:
                found_MDS[:, span] = times(block, columns[:, span])
        return found_MDS

    def towards(self, which: Literal["LA", "SA"]) -> BlockOperator:
        """Return a positive definite operator that brings out one end of the spectrum.

        It is (K - a)^-1 with a below all eigenvalues for SA, or (b - K)^-1 with b above
        them for LA, by EDGE of the width of the spectrum, or 1 where that is a point.

        Args:
            which: the upper or the lower end.
        """
        values = self.eigenvalues
        least_M, most_M = values[:, 0], values[:, -1]
        width_M = most_M - least_M
        edge_M = torch.where(width_M > 0, EDGE * width_M, 1.0)

        def inverse(block: Block) -> Block:
            pairs, shape = block.eigenpairs, (-1, 1, 1, 1)
            is_low = which == "SA"
            away = pairs.values - least_M.view(shape)
            away = away if is_low else width_M.view(shape) - away
            values = 1 / (away.clamp(min=0) + edge_M.view(shape))
            return replace(pairs, values=values, left_values=None, right_values=None)

        return BlockOperator([inverse(b) for b in self.blocks], self.shape[1])

    def root(self, columns: Tensor) -> Tensor:
        """Return K^1/2 v of vectors (M, D) or columns (M, D, S)."""
        return self.scaled(columns, lambda block: block.values.clamp(min=0).sqrt())

    def samples(self, normal: Tensor, damping: float | Tensor) -> Tensor:
        """Return vectors of the law N(0, (K + damping)^-1).

        Args:
            normal: standard normal numbers, (M, D, S).
            damping: as for `solve`; a prior's precision.
        """
        damping_M = self.each(damping)
        return self.scaled(normal, lambda b: b.inverted(damping_M, None).sqrt())

    @property
    def eigenvalues(self) -> Tensor:
        """All eigenvalues in ascending order, (M, D'), D' parameters in blocks."""
        flat = torch.cat(
            [block.eigenpairs.values.flatten(1) for block in self.blocks], dim=1
        )
        return flat.sort(dim=1).values

    @property
    def diagonal(self) -> Tensor:
        """The diagonal, (M, D); zero of parameters that are in no block."""
        found_MD = torch.zeros(self.shape[:2], dtype=self.dtype, device=self.device)
        for block in self.blocks:
            found_MD[:, block.columns] = block.diagonal
        return found_MD

    @property
    def trace(self) -> Tensor:
        """The trace, (M,)."""
        return torch.stack([block.trace for block in self.blocks]).sum(0)

    def logdet(self, damping: float | Tensor = 0.0) -> Tensor:
        """Return log det(K + damping) on the parameters in blocks, (M,).

        Args:
            damping: as for `inverse`.

        Returns:
            The logarithms; -inf where K is singular and nothing is added, NaN where
            K + damping has negative eigenvalues.
        """
        damping_M111 = self.each(damping)[:, None, None, None]
        damped = [
            damped_values(block.eigenpairs.values, damping_M111).flatten(1)
            for block in self.blocks
        ]
        return torch.cat(damped, dim=1).sort(dim=1).values.log().sum(1)

    def each(self, damping: float | Tensor) -> Tensor:
        """Return a damping of each model, (M,).

        Raises:
            InputError: it is negative.
        """
        given = torch.as_tensor(damping, dtype=self.dtype, device=self.device)
        if (given < 0).any():
            raise InputError(
                f"damping: expected a number of at least 0, got {float(given.min())}. "
                "Raise it."
            )
        return given.expand(self.shape[0])


def _on(block: Block, device: torch.device) -> Block:
    """Return a block whose places are on the device of its numbers."""
    if not isinstance(block.places, Tensor) and device.type == "cpu":
        return block  # places are found there
    if block.columns.device == device:
        return block
    return replace(block, places=block.columns.to(device))


class DampedBlocks:
    """P = K + damping of M models, as a preconditioner."""

    def __init__(self, blocks: BlockOperator, damping: float) -> None:
        """Take K and the damping, above zero where K is singular."""
        self._blocks, self._damping = blocks, damping

    def logdet(self) -> Tensor:
        """Return log det P, (M,)."""
        return self._blocks.logdet(self._damping)

    def inverse_root(self, columns_MDS: Tensor) -> Tensor:
        """Return P^-1/2 times columns, (M, D, S)."""
        damping_M = self._blocks.each(self._damping)
        return self._blocks.scaled(
            columns_MDS, lambda block: block.inverted(damping_M, None).sqrt()
        )

    @property
    def largest(self) -> Tensor:
        """The largest eigenvalue of P, (M,)."""
        return self._blocks.eigenvalues[:, -1] + self._damping

    def select(self, models: Tensor) -> Self:
        """Return that of some of the models, by their indices (m,)."""
        return type(self)(self._blocks.select(models), self._damping)
