"""Lanczos' tridiagonalisation of a batch of symmetric operators, many starts at once.

Letters beside those of the package: S starts, K steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.operators import BatchedOperator
from curvflow.tasks.numerics.products import inner, lengths, measured_product

# A vector that is left with less than this part of its length, once the basis is taken
# off, holds rounding of that basis, and is made orthogonal again.
SHRUNK = 0.1


@dataclass(frozen=True)
class RitzData:
    """Quadrature rules of S starts for each of M operators, float64 on the CPU.

    A run that breaks down has found an invariant subspace: its rule is exact and has
    fewer nodes.

    Attributes:
        values: Ritz values, ascending, (M, S, K); NaN behind a breakdown.
        weights: squared first entries of the eigenvectors of the tridiagonal matrix,
            (M, S, K), of sum 1 over a run; 0 behind a breakdown.
        residuals: ||A u - theta u|| of each Ritz vector u, (M, S, K), no less than the
            rounding of the products; some eigenvalue lies within it; NaN behind a
            breakdown.
        steps: nodes, which are also the products made, (M, S).
        size: D.
        vectors: Ritz vectors as columns, (M, S, D, K), on the operator's device and
            made in its precision; 0 behind a breakdown; None if not asked for.
    """

    values: Tensor
    weights: Tensor
    residuals: Tensor
    steps: Tensor
    size: int
    vectors: Tensor | None = None


def joined(parts: Sequence[RitzData]) -> RitzData:
    """Set runs of the same operators side by side, without Ritz vectors.

    Args:
        parts: runs of equally many steps.

    Returns:
        All runs, in order.
    """
    values, weights, residuals, steps = (
        torch.cat([getattr(part, name) for part in parts], dim=1)
        for name in ("values", "weights", "residuals", "steps")
    )
    return RitzData(values, weights, residuals, steps, parts[0].size)


def lanczos(
    operator: BatchedOperator,
    start_MDS: Tensor,
    *,
    num_steps: int,
    vectors: bool = False,
) -> RitzData:
    """Run Lanczos with full re-orthogonalisation from every start.

    Products are made, and the basis is held, in the operator's precision; its inner
    products with a product and the small matrices are in double precision. Each start
    has a Krylov space of its own, so no result depends on its siblings. Memory is
    (M, S, K, D) numbers of the operator's precision.

    Args:
        operator: symmetric maps A of M models.
        start_MDS: first vectors of any length but zero.
        num_steps: K, products per start; at most D are made.
        vectors: whether to return Ritz vectors.

    Returns:
        Ritz values, weights and residuals of every start.

    Raises:
        InputError: a start is zero or not finite, or a product holds NaN or infinity.

    Reference:
        Golub and Meurant (2010), Matrices, Moments and Quadrature, chapters 4 and 6.
        Granziol (2020), Algorithm 7, whose line 9 subtracts alpha v twice: here the
        terms are taken off one after the other, then what rounding has left of the
        whole basis.
    """
    models, size, starts = start_MDS.shape
    limit = min(num_steps, size)
    held, exact = operator.dtype, torch.float64
    # Memory that is new costs as much as arithmetic where D is large: what can be done
    # in place is.
    basis_MSKD = torch.empty(
        models, starts, limit, size, dtype=held, device=operator.device
    )
    alpha_MSK, beta_MSK = basis_MSKD.new_zeros(2, models, starts, limit, dtype=exact)
    v_MSD = _normalised(start_MDS.to(operator.device).double().mT).to(held)
    scale_MS = alpha_MSK.new_zeros(models, starts)
    steps_MS = torch.zeros_like(scale_MS, dtype=torch.int64)
    for step in range(limit):
        basis_MSKD[:, :, step] = v_MSD
        going_MS = (v_MSD != 0).any(2)
        image_MDS, lengths_MS = measured_product(operator, v_MSD.mT)
        w_MSD = image_MDS.mT
        steps_MS += going_MS
        scale_MS = torch.maximum(scale_MS, lengths_MS)
        alpha_MSK[:, :, step] = inner(w_MSD, v_MSD, dim=2)
        w_MSD = _subtracted(w_MSD, alpha_MSK[:, :, step, None].to(held) * v_MSD)
        if step > 0:
            before_MSD = basis_MSKD[:, :, step - 1]
            w_MSD -= beta_MSK[:, :, step - 1, None].to(held) * before_MSD
        w_MSD, beta_MS = _orthogonal(w_MSD, basis_MSKD[:, :, : step + 1])
        beta_MSK[:, :, step] = beta_MS
        broken_MS = beta_MS <= breakdown_tolerance(held) * scale_MS
        if broken_MS.all():
            break
        # A broken one is small in single precision, too, and not taken.
        by_MS1 = beta_MS.masked_fill(broken_MS, 1.0).unsqueeze(2).to(held)
        v_MSD = w_MSD.div_(by_MS1)
        v_MSD[broken_MS] = 0.0
    basis_MSKD[:, :, step + 1 :] = 0.0
    ritz = _ritz(alpha_MSK, beta_MSK, steps_MS, basis_MSKD, vectors=vectors)
    return _with_rounding(ritz, float(torch.finfo(operator.dtype).eps))


def breakdown_tolerance(dtype: torch.dtype) -> float:
    """Return the length, relative to ||A||, that products cannot tell from zero.

    Rather too small: going on from rounding errors adds nodes of no weight, while
    stopping early would lose true ones.

    Args:
        dtype: of the products.
    """
    return 64 * float(torch.finfo(dtype).eps)


def _normalised(start_MSD: Tensor) -> Tensor:
    norms: Tensor = start_MSD.norm(dim=2, keepdim=True)
    if not (torch.isfinite(norms) & (norms > 0)).all():
        raise InputError("start: expected finite vectors other than zero, got one")
    return start_MSD / norms


def _orthogonal(w_MSD: Tensor, basis_MSJD: Tensor) -> tuple[Tensor, Tensor]:
    """Take the basis off, and once more where that leaves little, hence rounding.

    Returns:
        What is left, and its lengths.
    """
    once_MSD = _less(w_MSD, basis_MSJD)
    left_MS, was_MS = lengths(once_MSD, dim=2), lengths(w_MSD, dim=2)
    shrunk_MS1 = (left_MS < SHRUNK * was_MS).unsqueeze(2)
    if not shrunk_MS1.any():
        return once_MSD, left_MS
    twice_MSD = torch.where(shrunk_MS1, _less(once_MSD, basis_MSJD), once_MSD)
    return twice_MSD, lengths(twice_MSD, dim=2)


def _less(w_MSD: Tensor, basis_MSJD: Tensor) -> Tensor:
    along_MSJ = (basis_MSJD @ w_MSD.unsqueeze(3)).squeeze(3)
    return _subtracted(w_MSD, (along_MSJ.unsqueeze(2) @ basis_MSJD).squeeze(2))


def _subtracted(w_MSD: Tensor, taken_MSD: Tensor) -> Tensor:
    """Return the difference in the place of what is taken off."""
    return torch.sub(w_MSD, taken_MSD, out=taken_MSD)


def _ritz(
    alpha_MSK: Tensor,
    beta_MSK: Tensor,
    steps_MS: Tensor,
    basis_MSKD: Tensor,
    *,
    vectors: bool,
) -> RitzData:
    """Diagonalise the tridiagonal matrices on the CPU."""
    alpha_MSK, beta_MSK, steps_MS = alpha_MSK.cpu(), beta_MSK.cpu(), steps_MS.cpu()
    length, size = basis_MSKD.shape[2:]
    absent_MSK = torch.arange(length) >= steps_MS.unsqueeze(2)
    T_MSKK = _tridiagonal(alpha_MSK, beta_MSK, steps_MS)
    values_MSK, E_MSKK = torch.linalg.eigh(T_MSKK)
    E_MSKK = E_MSKK.masked_fill(absent_MSK.unsqueeze(2), 0.0)
    weights_MSK = E_MSKK[:, :, 0].square()
    last_MS1 = (steps_MS - 1).unsqueeze(2)
    rows_MS1K = last_MS1.unsqueeze(3).expand(-1, -1, 1, length)
    ends_MSK = E_MSKK.gather(2, rows_MS1K).squeeze(2)
    residuals_MSK = beta_MSK.gather(2, last_MS1) * ends_MSK.abs()
    return RitzData(
        values_MSK.masked_fill(absent_MSK, torch.nan),
        weights_MSK / weights_MSK.sum(2, keepdim=True),
        residuals_MSK.masked_fill(absent_MSK, torch.nan),
        steps_MS,
        size,
        (basis_MSKD.mT @ E_MSKK.to(basis_MSKD)).double() if vectors else None,
    )


def _with_rounding(ritz: RitzData, eps: float) -> RitzData:
    """Add the rounding of the products to the residuals of the recurrence."""
    largest_MS1 = ritz.values.abs().nan_to_num(nan=0.0).amax(2, keepdim=True)
    return replace(ritz, residuals=torch.hypot(ritz.residuals, eps * largest_MS1))


def _tridiagonal(alpha_MSK: Tensor, beta_MSK: Tensor, steps_MS: Tensor) -> Tensor:
    """Return matrices (M, S, K, K), apart from a diagonal behind a breakdown.

    That diagonal lies above every Ritz value, so that it comes last, but is of their
    size, so that their accuracy does not suffer.
    """
    number_K = torch.arange(alpha_MSK.shape[2])
    bound_MS1 = alpha_MSK.abs().amax(2, keepdim=True)
    bound_MS1 = bound_MS1 + 2 * beta_MSK.amax(2, keepdim=True)
    beyond_MS1 = torch.where(bound_MS1 > 0, 2 * bound_MS1, 1.0)
    absent_MSK = number_K >= steps_MS.unsqueeze(2)
    last_MSK = number_K >= steps_MS.unsqueeze(2) - 1
    diagonal_MSK = torch.where(absent_MSK, beyond_MS1, alpha_MSK)
    inner_MSK = beta_MSK.masked_fill(last_MSK, 0.0)[..., :-1]
    upper_MSKK = torch.diag_embed(inner_MSK, 1)
    return torch.diag_embed(diagonal_MSK) + upper_MSKK + upper_MSKK.mT
