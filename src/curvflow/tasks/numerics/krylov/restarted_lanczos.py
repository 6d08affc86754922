"""Extreme eigenpairs by block Lanczos with thick restarts, batch of models.

Further letters: B vectors of a block, P of the basis, R of the
memory that it grows in. Vectors are rows here: products with a basis of columns take
several times as long.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from curvflow.tasks.numerics.krylov.eigenpairs import (
    Ritz,
    Which,
    all_pairs,
    at_least_two,
    behind_copies,
    preference,
    within_tolerance,
    zero_level,
)
from curvflow.tasks.numerics.krylov.lanczos import SHRUNK, breakdown_tolerance
from curvflow.tasks.numerics.operators.base import (
    AnyOperator,
    BatchedOperator,
    as_batched,
    as_columns,
    lengths,
    measured_product,
    product,
)
from curvflow.tasks.numerics.streams import stream

# Of the tolerance what the bound from the recurrence must keep to, so that the residual
# of the pairs themselves, rounding and all, is within it.
MARGIN = 0.9


@dataclass(frozen=True)
class _Space:
    """A Krylov space of each model: V A = H V + W (last block of the identity)'.

    Attributes:
        rows: memory, (M, R, D): the basis, then the block to go on with.
        H_MPP: VAV'.
        R_MBB: of W' = Q'R, Q the block: ||R y|| is the residual of V'y, y its last
            block.
        scale: the largest ||A q|| seen, (M,).
        reach: first vector of the basis that the product with the block is not, but for
            rounding, orthogonal to.
        is_fresh: whether Q holds random vectors, as an invariant subspace is found: the
            basis may lack copies of an eigenvalue, (M,).
        copies: how often it finds a repeated eigenvalue at most: random columns begun
            with, (M,).
    """

    rows: Tensor
    H_MPP: Tensor
    R_MBB: Tensor
    scale: Tensor
    reach: int
    is_fresh: Tensor
    copies: Tensor

    @property
    def length(self) -> int:
        """Vectors of the basis, P."""
        return self.H_MPP.shape[1]

    @property
    def basis(self) -> Tensor:
        """Orthonormal basis V, (M, P, D)."""
        return self.rows[:, : self.length]

    @property
    def block(self) -> Tensor:
        """Orthonormal block Q, orthogonal to the basis, to go on with, (M, B, D)."""
        return self.rows[:, self.length : self.length + self.R_MBB.shape[1]]

    def select(self, models: Tensor) -> _Space:
        """Return the spaces of some of the models."""
        return _Space(
            self.rows[models],
            self.H_MPP[models],
            self.R_MBB[models],
            self.scale[models],
            self.reach,
            self.is_fresh[models],
            self.copies[models],
        )


@dataclass(frozen=True)
class _Pairs:
    """Ritz pairs of a space, the most wanted first.

    Attributes:
        values: Ritz values, (M, P).
        turn: their vectors in the basis, as columns, (M, P, P).
        residuals: by the recurrence, (M, P).
    """

    values: Tensor
    turn: Tensor
    residuals: Tensor

    def select(self, models: Tensor) -> _Pairs:
        """Return the pairs of some of the models."""
        return _Pairs(self.values[models], self.turn[models], self.residuals[models])


def basis_size(k: int, block: int) -> int:
    """Return how many columns a basis holds before it is restarted.

    Args:
        k: eigenpairs wanted.
        block: columns multiplied at once.
    """
    return max(20, 3 * k) + 4 * block


def restarted_lanczos(
    operator: AnyOperator,
    start_MDB: Tensor,
    *,
    k: int,
    which: Which = "LM",
    tol: float,
    max_iterations: int,
) -> Ritz:
    """Find extreme eigenpairs by block Lanczos, fully re-orthogonalised.

    When the basis is full, its best Ritz vectors are kept and the recurrence goes on
    from them. Each model stops by itself, so what it returns does not depend on its
    siblings. A block of B finds an eigenvalue as often as it occurs, up to B times;
    where it is found so often, what is less wanted is flagged as not converged, for
    there may be further copies before it.
    Products are made, and the basis is stored, in the operator's precision, the small
    matrices in double precision; where it is single, residuals count the rounding, seen
    in a last product with all pairs added up, or with each where that cannot tell that
    they are found. An operator no larger than the basis is multiplied with the
    identity.

    Args:
        operator: symmetric maps A of M models, or one of a single model, (D, D).
        start_MDB: first block, (D, B) of a single model; a combination of the
            eigenvectors of a similar operator makes a warm start.
        k: eigenpairs wanted.
        which: largest magnitude, or the upper or lower end of the spectrum.
        tol: residual allowed, relative to the eigenvalue.
        max_iterations: products with a block at most; at least 1.

    Returns:
        The pairs with residuals and flags, float64; those that have not converged are
        flagged. Where iterations are too few for k pairs, the last are NaN.

    Raises:
        InputError: a product holds NaN or infinity.

    Examples:
        >>> from curvflow.tasks.numerics import Dense, restarted_lanczos
        >>> A = Dense(torch.diag(torch.arange(1.0, 41.0).double()))
        >>> start = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
        >>> found = restarted_lanczos(
        ...     A, start, k=2, which="LA", tol=1e-8, max_iterations=99
        ... )
        >>> [round(value, 6) for value in found.values[0].tolist()]
        [40.0, 39.0]

    Reference:
        Wu and Simon (2000), doi:10.1137/S0895479898334605.
    """
    operator, start_MDB = as_batched(operator), as_columns(start_MDB)
    size, block = start_MDB.shape[1:]
    start_MDB = start_MDB.to(operator.device).double()
    most = basis_size(k, block)
    if size < most + block:
        return all_pairs(operator, k=k, which=which, tol=tol)
    whole, zero = operator, zero_level(size, operator.dtype)
    ritz = Ritz.empty(len(start_MDB), size, k, start_MDB)
    active = torch.arange(len(start_MDB), device=operator.device)
    space = _begin(start_MDB, most, operator.dtype)
    before = start_MDB.new_empty(len(start_MDB), 0)
    copies_M = space.copies.clone()
    for iteration in range(1, max_iterations + 1):
        space = _extended(operator, space, iteration)
        pairs = _pairs(space, which)
        within = _judged(pairs, tol=MARGIN * tol, zero=zero)
        ends = _ends(space, pairs, within, before, k) | (iteration == max_iterations)
        _keep(ritz, active, ends, space, pairs, within, iteration)
        copies_M[active[ends]] = space.copies[ends]
        going = (~ends).nonzero().squeeze(1)
        if len(going) == 0:
            break
        if space.length + block > most:
            space = _restarted(space, pairs, k + (most - k) // 3)
        if ends.any():
            kept = at_least_two(going)
            active, space = active[kept], space.select(kept)
            pairs, operator = pairs.select(kept), operator.select(kept)
        before = pairs.values[:, :k]
    return _verified(whole, ritz, copies_M, tol=tol, zero=zero)


def _begin(start_MDB: Tensor, most: int, dtype: torch.dtype) -> _Space:
    models, size, block = start_MDB.shape
    rows = start_MDB.new_empty(models, most + block, size, dtype=dtype)
    rows[:, :block] = torch.linalg.qr(start_MDB).Q.mT
    return _Space(
        rows,
        start_MDB.new_zeros(models, 0, 0),
        start_MDB.new_zeros(models, block, block),
        start_MDB.new_zeros(models),
        0,
        torch.zeros(models, dtype=torch.bool, device=start_MDB.device),
        torch.full((models,), block, device=start_MDB.device),
    )


def _extended(operator: BatchedOperator, space: _Space, iteration: int) -> _Space:
    """Multiply the block that goes on, and make it part of the basis."""
    block, length = space.R_MBB.shape[1], space.length + space.R_MBB.shape[1]
    # Memory that is new costs as much as arithmetic where D is large: the product is
    # written to where the next block lies, and made that in place.
    next_MBD = space.rows[:, length : length + block]
    image_MDB, lengths_MB = measured_product(
        operator, space.block.mT, out_MDS=next_MBD.mT
    )
    W_MBD = image_MDB.mT
    scale_M = torch.maximum(space.scale, lengths_MB.amax(1))
    V_MPD = space.rows[:, :length]
    across_MBP = scale_M.new_zeros(len(scale_M), block, length)
    # What the product has of the basis first, then what rounding has left of it.
    across_MBP[:, :, space.reach :] = _take_off(
        W_MBD, V_MPD[:, space.reach :], into=next_MBD
    )
    lengths_MB = lengths(next_MBD, dim=2)
    across_MBP += _take_off(next_MBD, V_MPD, into=next_MBD)
    R_MBB = _orthonormalise(next_MBD)
    left_MB = R_MBB.diagonal(dim1=1, dim2=2).abs()
    negligible_MB = left_MB <= (
        breakdown_tolerance(operator.dtype) * scale_M.unsqueeze(1)
    )
    if negligible_MB.any():
        fresh_MBD = _fresh(next_MBD, iteration)
        next_MBD.copy_(torch.where(negligible_MB.unsqueeze(2), fresh_MBD, next_MBD))
    shrunk_M = (negligible_MB | (left_MB < SHRUNK * lengths_MB)).any(1)
    if shrunk_M.any():
        # QR raises what is left of the basis in vectors nearly dependent.
        again_MBD = _orthogonal(_orthogonal(next_MBD, V_MPD), V_MPD)
        next_MBD.copy_(torch.where(shrunk_M[:, None, None], again_MBD, next_MBD))
    H_MPP = _bordered(space.H_MPP, across_MBP)
    fresh_M = negligible_MB.sum(1)
    return _Space(
        space.rows,
        H_MPP,
        R_MBB,
        scale_M,
        space.length,
        fresh_M > 0,
        space.copies + fresh_M,
    )


def _take_off(W_MBD: Tensor, V_MPD: Tensor, *, into: Tensor) -> Tensor:
    """Write what vectors of a basis leave of a block, and return what they take."""
    along_MBP = W_MBD @ V_MPD.mT
    torch.baddbmm(W_MBD, along_MBP, V_MPD, alpha=-1, out=into)
    return along_MBP


def _orthonormalise(rows_MBD: Tensor) -> Tensor:
    """Make a block orthonormal in place, Q of W' = Q'R, and return R, float64."""
    if rows_MBD.shape[1] > 1:
        Q_MDB, R_MBB = torch.linalg.qr(rows_MBD.mT)
        rows_MBD.copy_(Q_MDB.mT)
        return cast("Tensor", R_MBB.double())
    # One row needs no copies; its sign is as QR would have it.
    length_M11 = lengths(rows_MBD, dim=2).unsqueeze(2)
    R_M11 = -torch.copysign(length_M11, rows_MBD[:, :, :1])
    rows_MBD.div_(R_M11.masked_fill(R_M11 == 0, 1.0).to(rows_MBD))
    return R_M11


def _bordered(H_MPP: Tensor, across_MBP: Tensor) -> Tensor:
    """Return H with what a product with one more block adds to it."""
    before, after = H_MPP.shape[1], across_MBP.shape[2]
    bordered_MPP = H_MPP.new_empty(len(H_MPP), after, after)
    bordered_MPP[:, :before, :before] = H_MPP
    bordered_MPP[:, before:] = across_MBP
    bordered_MPP[:, :, before:] = across_MBP.mT
    corner_MBB = across_MBP[:, :, before:]
    bordered_MPP[:, before:, before:] = (corner_MBB + corner_MBB.mT) / 2
    return bordered_MPP


def _orthogonal(Q_MBD: Tensor, V_MPD: Tensor) -> Tensor:
    """Take the basis off a block, and make it orthonormal."""
    left_MBD = Q_MBD - (Q_MBD @ V_MPD.mT) @ V_MPD
    _orthonormalise(left_MBD)
    return left_MBD


def _fresh(like_MBD: Tensor, iteration: int) -> Tensor:
    """Return random rows, to go on with where an invariant subspace is found."""
    _, block, size = like_MBD.shape
    generator = stream(iteration, "invariant subspace")
    drawn = torch.randn(size, block, generator=generator, dtype=torch.float64)
    fresh: Tensor = (drawn / drawn.norm(dim=0)).mT
    return fresh.to(like_MBD)


def _pairs(space: _Space, which: Which) -> _Pairs:
    """Diagonalise the small matrices on the CPU."""
    values, turn = torch.linalg.eigh(space.H_MPP.cpu())
    order = preference(values, which)
    turn = turn.gather(2, order.unsqueeze(1).expand_as(turn))
    last = turn[:, -space.R_MBB.shape[1] :]
    residuals: Tensor = (space.R_MBB.cpu() @ last).norm(dim=1)
    device = space.rows.device
    return _Pairs(
        values.gather(1, order).to(device), turn.to(device), residuals.to(device)
    )


def _judged(pairs: _Pairs, *, tol: float, zero: float) -> Tensor:
    largest_M = pairs.values.abs().amax(1)
    return within_tolerance(
        pairs.values, pairs.residuals, largest_M, tol=tol, zero=zero
    )


def _ends(
    space: _Space, pairs: _Pairs, within: Tensor, before_MK: Tensor, k: int
) -> Tensor:
    """Return which models have their pairs, (M,).

    Once a space is invariant, random columns must have brought nothing better: a block
    finds a repeated eigenvalue only as often as it is wide.
    """
    if space.length < k:
        return torch.zeros_like(space.is_fresh)
    found_M = within[:, :k].all(1)
    if before_MK.shape[1] < k:
        return found_M & ~space.is_fresh
    change_M = (pairs.values[:, :k] - before_MK).abs().amax(1)
    is_settled = change_M <= 1e-8 * pairs.values.abs().amax(1)
    return found_M & (is_settled | ~space.is_fresh)


def _restarted(space: _Space, pairs: _Pairs, kept: int) -> _Space:
    """Keep the best Ritz vectors alone; the next block ties them together."""
    best_MPD = pairs.turn[:, :, :kept].mT.to(space.rows) @ space.basis
    H_MPP = torch.diag_embed(pairs.values[:, :kept])
    restarted = replace(space, H_MPP=H_MPP, reach=0)
    restarted.block.copy_(space.block.clone())
    restarted.basis.copy_(best_MPD)
    return restarted


def _keep(
    ritz: Ritz,
    active: Tensor,
    ends: Tensor,
    space: _Space,
    pairs: _Pairs,
    within: Tensor,
    iteration: int,
) -> None:
    """Write down the pairs of the models that end; NaN for those they lack."""
    models, k = active[ends], ritz.values.shape[1]
    have = min(k, space.length)
    turn = pairs.turn[ends][:, :, :have].mT.to(space.rows)
    # Of all models the basis is taken as it lies.
    basis_MPD = space.basis if ends.all() else space.basis[ends]
    vectors_MKD = turn @ basis_MPD
    for into, of in (
        (ritz.values, pairs.values[ends]),
        (ritz.residuals, pairs.residuals[ends]),
    ):
        into[models] = torch.nan
        into[models, :have] = of[:, :have]
    ritz.vectors[models, :, have:] = torch.nan
    # One by one: where D is large, to write by index takes ten times as long.
    for model, own_KD in zip(models.tolist(), vectors_MKD, strict=True):
        ritz.vectors[model, :, :have].copy_(own_KD.mT)
    ritz.converged[models, :have] = within[ends, :have]
    ritz.iterations[models] = iteration
    ritz.num_matvecs[models] = iteration * space.R_MBB.shape[1]


def _verified(
    operator: BatchedOperator, ritz: Ritz, copies_M: Tensor, *, tol: float, zero: float
) -> Ritz:
    """Count rounding into residuals, and flag pairs that copies may stand before."""
    if operator.dtype != torch.float64:
        ritz = _measured(operator, ritz, tol)
    hidden_MK = behind_copies(ritz.values, ritz.residuals, copies_M, zero=zero)
    return replace(ritz, converged=ritz.converged & ~hidden_MK)


def _measured(operator: BatchedOperator, ritz: Ritz, tol: float) -> Ritz:
    """Count the rounding of products into residuals and flags."""
    absent_MK, vectors_MDK = ritz.values.isnan(), ritz.vectors
    if absent_MK.any():
        vectors_MDK = vectors_MDK.nan_to_num(nan=0.0)
    values_MK = ritz.values.nan_to_num(nan=0.0)
    models, _, k = vectors_MDK.shape
    # The bounds hold but for the rounding, which is as good as independent of them.
    signs = torch.randn(k, generator=stream(k, "signs"), dtype=torch.float64).sign()
    mixed_MK1 = signs.to(vectors_MDK.device).expand(models, -1).unsqueeze(2)
    image_MD1 = product(operator, vectors_MDK @ mixed_MK1)
    gap_MD1 = image_MD1 - vectors_MDK @ (mixed_MK1 * values_MK.unsqueeze(2))
    rounding_M1 = gap_MD1.norm(dim=1)
    bounds: Tensor = torch.hypot(ritz.residuals, rounding_M1)
    within = _within(operator, ritz, bounds, tol)
    count_M = ritz.num_matvecs + 1
    unsure_M = ~within.all(1)
    if unsure_M.any():
        images_MDK = product(operator, vectors_MDK)
        images_MDK.addcmul_(vectors_MDK, values_MK.unsqueeze(1), value=-1)
        each: Tensor = images_MDK.norm(dim=1).masked_fill(absent_MK, torch.nan)
        bounds = torch.where(unsure_M.unsqueeze(1), each, bounds)
        within = _within(operator, ritz, bounds, tol)
        count_M = count_M + k * unsure_M
    return replace(ritz, residuals=bounds, converged=within, num_matvecs=count_M)


def _within(
    operator: BatchedOperator, ritz: Ritz, residuals: Tensor, tol: float
) -> Tensor:
    largest_M = ritz.values.nan_to_num(nan=0.0).abs().amax(1)
    zero = zero_level(operator.shape[1], operator.dtype)
    return within_tolerance(ritz.values, residuals, largest_M, tol=tol, zero=zero)
