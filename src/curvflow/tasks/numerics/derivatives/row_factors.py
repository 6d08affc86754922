"""Matrices of low rank by their rows: damped solves and running second moments.

F = R'KR + rho (I - R'R) with R R' = I: all of F within the space of the rows of R, and
rho in every direction outside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class Rows(Protocol):
    """R rows of D entries for each of M models, in double precision.

    Attributes:
        size: D.
    """

    @property
    def size(self) -> int:
        """Number of columns."""

    def gram(self) -> Tensor:
        """Return GG', (M, R, R)."""

    def times(self, vectors_MD: Tensor) -> Tensor:
        """Return Gv, (M, R)."""

    def combined(self, factors_MR: Tensor) -> Tensor:
        """Return G'u, (M, D)."""


@dataclass(frozen=True)
class FullRows:
    """Rows that are written out.

    Attributes:
        rows: G.
    """

    rows: Tensor

    @property
    def size(self) -> int:
        """Number of columns, D."""
        return self.rows.shape[2]

    def gram(self) -> Tensor:
        """Return GG', (M, R, R)."""
        return self.rows @ self.rows.mT

    def times(self, vectors_MD: Tensor) -> Tensor:
        """Return Gv, (M, R)."""
        return (self.rows @ vectors_MD.unsqueeze(2)).squeeze(2)

    def combined(self, factors_MR: Tensor) -> Tensor:
        """Return G'u, (M, D)."""
        return (self.rows.mT @ factors_MR.unsqueeze(2)).squeeze(2)


@dataclass(frozen=True)
class OuterLayer:
    """The part of rows that belongs to a dense layer: outer products delta a'.

    Attributes:
        deltas: what goes back through the layer's outputs in each row.
        inputs: what goes in for each sample; a row's sample is the row over R / N.
        weight: place of the first weight in a row, (O, I) row by row.
        bias: place of the first bias; None without.
    """

    deltas: Tensor
    inputs: Tensor
    weight: int
    bias: int | None

    def _per_row(self, per_sample: Tensor, dim: int) -> Tensor:
        draws = self.deltas.shape[1] // self.inputs.shape[1]
        return per_sample if draws == 1 else per_sample.repeat_interleave(draws, dim)

    def gram(self) -> Tensor:
        """Return the layer's share of GG': (DD') * (AA' + 1 for a bias)."""
        inner_MNN = self.inputs @ self.inputs.mT
        if self.bias is not None:
            inner_MNN += 1
        inner_MRR = self._per_row(self._per_row(inner_MNN, 1), 2)
        return (self.deltas @ self.deltas.mT).mul_(inner_MRR)

    def times(self, vectors_MD: Tensor) -> Tensor:
        """Return the layer's share of Gv."""
        units, inputs = self.deltas.shape[2], self.inputs.shape[2]
        end = self.weight + units * inputs
        weight_MOI = vectors_MD[:, self.weight : end].view(-1, units, inputs)
        outputs_MNO = self.inputs @ weight_MOI.mT
        if self.bias is not None:
            outputs_MNO += vectors_MD[:, None, self.bias : self.bias + units]
        return (self._per_row(outputs_MNO, 1) * self.deltas).sum(2)

    def combine(self, factors_MR: Tensor, into_MD: Tensor) -> None:
        """Write the layer's share of G'u to its place."""
        units, inputs = self.deltas.shape[2], self.inputs.shape[2]
        scaled_MRO = self.deltas * factors_MR.unsqueeze(2)
        if self.bias is not None:
            into_MD[:, self.bias : self.bias + units] = scaled_MRO.sum(1)
        samples = self.inputs.shape[1]
        scaled_MNO = scaled_MRO.view(len(factors_MR), samples, -1, units).sum(2)
        end = self.weight + units * inputs
        into_MD[:, self.weight : end] = (scaled_MNO.mT @ self.inputs).flatten(1)


@dataclass(frozen=True)
class OuterRows:
    """Rows of a network of dense layers, never written out.

    The product of two rows is that of the deltas times that of the inputs, layer by
    layer, so that GG' takes R^2 (I + O) products in place of R^2 I O.

    Attributes:
        layers: all that have parameters, once each.
        size: D.
    """

    layers: Sequence[OuterLayer]
    size: int

    def gram(self) -> Tensor:
        """Return GG', (M, R, R)."""
        first, *others = self.layers
        total_MRR = first.gram()
        for layer in others:
            total_MRR += layer.gram()
        return total_MRR

    def times(self, vectors_MD: Tensor) -> Tensor:
        """Return Gv, (M, R)."""
        return torch.stack([layer.times(vectors_MD) for layer in self.layers]).sum(0)

    def combined(self, factors_MR: Tensor) -> Tensor:
        """Return G'u, (M, D)."""
        found_MD = factors_MR.new_empty(len(factors_MR), self.size)
        for layer in self.layers:
            layer.combine(factors_MR, found_MD)
        return found_MD


# Where the solution is shorter than v / kappa by more than this, as much of the
# difference that it is of v and G'u is lost to rounding, and is computed once more.
CANCELLED = 1e4


def damped_solve(
    rows: Rows, vectors_MD: Tensor, alpha_M1: Tensor, least_M1: Tensor
) -> Tensor:
    """Return (F + kappa I)^-1 v for F = G'G, kappa = alpha / D max(tr F, least).

    Args:
        rows: those of G.
        vectors_MD: v of each model.
        alpha_M1: damping as a multiple of the mean eigenvalue, above zero.
        least_M1: bound of the trace from below.

    Returns:
        The solutions (M, D), computed and returned in double precision; NaN for a model
        whose damping is lost in rounding.

    Examples:
        >>> from curvflow.tasks.numerics import damped_solve
        >>> from curvflow.tasks.numerics.derivatives.row_factors import FullRows
        >>> rows = FullRows(torch.eye(2).double().unsqueeze(0))  # F = I, kappa = 1
        >>> one = torch.ones(1, 1).double()
        >>> damped_solve(rows, torch.ones(1, 2), one, 0 * one).tolist()
        [[0.5, 0.5]]

    Reference:
        Woodbury's identity: kappa (F + kappa I)^-1 v = v - G'(GG' + kappa I)^-1 G v.
    """
    vectors_MD = vectors_MD.double()
    gram_MRR = rows.gram()
    trace_M1 = gram_MRR.diagonal(dim1=1, dim2=2).sum(1, keepdim=True)
    kappa_M1 = alpha_M1 / rows.size * torch.maximum(trace_M1, least_M1)
    # Without checks, which would end the models next to a diverged one.
    damped_MRR = gram_MRR + torch.diag_embed(kappa_M1.expand(-1, gram_MRR.shape[1]))
    factor_MRR, info_M = torch.linalg.cholesky_ex(damped_MRR)

    def solved(v_MD: Tensor) -> Tensor:
        within_MR1 = torch.cholesky_solve(rows.times(v_MD).unsqueeze(2), factor_MRR)
        along_MD = rows.combined(within_MR1.squeeze(2))
        return torch.sub(v_MD, along_MD, out=along_MD).div_(kappa_M1)

    found_MD = solved(vectors_MD)
    short_M1 = kappa_M1 * found_MD.norm(dim=1, keepdim=True) * CANCELLED
    is_cancelled_M1 = short_M1 < vectors_MD.norm(dim=1, keepdim=True)
    if is_cancelled_M1.any():
        product_MD = rows.combined(rows.times(found_MD)) + kappa_M1 * found_MD
        better_MD = found_MD + solved(vectors_MD - product_MD)
        found_MD = torch.where(is_cancelled_M1, better_MD, found_MD)
    return found_MD.masked_fill_(info_M.unsqueeze(1) > 0, torch.nan)


# Times that the first matrices enter, so that R turns towards them.
FIRST_UPDATES = 3

# Eigenvalues are roots of those of a square: below, as a share of the largest, rounding
# hides them.
LEAST_ROOT = 1e-7


class OnlineFisher(NamedTuple):
    """F of M models.

    Attributes:
        rows: R, orthonormal, (M, R, D).
        core: K, symmetric, (M, R, R).
        floor: rho, (M, 1, 1).
    """

    rows: Tensor
    core: Tensor
    floor: Tensor

    @property
    def trace(self) -> Tensor:
        """The trace of F, (M, 1, 1)."""
        rank, size = self.rows.shape[1:]
        within_M = self.core.diagonal(dim1=1, dim2=2).sum(1)
        return within_M[:, None, None] + (size - rank) * self.floor


class Law(NamedTuple):
    """Rates of running moments, (M, 1, 1) each.

    Attributes:
        share: weight of the newest, below 1.
        delta: least rho as a share of the largest eigenvalue.
        eps: least rho, above 0.
    """

    share: Tensor
    delta: Tensor
    eps: Tensor


def isotropic(floor_M11: Tensor, rank: int, size: int) -> OnlineFisher:
    """Return F = rho I.

    Args:
        floor_M11: rho.
        rank: rows of R.
        size: D, at least the rank.

    Returns:
        F; the rows of R are the first cosines over the D columns, no column before
        another.
    """
    place_D = (torch.arange(size).double() + 0.5) * math.pi / size
    rows_RD = (torch.arange(rank)[:, None] * place_D).cos()
    rows_RD = rows_RD / rows_RD.norm(dim=1, keepdim=True)
    rows_MRD = rows_RD.to(floor_M11).expand(len(floor_M11), -1, -1)
    return OnlineFisher(rows_MRD, _scaled_eye(floor_M11, rank), floor_M11)


def updated(fisher: OnlineFisher, matrices_MND: Tensor, law: Law) -> OnlineFisher:
    """Return T = share X'X / N + (1 - share) F, brought back to low rank plus rho I.

    The new rows span R T, one step of subspace iteration: R <- Z^(-1/2) Y, K <- Z^(1/2)
    with Y = R T, Z = Y Y'. rho keeps the trace, and bounds the eigenvalues of K.

    Args:
        fisher: F.
        matrices_MND: X of each model.
        law: share and bounds.

    Returns:
        The new F, computed in double precision.

    Reference:
        Povey, Zhang and Khudanpur (2015), arXiv:1410.7455, appendix. There R is turned
        so that K is diagonal. Here it is not: F is the same, and changes smoothly where
        eigenvalues are equal.
    """
    rows_MRD, core_MRR, floor_M11 = (leaf.double() for leaf in fisher)
    X_MND = matrices_MND.double()
    share_M11, delta_M11, eps_M11 = (leaf.double() for leaf in law)
    count, size = X_MND.shape[1:]
    newest_MRD = (rows_MRD @ X_MND.mT) @ X_MND / count
    Y_MRD = share_M11 * newest_MRD + (1 - share_M11) * core_MRR @ rows_MRD
    newest_M11 = X_MND.square().sum((1, 2), keepdim=True) / count
    kept = OnlineFisher(rows_MRD, core_MRR, floor_M11).trace
    trace_M11 = share_M11 * newest_M11 + (1 - share_M11) * kept
    # A model that has diverged must not end the others.
    square_MRR = torch.nan_to_num(Y_MRD @ Y_MRD.mT, 0.0, 0.0, 0.0)
    values_MR, vectors_MRR = torch.linalg.eigh(square_MRR)
    roots_M1R = values_MR.clamp(min=0).sqrt().unsqueeze(1)
    largest_M11 = roots_M1R.amax(2, keepdim=True)
    left_M11 = trace_M11 - roots_M1R.sum(2, keepdim=True)
    floor_M11 = left_M11 / max(1, size - rows_MRD.shape[1])
    least_M11 = torch.maximum(eps_M11, delta_M11 * largest_M11)
    floor_M11 = torch.maximum(floor_M11, least_M11)
    safe_M1R = torch.maximum(roots_M1R, LEAST_ROOT * largest_M11)
    turned_MRR = (vectors_MRR / safe_M1R) @ vectors_MRR.mT
    bounded_M1R = torch.maximum(roots_M1R, floor_M11)
    core_MRR = (vectors_MRR * bounded_M1R) @ vectors_MRR.mT
    parts = turned_MRR @ Y_MRD, core_MRR, floor_M11
    return OnlineFisher(*(leaf.to(matrices_MND) for leaf in parts))


def first_fisher(matrices_MND: Tensor, rank: int, law: Law) -> OnlineFisher:
    """Return the F that the first matrices begin with.

    Args:
        matrices_MND: X of each model.
        rank: rows of R.
        law: share and bounds.

    Returns:
        F after a few updates by the same X, from a multiple of I at the least rho.
    """
    count, size = matrices_MND.shape[1:]
    trace_M11 = matrices_MND.square().sum((1, 2), keepdim=True) / count
    floor_M11 = torch.maximum(law.delta * trace_M11, law.eps)
    fisher = isotropic(floor_M11, rank, size)
    for _ in range(FIRST_UPDATES):
        fisher = updated(fisher, matrices_MND, law)
    return fisher


def preconditioned(
    fisher: OnlineFisher, matrices_MND: Tensor, alpha_M11: Tensor, eps_M11: Tensor
) -> Tensor:
    """Return X (F + alpha / D max(tr F, eps) I)^-1, scaled to the norm of X.

    Args:
        fisher: F.
        matrices_MND: X of each model.
        alpha_M11: damping as a multiple of the mean eigenvalue.
        eps_M11: least trace that damping is taken from.

    Returns:
        The matrices (M, N, D).
    """
    rows_MRD, core_MRR, floor_M11 = fisher
    rank, size = rows_MRD.shape[1:]
    above_MRR = core_MRR - _scaled_eye(floor_M11, rank)
    outside_M11 = floor_M11 + alpha_M11 / size * torch.maximum(fisher.trace, eps_M11)
    # Up to a factor, the inverse is I - R'CR with C = (K - rho + b)^-1 (K - rho), b
    # being what the damped matrix is outside the rows of R.
    damped_MRR = above_MRR + _scaled_eye(outside_M11, rank)
    shrink_MRR, _ = torch.linalg.solve_ex(damped_MRR, above_MRR)
    found_MND = matrices_MND - (matrices_MND @ rows_MRD.mT) @ shrink_MRR @ rows_MRD
    before_M11 = torch.linalg.vector_norm(matrices_MND, dim=(1, 2), keepdim=True)
    after_M11 = torch.linalg.vector_norm(found_MND, dim=(1, 2), keepdim=True)
    scale_M11 = torch.where(after_M11 > 0, before_M11 / after_M11, 1)
    scaled_MND: Tensor = found_MND * scale_M11
    return scaled_MND


def _scaled_eye(scale_M11: Tensor, size: int) -> Tensor:
    return torch.diag_embed(scale_M11[:, :, 0].expand(-1, size))
