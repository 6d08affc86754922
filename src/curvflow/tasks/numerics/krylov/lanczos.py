"""Lanczos' tridiagonalisation of a batch of symmetric operators, many starts at once.

Further letters: S starts, K steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.operators.base import (
    PART,
    AnyOperator,
    as_batched,
    as_columns,
    check_finite,
    common_shift,
    inner,
    lengths,
    measured_product,
    recur_into,
)

# A vector that is left with less than this part of its length, once the basis is taken
# off, holds rounding of that basis, and is made orthogonal again.
SHRUNK = 0.1

# Whether rounding of the whole basis is taken off each vector.
Reorthogonalize = Literal["full", "none"]

# Rows held without that: a vector, and the one before, which the next replaces.
ROWS = 2


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
            made in its precision; 0 behind a breakdown; None unless requested.
        has_copies: whether bases were not kept orthogonal, so that eigenvalues may have
            several Ritz values, whose weights together are that of one.
    """

    values: Tensor
    weights: Tensor
    residuals: Tensor
    steps: Tensor
    size: int
    vectors: Tensor | None = None
    has_copies: bool = False


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
    first = parts[0]
    return RitzData(
        values, weights, residuals, steps, first.size, has_copies=first.has_copies
    )


def lanczos(
    operator: AnyOperator,
    start_MDS: Tensor,
    *,
    num_steps: int,
    vectors: bool = False,
    reorthogonalize: Reorthogonalize = "full",
) -> RitzData:
    """Run Lanczos from every start, with full re-orthogonalisation or none.

    Products are made, and the basis is stored, in the operator's precision; its inner
    products with a product and the small matrices are in double precision. Each start
    has a separate Krylov space, so no result depends on its siblings. Memory is
    (M, S, K, D) numbers of the operator's precision, or (M, S, 3, D) without
    re-orthogonalisation: eigenvalues that have been found are then found again, and
    the weights of such copies add up to that of the eigenvalue.

    Args:
        operator: symmetric maps A of M models, or one of a single model, (D, D).
        start_MDS: first vectors of any length but zero; (D, S) of a single model.
        num_steps: K, products per start; at most D are made, or D - 1 if the basis is
            not kept orthogonal, as D of them would not be exact.
        vectors: whether to return Ritz vectors, of an orthogonal basis alone.
        reorthogonalize: full or none.

    Returns:
        Ritz values, weights and residuals of every start.

    Raises:
        InputError: a start is zero or not finite, a product holds NaN or infinity, or
            there are no vectors.

    Examples:
        >>> from curvflow.tasks.numerics import Dense, lanczos
        >>> A = Dense(torch.diag(torch.arange(1.0, 41.0).double()))
        >>> ritz = lanczos(A, torch.ones(40), num_steps=40)
        >>> round(ritz.values.max().item(), 6), round(ritz.weights.sum().item(), 6)
        (40.0, 1.0)

    Reference:
        Golub and Meurant (2010), Matrices, Moments and Quadrature, chapters 4 and 6.
        Granziol (2020), Algorithm 7, whose line 9 subtracts alpha v twice: here the
        terms are taken off one after the other, then what rounding has left of the
        whole basis. Paige (1980), doi:10.1016/0024-3795(80)90167-6, and Greenbaum
        (1989), doi:10.1016/0024-3795(89)90285-1, for what comes out without that: the
        rule of a larger matrix, whose eigenvalues lie close around those of A.
    """
    runs = LanczosRuns(operator, start_MDS, reorthogonalize=reorthogonalize)
    return runs.extended(num_steps, vectors=vectors)


class LanczosRuns:
    """Runs that hold their bases, so that further steps continue them."""

    def __init__(
        self,
        operator: AnyOperator,
        start_MDS: Tensor,
        *,
        reorthogonalize: Reorthogonalize = "full",
    ) -> None:
        """Begin without a step.

        Args:
            operator: symmetric maps A of M models, or one of a single model, (D, D).
            start_MDS: first vectors of any length but zero; (D, S) of a single model.
            reorthogonalize: full; or none, which holds two vectors of a run.

        Raises:
            InputError: a start is zero or not finite.
        """
        self._is_orthogonal = reorthogonalize == "full"
        self._operator, start_MDS = as_batched(operator), as_columns(start_MDS)
        models, size, starts = start_MDS.shape
        self.size, self._made = size, 0
        # Rows of bases, and the rest of the last step.
        if self._is_orthogonal:
            self._room_MSKD = self._empty(models, starts, 1, size)
        else:  # side by side, as products with sparse rows are fastest
            self._room_MSKD = self._empty(models, ROWS, size, starts).movedim(3, 1)
        start_MSD = start_MDS.to(self._operator.device).mT
        _normalise(start_MSD, into=self._room_MSKD[:, :, 0])
        none_MSK = self._room_MSKD.new_zeros(models, starts, 0, dtype=torch.float64)
        self._alpha_MSK = self._beta_MSK = none_MSK
        self._scale_MS = none_MSK.new_zeros(models, starts)
        self._steps_MS = torch.zeros_like(self._scale_MS, dtype=torch.int64)
        self._going_MS = torch.ones_like(self._scale_MS, dtype=torch.bool)
        # Of the vectors, where these are not brought to length one.
        self._length_MS = self._before_MS = torch.ones_like(self._scale_MS)

    def select(self, models: Tensor) -> None:
        """Keep some of the models, by their indices (m,)."""
        models = models.to(self._operator.device)
        self._operator = self._operator.select(models)
        for name in ("alpha_MSK", "beta_MSK", "scale_MS", "steps_MS", "going_MS"):
            setattr(self, f"_{name}", getattr(self, f"_{name}")[models])
        self._length_MS = self._length_MS[models]
        self._before_MS = self._before_MS[models]
        if self._is_orthogonal:
            self._room_MSKD = self._room_MSKD[models]
        else:  # in the order in which entries lie in memory
            self._room_MSKD = self._room_MSKD.movedim(1, 3)[models].movedim(3, 1)

    def extended(self, num_steps: int, *, vectors: bool = False) -> RitzData:
        """Go on until there are so many steps.

        Args:
            num_steps: K, counted from the first step; at most D are made.
            vectors: whether to return Ritz vectors.

        Returns:
            The data of all steps, as of runs that were made at once.

        Raises:
            InputError: a product holds NaN or infinity, or there are no vectors.
        """
        if vectors and not self._is_orthogonal:
            raise InputError(
                "vectors: cannot be combined with reorthogonalize none, which holds no "
                "basis. Take full."
            )
        most = self.size if self._is_orthogonal else max(1, self.size - 1)
        limit = min(num_steps, most)
        self._make_room(limit)
        while self._made < limit and self._going_MS.any():
            self._step()
        ritz = _ritz(
            self._alpha_MSK,
            self._beta_MSK,
            self._steps_MS,
            self._room_MSKD[:, :, : self._made],
            vectors=vectors,
        )
        ritz = replace(ritz, has_copies=not self._is_orthogonal)
        rounding = float(torch.finfo(self._operator.dtype).eps)
        if not self._is_orthogonal:  # that of all steps, which nothing takes off again
            rounding *= max(1, self._made) ** 0.5
        return _with_rounding(ritz, rounding)

    def _empty(self, *shape: int) -> Tensor:
        # Memory that is new costs as much as arithmetic where D is large: what can be
        # done in place is.
        of = self._operator
        return torch.empty(*shape, dtype=of.dtype, device=of.device)

    def _make_room(self, limit: int) -> None:
        more = limit - self._alpha_MSK.shape[2]
        if more <= 0:
            return
        models, starts = self._scale_MS.shape
        if self._is_orthogonal:
            held_MSKD = self._room_MSKD[:, :, : self._made + 1]
            self._room_MSKD = self._empty(models, starts, limit + 1, self.size)
            self._room_MSKD[:, :, : self._made + 1] = held_MSKD
        self._alpha_MSK = torch.nn.functional.pad(self._alpha_MSK, (0, more))
        self._beta_MSK = torch.nn.functional.pad(self._beta_MSK, (0, more))

    def _row(self, step: int) -> Tensor:
        """Return a step's vectors, (M, S, D); without a basis of the last three."""
        return self._room_MSKD[:, :, step if self._is_orthogonal else step % ROWS]

    def _step(self) -> None:
        step = self._made
        v_MSD, rest_MSD = self._row(step), self._row(step + 1)
        if step > 0 and self._is_orthogonal:
            _go_on(v_MSD, self._beta_MSK[:, :, step - 1], self._going_MS)
        advance = self._orthogonal if self._is_orthogonal else self._plain
        norms_MS, beta_MS = advance(step, v_MSD, rest_MSD)
        self._steps_MS += self._going_MS
        self._scale_MS = torch.maximum(self._scale_MS, norms_MS)
        self._beta_MSK[:, :, step] = beta_MS
        tolerance = breakdown_tolerance(self._operator.dtype)
        self._going_MS = beta_MS > tolerance * self._scale_MS
        self._made += 1

    def _orthogonal(
        self, step: int, v_MSD: Tensor, rest_MSD: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Make the rest of a step; return the lengths of the products and of it."""
        image_MDS, norms_MS = measured_product(
            self._operator, v_MSD.mT, out_MDS=rest_MSD.mT
        )
        alpha_MS = self._alpha_MSK[:, :, step] = inner(image_MDS.mT, v_MSD, dim=2)
        _less(image_MDS.mT, alpha_MS, v_MSD, into=rest_MSD)
        if step > 0:
            beta_MS = self._beta_MSK[:, :, step - 1]
            _less(rest_MSD, beta_MS, self._row(step - 1), into=rest_MSD)
        left_MS = _orthogonalise(rest_MSD, self._room_MSKD[:, :, : step + 1])
        return norms_MS, left_MS

    def _plain(
        self, step: int, v_MSD: Tensor, rest_MSD: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Do the same without a basis, in place of the vector before.

        Vectors keep the lengths that they come with, as long as these are moderate, for
        each pass over them takes as long as a fourth of a product.

        Returns:
            The lengths of the products, and of the rest, of unit vectors.
        """
        w_MDS, rest_MDS, beta_MS = v_MSD.mT, rest_MSD.mT, 0 * self._scale_MS
        if step == 0:
            rest_MDS.zero_()
        else:
            beta_MS = self._beta_MSK[:, :, step - 1]
            self._settle(w_MDS)
            _scale(rest_MDS, beta_MS * self._length_MS / self._before_MS)
        # A multiple of the identity would be taken off again with alpha.
        ones_M, squared_MS = torch.ones_like(beta_MS[:, 0]), self._length_MS.square()
        recur_into(self._operator, w_MDS, rest_MDS, ones_M, None)
        less_MS = _inner_columns(rest_MDS, w_MDS) / squared_MS
        alpha_MS = less_MS + common_shift(self._operator)
        self._alpha_MSK[:, :, step] = alpha_MS
        check_finite(alpha_MS)
        _take_multiples(rest_MDS, less_MS, w_MDS)
        squares_MS = _inner_columns(rest_MDS, rest_MDS) / squared_MS
        check_finite(squares_MS)
        self._before_MS, left_MS = self._length_MS, squares_MS.sqrt()
        self._length_MS = left_MS * self._length_MS
        # A product is the sum of three vectors at right angles.
        norms_MS = (alpha_MS.square() + beta_MS.square() + squares_MS).sqrt()
        return norms_MS, left_MS

    def _settle(self, w_MDS: Tensor) -> None:
        """Bring vectors to length one where they are too long or short, or are over."""
        length_MS, going_MS = self._length_MS, self._going_MS
        is_moderate = (length_MS < MODERATE) & (length_MS > 1 / MODERATE)
        if not (is_moderate & going_MS).all():
            _scale(w_MDS, length_MS.reciprocal().masked_fill(~going_MS, 0.0))
            self._length_MS = torch.ones_like(length_MS)


# Lengths up to this, and down to its reciprocal, are left as they are.
MODERATE = 1e12

# Rows that are looked at as one, since loops over the few columns of one are slow.
WIDE = 64


def _wide(block_MDS: Tensor, factor_MS: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield most rows, and the others, with the factors of `WIDE` rows or of one."""
    size = block_MDS.shape[1]
    whole = size - size % WIDE
    factor_M1S = factor_MS.unsqueeze(1).to(block_MDS)
    yield slice(whole), factor_M1S.repeat(1, 1, WIDE)
    yield slice(whole, size), factor_M1S


def _scale(columns_MDS: Tensor, factor_MS: Tensor) -> None:
    """Multiply columns, in place."""
    for rows, factor_M1W in _wide(columns_MDS, factor_MS):
        columns_MDS[:, rows].view(len(columns_MDS), -1, factor_M1W.shape[2]).mul_(
            factor_M1W
        )


def _take_multiples(rest_MDS: Tensor, factor_MS: Tensor, of_MDS: Tensor) -> None:
    """Take multiples of other columns off, in place."""
    for rows, factor_M1W in _wide(rest_MDS, factor_MS):
        shape = (len(rest_MDS), -1, factor_M1W.shape[2])
        part, other = rest_MDS[:, rows].view(shape), of_MDS[:, rows].view(shape)
        part.addcmul_(factor_M1W, other, value=-1)


def _inner_columns(a_MDS: Tensor, b_MDS: Tensor) -> Tensor:
    """Return the inner products of columns, (M, S), added up in float64."""
    # All pairs of a few columns take less time than sums along the rows.
    if a_MDS.dtype == torch.float64:
        parts = [(a_MDS, b_MDS)]
    else:
        sides = (torch.split(side, PART, dim=1) for side in (a_MDS, b_MDS))
        parts = list(zip(*sides, strict=True))
    total_MS = torch.zeros((), dtype=torch.float64, device=a_MDS.device)
    for a, b in parts:
        first, second = a.double(), b.double()
        if len(first) == 1:
            pairs = (first[0].T @ second[0]).unsqueeze(0)
        else:
            pairs = first.mT @ second
        total_MS = total_MS + pairs.diagonal(dim1=1, dim2=2)
    return total_MS


def breakdown_tolerance(dtype: torch.dtype) -> float:
    """Return the length, relative to ||A||, that products do not distinguish from zero.

    Rather too small: going on from rounding errors adds nodes of no weight, while
    stopping early would lose true ones.

    Args:
        dtype: of the products.
    """
    return 64 * float(torch.finfo(dtype).eps)


def _normalise(start_MSD: Tensor, *, into: Tensor) -> None:
    norms_MS = lengths(start_MSD, dim=2)
    if not (torch.isfinite(norms_MS) & (norms_MS > 0)).all():
        raise InputError(
            "start: expected finite vectors other than zero, got zero, NaN or "
            "infinity. Take others."
        )
    torch.div(start_MSD, norms_MS.unsqueeze(2).to(start_MSD), out=into)


def _less(a_MSD: Tensor, factor_MS: Tensor, b_MSD: Tensor, *, into: Tensor) -> None:
    factor_MS1 = factor_MS.unsqueeze(2).to(b_MSD)
    torch.addcmul(a_MSD, factor_MS1, b_MSD, value=-1, out=into)


def _go_on(rest_MSD: Tensor, beta_MS: Tensor, going_MS: Tensor) -> None:
    """Make the next vectors of a basis; those of runs that broke down are zero."""
    # A broken one is small in single precision, too, and not taken.
    rest_MSD.div_(beta_MS.masked_fill(~going_MS, 1.0).unsqueeze(2).to(rest_MSD))
    if not going_MS.all():
        rest_MSD.masked_fill_(~going_MS.unsqueeze(2), 0.0)


def _orthogonalise(w_MSD: Tensor, basis_MSJD: Tensor) -> Tensor:
    """Take the basis off in place, and once more where that leaves little.

    Returns:
        The lengths of the residuals, (M, S).
    """
    taken_MS = _take_off(w_MSD, basis_MSJD)
    left_MS = lengths(w_MSD, dim=2)
    shrunk_MS = left_MS < SHRUNK * torch.hypot(left_MS, taken_MS)
    if not shrunk_MS.any():
        return left_MS
    _take_off(w_MSD, basis_MSJD, only_MS=shrunk_MS)
    return lengths(w_MSD, dim=2)


def _take_off(
    w_MSD: Tensor, basis_MSJD: Tensor, *, only_MS: Tensor | None = None
) -> Tensor:
    """Take the basis off in place; of some runs only, the others stay to the bit.

    Returns:
        The lengths of what was taken off, (M, S).
    """
    # Runs one behind the other, R of them.
    w_R1D, basis_RJD = w_MSD.flatten(0, 1).unsqueeze(1), basis_MSJD.flatten(0, 1)
    along_R1J = w_R1D @ basis_RJD.mT
    if only_MS is not None:
        along_R1J.masked_fill_(~only_MS.view(-1, 1, 1), 0.0)
    w_R1D.baddbmm_(along_R1J, basis_RJD, alpha=-1)
    return lengths(along_R1J, dim=2).view(w_MSD.shape[:2])


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
    length, (made, size) = alpha_MSK.shape[2], basis_MSKD.shape[2:]
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
        (basis_MSKD.mT @ E_MSKK[:, :, :made].to(basis_MSKD)).double()
        if vectors
        else None,
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
