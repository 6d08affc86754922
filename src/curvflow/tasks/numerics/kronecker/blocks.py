"""Curvature by blocks of which all eigenpairs are at hand, for a batch of models.

Every block is (U x V) diag(values) (U x V)' with orthogonal U and V: of a Kronecker
product, whose values are products; with corrected values; of a dense block, where V is
1; of a diagonal, where both are.

Letters of shapes beside M models and D parameters: G groups, O rows and I columns of a
group of a weight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from torch import Tensor

from curvflow.errors import InputError

Pi = Literal["trace", "frobenius", "spectral"]


@dataclass(frozen=True)
class Block:
    """A symmetric matrix on some of the parameters.

    Attributes:
        name: of the weight, or of all tensors joined by " and ".
        columns: places of its G O I parameters in a vector, row by row.
        left: eigenvectors of the rows as columns, (M, G, O, O).
        right: eigenvectors of the columns, (M, G, I, I).
        values: eigenvalues, (M, G, O, I).
        left_values: eigenvalues of the left factor, (M, G, O); None where the values
            are no products.
        right_values: eigenvalues of the right factor, (M, G, I).
    """

    name: str
    columns: Tensor
    left: Tensor
    right: Tensor
    values: Tensor
    left_values: Tensor | None = None
    right_values: Tensor | None = None

    def turned(self, vectors_MPS: Tensor) -> Tensor:
        """Return vectors of the block in its eigenbasis, (M, S, G, O, I)."""
        return self.left.mT.unsqueeze(1) @ self._shaped(vectors_MPS) @ self._right

    def back(self, turned_MSGOI: Tensor) -> Tensor:
        """Return vectors (M, P, S) from the eigenbasis; the reverse of `turned`."""
        found = self.left.unsqueeze(1) @ turned_MSGOI @ self._right.mT
        return found.flatten(2).mT

    def _shaped(self, vectors_MPS: Tensor) -> Tensor:
        return torch.unflatten(vectors_MPS.mT, 2, self.values.shape[1:])

    @property
    def _right(self) -> Tensor:
        return self.right.unsqueeze(1)

    @property
    def left_factor(self) -> Tensor:
        """The factor of the rows, (M, G, O, O), of a product of two."""
        return _composed(self.left, self.left_values)

    @property
    def right_factor(self) -> Tensor:
        """The factor of the columns, (M, G, I, I), of a product of two."""
        return _composed(self.right, self.right_values)

    def select(self, models: Tensor) -> Block:
        """Return the block of some of the models, by their indices (m,)."""

        def chosen(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor[models]

        return replace(
            self,
            left=self.left[models],
            right=self.right[models],
            values=self.values[models],
            left_values=chosen(self.left_values),
            right_values=chosen(self.right_values),
        )

    def inverted(self, damping_M: Tensor, pi: Pi | float | None) -> Tensor:
        """Return the eigenvalues of the damped inverse, (M, G, O, I).

        Args:
            damping_M: of each model.
            pi: how the root of the damping is split between two factors; None inverts
                the damped block itself, as do blocks that are no products.

        Returns:
            What stands for the eigenvalues.

        Reference:
            Martens and Grosse (2015), arXiv:1503.05671, section 6.3, for the factored
            form and the split by traces; Botev (2020), section 4.4.2.
        """
        if pi is None or self.left_values is None or self.right_values is None:
            return 1 / (self.values + damping_M[:, None, None, None])
        split_MG = _split(self.left_values, self.right_values, pi)
        root_M1 = damping_M.sqrt().unsqueeze(1)
        left_MGO = self.left_values + (root_M1 / split_MG).unsqueeze(2)
        right_MGI = self.right_values + (root_M1 * split_MG).unsqueeze(2)
        return 1 / (left_MGO.unsqueeze(3) * right_MGI.unsqueeze(2))


def _composed(vectors: Tensor, values: Tensor | None) -> Tensor:
    assert values is not None
    return (vectors * values.unsqueeze(2)) @ vectors.mT


def _split(left_MGO: Tensor, right_MGI: Tensor, pi: Pi | float) -> Tensor:
    """Return the factor of the right factor's damping, (M, G)."""
    if not isinstance(pi, str):
        return left_MGO.new_full(left_MGO.shape[:2], float(pi))
    return balance(_size(right_MGI, pi), _size(left_MGO, pi))


def balance(right_MG: Tensor, left_MG: Tensor) -> Tensor:
    """Return pi of two factors by their sizes; 1 where one has none or no number.

    Args:
        right_MG: size of the right factor, per row.
        left_MG: the same of the left one.
    """
    ratio_MG = (right_MG / left_MG).sqrt()
    usable_MG = torch.isfinite(ratio_MG) & (ratio_MG > 0)
    return torch.where(usable_MG, ratio_MG, 1.0)


def _size(values_MGK: Tensor, norm: str) -> Tensor:
    """Return a norm of factors, per row so that sizes of factors do not matter."""
    match norm:
        case "trace":
            return values_MGK.mean(2)
        case "frobenius":
            return values_MGK.square().mean(2).sqrt()
    return values_MGK.amax(2)


class BlockOperator:
    """A symmetric operator of M models of shape (M, D, D) by blocks of eigenpairs.

    Parameters that are in no block are multiplied by zero.
    """

    def __init__(self, blocks: Sequence[Block], size: int) -> None:
        """Take blocks that have no parameter in common, and D."""
        if not blocks:
            raise InputError("layers: expected at least one block, got none. Add one.")
        self.blocks = tuple(blocks)
        values = blocks[0].values
        self.shape = (len(values), size, size)
        self.dtype, self.device = values.dtype, values.device

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the products with vectors (M, D) or columns (M, D, S)."""
        return self.scaled(columns, lambda block: block.values)

    def select(self, models: Tensor) -> Self:
        """Return the operator of some of the models, by their indices (m,)."""
        blocks = [block.select(models) for block in self.blocks]
        return type(self)(blocks, self.shape[1])

    def scaled(self, columns: Tensor, scale: Callable[[Block], Tensor]) -> Tensor:
        """Return products with a function of the operator.

        Args:
            columns: vectors (M, D) or columns (M, D, S).
            scale: from a block to what stands for its eigenvalues, (M, G, O, I).

        Returns:
            The products, of the shape of the columns.
        """
        if columns.ndim == 2:
            return self.scaled(columns.unsqueeze(2), scale).squeeze(2)
        found_MDS = torch.zeros_like(columns)
        for block in self.blocks:
            turned = block.turned(columns[:, block.columns])
            found_MDS[:, block.columns] = block.back(turned * scale(block).unsqueeze(1))
        return found_MDS

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
            damping: a number, or one of each model, (M,); not negative.
            pi: as for `Block.inverted`; None for the inverse itself.

        Returns:
            The solutions; not finite where K is singular and nothing is added.
        """
        damping_M = self.each(damping)
        return self.scaled(columns, lambda block: block.inverted(damping_M, pi))

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
        flat = torch.cat([block.values.flatten(1) for block in self.blocks], dim=1)
        return flat.sort(dim=1).values

    @property
    def diagonal(self) -> Tensor:
        """The diagonal, (M, D); zero of parameters that are in no block."""
        found_MD = self.blocks[0].values.new_zeros(self.shape[:2])
        for b in self.blocks:
            entries = b.left.square() @ b.values @ b.right.square().mT
            found_MD[:, b.columns] = entries.flatten(1)
        return found_MD

    @property
    def trace(self) -> Tensor:
        """The trace, (M,)."""
        return self.eigenvalues.sum(1)

    def logdet(self, damping: float | Tensor = 0.0) -> Tensor:
        """Return log det(K + damping) on the parameters in blocks, (M,)."""
        return (self.eigenvalues + self.each(damping).unsqueeze(1)).log().sum(1)

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


def decomposed(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues and eigenvectors of positive semidefinite matrices.

    Args:
        matrices: (..., n, n), symmetric up to rounding.

    Returns:
        Values (..., n), ascending, those below zero by rounding set to zero, and
        vectors as columns; of a matrix that is not finite NaN.
    """
    is_finite = torch.isfinite(matrices).flatten(-2).all(-1)[..., None, None]
    safe = torch.where(is_finite, matrices, 0.0)
    values, vectors = torch.linalg.eigh((safe + safe.mT) / 2)
    values = values.masked_fill(~is_finite.squeeze(-1), torch.nan)
    return values, vectors


def product_block(
    name: str,
    columns: Tensor,
    left: Tensor,
    right: Tensor,
    *,
    is_semidefinite: bool = True,
) -> Block:
    """Return the block of a Kronecker product of two factors.

    Args:
        name: of the weight.
        columns: places of its parameters.
        left: factor of the rows, (M, G, O, O).
        right: factor of the columns, (M, G, I, I), positive semidefinite.
        is_semidefinite: so is the left factor, and is below zero by rounding alone.
    """
    left_values, left_vectors = decomposed(left)
    right_values, right_vectors = decomposed(right)
    right_values = right_values.clamp(min=0)
    if is_semidefinite:
        left_values = left_values.clamp(min=0)
    values = left_values.unsqueeze(3) * right_values.unsqueeze(2)
    both = (left_values, right_values) if is_semidefinite else (None, None)
    return Block(name, columns, left_vectors, right_vectors, values, *both)


def dense_block(name: str, columns: Tensor, matrices_MPP: Tensor) -> Block:
    """Return the block of a symmetric matrix (M, P, P), definite or not."""
    values_MP, vectors_MPP = decomposed(matrices_MPP)
    one = torch.ones_like(values_MP[:, :1])[..., None, None]
    return Block(
        name, columns, vectors_MPP.unsqueeze(1), one, values_MP[:, None, :, None]
    )


def diagonal_block(name: str, columns: Tensor, values_MP: Tensor) -> Block:
    """Return the block of a diagonal (M, P)."""
    ones = torch.ones_like(values_MP)[..., None, None]
    return Block(name, columns, ones, ones, values_MP[..., None, None])
