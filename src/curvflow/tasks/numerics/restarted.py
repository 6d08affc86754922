"""Extreme eigenpairs by block Lanczos with thick restarts, batch of models.

Letters beside those of the package: B columns of a block, P of the basis.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from curvflow.tasks.numerics.eigenpairs import (
    Ritz,
    Which,
    all_pairs,
    at_least_two,
    preference,
    within_tolerance,
    zero_level,
)
from curvflow.tasks.numerics.lanczos import breakdown_tolerance
from curvflow.tasks.numerics.operators import BatchedOperator
from curvflow.tasks.numerics.products import product
from curvflow.tasks.numerics.streams import stream

# Of the tolerance what the bound from the recurrence must keep to, so that the residual
# of the pairs themselves, rounding and all, is within it.
MARGIN = 0.9


@dataclass(frozen=True)
class _Space:
    """A Krylov space of each model: A V = V H + W (last block of the identity).

    Attributes:
        V_MDP: orthonormal columns.
        H_MPP: V'AV.
        Q_MDB: orthonormal columns, orthogonal to V, to go on with.
        R_MBB: of W = QR: ||R y|| is the residual of V y, y its last block.
        scale: the largest ||A q|| seen, (M,).
        is_fresh: whether Q holds random columns, as an invariant subspace is found: the
            basis may lack copies of an eigenvalue, (M,).
    """

    V_MDP: Tensor
    H_MPP: Tensor
    Q_MDB: Tensor
    R_MBB: Tensor
    scale: Tensor
    is_fresh: Tensor

    @property
    def length(self) -> int:
        """Columns of the basis, P."""
        return self.V_MDP.shape[2]

    def select(self, models: Tensor) -> _Space:
        """Return the spaces of some of the models."""
        return _Space(
            self.V_MDP[models],
            self.H_MPP[models],
            self.Q_MDB[models],
            self.R_MBB[models],
            self.scale[models],
            self.is_fresh[models],
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
    operator: BatchedOperator,
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
    siblings. A block of B finds an eigenvalue as often as it occurs, up to B times.
    Products are made in the operator's precision, all else in double precision; where
    they are single, flags and residuals come from a last product with the pairs. An
    operator no larger than the basis is multiplied with the identity.

    Args:
        operator: symmetric maps A of M models.
        start_MDB: first block; a combination of the eigenvectors of a similar operator
            makes a warm start.
        k: eigenpairs wanted.
        which: largest magnitude, or the upper or lower end of the spectrum.
        tol: residual allowed, relative to the eigenvalue.
        max_iterations: products with a block at most; at least 1.

    Returns:
        The pairs with residuals and flags, float64; those that have not converged are
        flagged. Where iterations are too few for k pairs, the last are NaN.

    Raises:
        InputError: a product holds NaN or infinity.

    Reference:
        Wu and Simon (2000), doi:10.1137/S0895479898334605.
    """
    size, block = start_MDB.shape[1:]
    start_MDB = start_MDB.to(operator.device).double()
    most = basis_size(k, block)
    if size < most + block:
        return all_pairs(operator, k=k, which=which, tol=tol)
    whole, zero = operator, zero_level(size, operator.dtype)
    found = Ritz.empty(len(start_MDB), size, k, start_MDB)
    active = torch.arange(len(start_MDB), device=operator.device)
    space, before = _begin(start_MDB), start_MDB.new_empty(len(start_MDB), 0)
    for iteration in range(1, max_iterations + 1):
        space = _extended(operator, space, iteration)
        pairs = _pairs(space, which)
        within = _judged(pairs, tol=MARGIN * tol, zero=zero)
        ends = _ends(space, pairs, within, before, k)
        if iteration == max_iterations:
            ends[:] = True
        _keep(found, active, ends, space, pairs, within, iteration)
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
    return found if whole.dtype == torch.float64 else _measured(whole, found, tol)


def _begin(start_MDB: Tensor) -> _Space:
    models, size, block = start_MDB.shape
    return _Space(
        start_MDB.new_zeros(models, size, 0),
        start_MDB.new_zeros(models, 0, 0),
        torch.linalg.qr(start_MDB).Q,
        start_MDB.new_zeros(models, block, block),
        start_MDB.new_zeros(models),
        torch.zeros(models, dtype=torch.bool, device=start_MDB.device),
    )


def _extended(operator: BatchedOperator, space: _Space, iteration: int) -> _Space:
    """Multiply the block that goes on, and make it part of the basis."""
    W_MDB = product(operator, space.Q_MDB)
    V_MDP = torch.cat([space.V_MDP, space.Q_MDB], dim=2)
    scale_M = torch.maximum(space.scale, W_MDB.norm(dim=1).amax(1))
    across_MPB = V_MDP.mT @ W_MDB
    before = space.length
    H_MPP = V_MDP.new_zeros(len(V_MDP), V_MDP.shape[2], V_MDP.shape[2])
    H_MPP[:, :before, :before] = space.H_MPP
    H_MPP[:, :, before:] = across_MPB
    H_MPP[:, before:] = across_MPB.mT
    corner_MBB = across_MPB[:, before:]
    H_MPP[:, before:, before:] = (corner_MBB + corner_MBB.mT) / 2
    W_MDB = W_MDB - V_MDP @ across_MPB
    W_MDB = W_MDB - V_MDP @ (V_MDP.mT @ W_MDB)
    Q_MDB, R_MBB = torch.linalg.qr(W_MDB)
    negligible_MB = R_MBB.diagonal(dim1=1, dim2=2).abs() <= (
        breakdown_tolerance(operator.dtype) * scale_M.unsqueeze(1)
    )
    if negligible_MB.any():
        Q_MDB = torch.where(negligible_MB.unsqueeze(1), _fresh(Q_MDB, iteration), Q_MDB)
    # Of columns nearly dependent, QR raises what is left of the basis in them.
    for _ in range(2):
        Q_MDB = torch.linalg.qr(Q_MDB - V_MDP @ (V_MDP.mT @ Q_MDB)).Q
    return _Space(V_MDP, H_MPP, Q_MDB, R_MBB, scale_M, negligible_MB.any(1))


def _fresh(like_MDB: Tensor, iteration: int) -> Tensor:
    """Return random columns, to go on with where an invariant subspace is found."""
    _, size, block = like_MDB.shape
    generator = stream(iteration, "invariant subspace")
    drawn = torch.randn(size, block, generator=generator, dtype=torch.float64)
    fresh: Tensor = drawn / drawn.norm(dim=0)
    return fresh.to(like_MDB.device)


def _pairs(space: _Space, which: Which) -> _Pairs:
    """Diagonalise the small matrices on the CPU."""
    values, turn = torch.linalg.eigh(space.H_MPP.cpu())
    order = preference(values, which)
    turn = turn.gather(2, order.unsqueeze(1).expand_as(turn))
    last = turn[:, -space.R_MBB.shape[1] :]
    residuals: Tensor = (space.R_MBB.cpu() @ last).norm(dim=1)
    device = space.V_MDP.device
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
    return _Space(
        space.V_MDP @ pairs.turn[:, :, :kept],
        torch.diag_embed(pairs.values[:, :kept]),
        space.Q_MDB,
        space.R_MBB,
        space.scale,
        space.is_fresh,
    )


def _keep(
    found: Ritz,
    active: Tensor,
    ends: Tensor,
    space: _Space,
    pairs: _Pairs,
    within: Tensor,
    iteration: int,
) -> None:
    """Write down the pairs of the models that end; NaN for those they lack."""
    models, k = active[ends], found.values.shape[1]
    have = min(k, space.length)
    vectors = space.V_MDP[ends] @ pairs.turn[ends][:, :, :have]
    for into, of in (
        (found.values, pairs.values[ends]),
        (found.residuals, pairs.residuals[ends]),
    ):
        into[models] = torch.nan
        into[models, :have] = of[:, :have]
    found.vectors[models] = torch.nan
    found.vectors[models, :, :have] = vectors
    found.converged[models, :have] = within[ends, :have]
    found.iterations[models] = iteration
    found.num_matvecs[models] = iteration * space.R_MBB.shape[1]


def _measured(operator: BatchedOperator, found: Ritz, tol: float) -> Ritz:
    """Take residuals and flags from a product with the pairs themselves."""
    vectors = found.vectors.nan_to_num(nan=0.0)
    images = product(operator, vectors)
    residuals: Tensor = (images - vectors * found.values.unsqueeze(1)).norm(dim=1)
    zero = zero_level(vectors.shape[1], operator.dtype)
    largest_M = found.values.nan_to_num(nan=0.0).abs().amax(1)
    return replace(
        found,
        residuals=residuals,
        converged=within_tolerance(
            found.values, residuals, largest_M, tol=tol, zero=zero
        ),
        num_matvecs=found.num_matvecs + vectors.shape[2],
    )
