"""Linear systems by conjugate gradients and MINRES, batch of models.

`truncated_gradients` is for what ends a search early: steps of learning rules.

Further letters: S right-hand sides, each of which stops by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.krylov.lanczos import breakdown_tolerance
from curvflow.tasks.numerics.operators.base import (
    AnyOperator,
    BatchedOperator,
    as_batched,
    as_columns,
    product,
)

# From columns (M, D, S) to columns of that shape, float64.
Multiply = Callable[[Tensor], Tensor]

# Rounding errors of a product with x are 0.1 to 1 of eps ||A|| ||x||: where that is so
# many tolerances, no residual within one is measured any more.
TOO_LONG = 16.0
SLACK = 1.1  # by which rounding may let the residual drift from the recurrence


@dataclass(frozen=True)
class Solution:
    """Solutions x of A x = b, float64, with what was measured of them.

    Attributes:
        x: as columns, (M, D, S); zero where b is.
        residuals: ||b - A x|| / ||b||, of a last product with x, (M, S); 0 where b is.
        iterations: of each column, (M, S).
        converged: whether the residual is within the tolerance, (M, S).
        least_squares: whether the residual is above the tolerance and the least there
            is, up to rounding, (M, S): A x is then nearest to b, of a singular A with b
            outside its range. True where it is known: MINRES met a residual r with
            ||A r|| <= sqrt(eps) ||A|| ||r||, after which x only grew, and the residual
            is above sqrt(eps).
        gave_up: whether the column did not converge and ended before the limit, or
            there with a residual above ||b||, (M, S). x is the best state, or zero.
        definite: whether v.Av was positive for every vector v of the search, (M, S);
            True of MINRES, which takes indefinite operators as well.
        num_matvecs: products with a vector, (M,), with those that measured residuals.
    """

    x: Tensor
    residuals: Tensor
    iterations: Tensor
    converged: Tensor
    least_squares: Tensor
    gave_up: Tensor
    definite: Tensor
    num_matvecs: Tensor


@dataclass(frozen=True)
class _State:
    """State of the search after one product.

    Attributes:
        x: (M, D, S).
        lengths: of the residual by the recurrence, (M, 1, S).
        broken: columns that cannot go on, (M, 1, S).
        negative: columns that have met a direction v with v.Av <= 0, (M, 1, S).
        scale: ||A v|| / ||v||, the largest of the products, (M, 1, S).
        slopes: ||A r|| / ||r|| of the residual before this state, (M, 1, S); `scale`
            of conjugate gradients, which do not have it.
    """

    x: Tensor
    lengths: Tensor
    broken: Tensor
    negative: Tensor
    scale: Tensor
    slopes: Tensor


def conjugate_gradients(
    operator: AnyOperator, right_MDS: Tensor, *, tol: float, max_iterations: int
) -> Solution:
    """Solve A x = b for positive definite A by conjugate gradients.

    A column stops where it meets a direction v with v.Av <= 0: the operator is then not
    positive definite, and MINRES the method to take. So it is where A is singular with
    a b outside its range: residuals grow, and the best x is returned.

    Args:
        operator: symmetric maps A of M models, or one of a single model, (D, D).
        right_MDS: right-hand sides b, (M, D, S); (D, S) or (D,) of a single model.
        tol: residual allowed, relative to ||b||.
        max_iterations: products with the block at most.

    Returns:
        The solutions with residuals and flags.

    Raises:
        InputError: b is empty, complex or of another length, or b or a product holds
            NaN or infinity.

    Examples:
        >>> from curvflow.tasks.numerics import Dense
        >>> A = Dense(torch.diag(torch.tensor([1.0, 2.0, 4.0]).double()))
        >>> found = conjugate_gradients(A, torch.ones(3), tol=1e-10, max_iterations=9)
        >>> [round(x, 9) for x in found.x.flatten().tolist()]
        [1.0, 0.5, 0.25]
        >>> bool(found.converged), int(found.iterations)
        (True, 3)

    Reference:
        Hestenes and Stiefel (1952), doi:10.6028/jres.049.044, Eqs. (3:1).
    """
    operator = as_batched(operator)
    b_MDS = _right(operator, right_MDS)
    # Residuals grow by the root of the condition number at most, and that of what
    # products distinguish from a singular operator is 1 / eps.
    eps = float(torch.finfo(operator.dtype).eps)
    return _solved(
        _directions(partial(product, operator), b_MDS),
        operator,
        b_MDS,
        tol=tol,
        max_iterations=max_iterations,
        growth=eps**-0.5,
    )


@dataclass(frozen=True)
class Truncated:
    """State of a search when it ended, float64.

    Attributes:
        x: as columns, (M, D, S).
        residuals: ||b - A x|| / ||b|| by the recurrence, (M, S); 0 where b is.
        iterations: products that each column took, (M, S).
    """

    x: Tensor
    residuals: Tensor
    iterations: Tensor


def truncated_gradients(
    multiply: Multiply,
    right_MDS: Tensor,
    *,
    tol_M1: Tensor,
    max_iterations: int,
    start_MDS: Tensor | None = None,
    precondition: Multiply | None = None,
) -> Truncated:
    """Search for A x = b by conjugate gradients, and return what there is in the end.

    Nothing is raised: a column ends where it meets a direction without positive
    curvature, or numbers that are not finite, with what it had before; with the first
    direction, where that is the one and there was no start. Where b is not finite, x is
    NaN. No column depends on the others.

    Args:
        multiply: product with A of columns (M, D, S), float64.
        right_MDS: right-hand sides b, float64.
        tol_M1: residual of each model at which it stops, relative to ||b||.
        max_iterations: products with the block at most, but that for the start.
        start_MDS: where to begin; None takes zero.
        precondition: product with an approximate inverse of A, positive definite.

    Returns:
        Solutions, their residuals, and products.

    Examples:
        >>> A = torch.diag(torch.tensor([1.0, 2.0, 4.0]).double())
        >>> b = torch.ones(1, 3, 1).double()
        >>> found = truncated_gradients(
        ...     lambda v: A @ v, b, tol_M1=torch.tensor([[1e-9]]), max_iterations=3
        ... )
        >>> [round(x, 9) for x in found.x.flatten().tolist()]
        [1.0, 0.5, 0.25]

    Reference:
        Hestenes and Stiefel (1952), doi:10.6028/jres.049.044, Eqs. (3:1); Martens
        (2010), Deep learning via Hessian-free optimization, for starts.
    """
    norms_M1S = _norms(right_MDS)
    is_sought = (norms_M1S > 0) & torch.isfinite(norms_M1S)
    start = None if start_MDS is None else start_MDS.where(is_sought, 0.0)
    is_cold = is_sought if start is None else is_sought & (_norms(start) == 0)
    search = _directions(multiply, right_MDS, start, precondition)
    state = next(search)
    x_MDS, lengths = state.x, state.lengths
    going = is_sought & (lengths > tol_M1.unsqueeze(2) * norms_M1S)
    count, made = torch.zeros_like(going, dtype=torch.int64), 0
    while going.any() and made < max_iterations:
        state = next(search)
        made += 1
        is_sound = ~state.broken & torch.isfinite(state.lengths)
        x_MDS = torch.where(going & is_sound, state.x, x_MDS)
        lengths = torch.where(going & is_sound, state.lengths, lengths)
        is_first = going & ~is_sound & is_cold
        if made == 1 and bool(is_first.any()):
            first = right_MDS if precondition is None else precondition(right_MDS)
            x_MDS = torch.where(is_first, first, x_MDS)
        count += going
        going = going & is_sound & (lengths > tol_M1.unsqueeze(2) * norms_M1S)
    return Truncated(
        x_MDS.where(torch.isfinite(norms_M1S), torch.nan),
        _over(lengths, norms_M1S).squeeze(1),
        count.squeeze(1),
    )


def minres(
    operator: AnyOperator, right_MDS: Tensor, *, tol: float, max_iterations: int
) -> Solution:
    """Solve A x = b for symmetric A, indefinite or not, by minimal residuals.

    Args:
        operator: as for `conjugate_gradients`, of any signs.
        right_MDS: as for `conjugate_gradients`.
        tol: as for `conjugate_gradients`.
        max_iterations: as for `conjugate_gradients`.

    Returns:
        The solutions with residuals and flags; of a singular A with a b outside its
        range they are of least squares, and have not converged.

    Raises:
        InputError: as for `conjugate_gradients`.

    Examples:
        >>> from curvflow.tasks.numerics import Dense
        >>> A = Dense(torch.diag(torch.tensor([1.0, -2.0, 4.0]).double()))
        >>> found = minres(A, torch.ones(3), tol=1e-10, max_iterations=9)
        >>> [round(x, 9) for x in found.x.flatten().tolist()]
        [1.0, -0.5, 0.25]

    Reference:
        Paige and Saunders (1975), doi:10.1137/0712047, section 6; ||A r|| as in Choi,
        Paige and Saunders (2011), doi:10.1137/100787921.
    """
    operator = as_batched(operator)
    b_MDS = _right(operator, right_MDS)
    # Residuals only fall, and rounding adds to them as x gets longer: growth by more
    # than a plateau may hold back is of a direction that A does not see.
    return _solved(
        _minimal(operator, b_MDS),
        operator,
        b_MDS,
        tol=tol,
        max_iterations=max_iterations,
        growth=1 + float(torch.finfo(operator.dtype).eps) ** 0.25,
    )


def _right(operator: BatchedOperator, right_MDS: Tensor) -> Tensor:
    right_MDS = as_columns(right_MDS)
    models, size, _ = operator.shape
    if right_MDS.ndim != 3 or right_MDS.shape[:2] != (models, size):
        raise InputError(
            f"b: expected vectors of {size} numbers, got shape "
            f"{tuple(right_MDS.shape)}. Pass one vector, or several as columns."
        )
    if not right_MDS.numel():
        raise InputError("b: expected one vector or more, got none. Pass some.")
    if right_MDS.is_complex():
        raise InputError(
            f"b: expected real numbers, got {right_MDS.dtype}. Solve for the real and "
            "the imaginary part as two columns."
        )
    if not torch.isfinite(right_MDS).all():
        raise InputError(
            "b: expected finite numbers, got NaN or infinity. Remove them."
        )
    right_MDS = right_MDS.to(operator.device).double()
    if ((_norms(right_MDS) == 0) & (right_MDS != 0)).any():
        raise InputError(
            f"b: expected vectors whose squares are numbers above 0, got entries up to "
            f"{float(right_MDS.abs().max()):.2g}. Scale it."
        )
    return right_MDS


@dataclass
class _Search:
    """Progress of all columns; (M, 1, S), and vectors (M, D, S).

    Attributes:
        norms: of b.
        tol: residual allowed, relative to them.
        eps: relative rounding error of a product.
        growth: of residuals, over the least before, beyond which they are errors.
        x: the last sound state.
        best: the first state whose residual products no longer moved; until then that
            whose residual, with the rounding errors of measuring it, is least.
        least: the least such residual.
        is_still: whether there was such a first state.
        met: columns within the tolerance.
        gave_up: columns that ended without.
        count: products of each column.
    """

    norms: Tensor
    tol: float
    eps: float
    growth: float
    x: Tensor
    best: Tensor
    least: Tensor
    is_still: Tensor
    met: Tensor
    gave_up: Tensor
    count: Tensor

    @classmethod
    def at_zero(
        cls, b_MDS: Tensor, *, tol: float, eps: float, growth: float
    ) -> _Search:
        """Return the search for x of these right-hand sides before its first step."""
        norms, zero_MDS = _norms(b_MDS), torch.zeros_like(b_MDS)
        none = torch.zeros_like(norms, dtype=torch.bool)
        count, met = torch.zeros_like(none, dtype=torch.int64), norms == 0
        start = (zero_MDS, zero_MDS, norms, none, met, none, count)
        return cls(norms, tol, eps, growth, *start)

    @property
    def going(self) -> Tensor:
        """Columns that have not ended, (M, 1, S)."""
        return ~self.met & ~self.gave_up

    def follow(self, state: _State) -> None:
        """Take the next state where it is sound, and end what need not go on."""
        going = self.going
        self.count = self.count + going
        is_still = going & (state.slopes <= self.eps**0.5 * state.scale)
        self.best = torch.where(is_still & ~self.is_still, self.x, self.best)
        self.is_still = self.is_still | is_still
        rounding = self.eps * state.scale * _norms(state.x)
        residual = state.lengths + rounding
        # Also where they are not finite.
        is_too_long = ~(rounding <= TOO_LONG * self.tol * self.norms)
        is_lost = is_too_long & ~(residual <= self.growth * self.least)
        met = going & ~state.broken & (state.lengths <= self.tol * self.norms)
        taken = met | (going & ~state.broken & ~is_lost)
        self.x = torch.where(taken, state.x, self.x)
        is_better = taken & (residual < self.least)
        self.best = torch.where(is_better & ~self.is_still, state.x, self.best)
        self.least = torch.where(is_better, residual, self.least)
        self.met = self.met | met
        self.gave_up = self.gave_up | (going & ~taken)


def _solved(
    states: Generator[_State, Tensor],
    operator: BatchedOperator,
    b_MDS: Tensor,
    *,
    tol: float,
    max_iterations: int,
    growth: float,
) -> Solution:
    """Follow a search; what a column has when it stops is what it returns."""
    eps = float(torch.finfo(operator.dtype).eps)
    search = _Search.at_zero(b_MDS, tol=tol, eps=eps, growth=growth)
    state, made = next(states), 0
    while search.going.any() and made < max_iterations:
        state = states.send(search.going)
        made += 1
        search.follow(state)
    x_MDS, gap_MDS, measured = _nearest(search, operator, b_MDS)
    residuals = _over(_norms(gap_MDS), search.norms)
    converged = residuals <= SLACK * tol
    gave_up = search.gave_up | (search.going & (state.lengths > search.norms))
    # Below, it may be of rounding alone, with b within the range.
    is_least = search.is_still & search.gave_up & (residuals > max(eps**0.5, tol))
    return Solution(
        x_MDS,
        residuals.squeeze(1),
        search.count.squeeze(1),
        converged.squeeze(1),
        (is_least & ~converged).squeeze(1),
        (gave_up & ~converged).squeeze(1),
        (~state.negative).squeeze(1),
        torch.full((len(b_MDS),), (made + measured) * b_MDS.shape[2]),
    )


def _nearest(
    search: _Search, operator: BatchedOperator, b_MDS: Tensor
) -> tuple[Tensor, Tensor, int]:
    """Return x, b - A x, and the products that measured it.

    Of a column whose last state is not within the tolerance they are of the best one,
    unless the last is better by more than rounding makes it, or zero if that is better.
    """
    x_MDS = search.x
    gap_MDS = b_MDS - product(operator, x_MDS)
    is_over = _over(_norms(gap_MDS), search.norms) > SLACK * search.tol
    if not is_over.any():
        return x_MDS, gap_MDS, 1
    best_gap_MDS = b_MDS - product(operator, search.best)
    least = (1 + search.eps**0.25) * _norms(gap_MDS)
    is_better = is_over & (_norms(best_gap_MDS) < least)
    x_MDS = torch.where(is_better, search.best, x_MDS)
    gap_MDS = torch.where(is_better, best_gap_MDS, gap_MDS)
    is_worse = is_over & (_norms(gap_MDS) > search.norms)
    return x_MDS.where(~is_worse, 0.0), gap_MDS.where(~is_worse, b_MDS), 2


def _norms(vectors_MDS: Tensor) -> Tensor:
    norms: Tensor = vectors_MDS.norm(dim=1, keepdim=True)
    return norms


def _dot(a_MDS: Tensor, b_MDS: Tensor) -> Tensor:
    total: Tensor = (a_MDS * b_MDS).sum(1, keepdim=True)
    return total


def _over(above: Tensor, below: Tensor) -> Tensor:
    """Return quotients, and zero where the denominator is zero."""
    return torch.where(below == 0, 0.0, above / torch.where(below == 0, 1.0, below))


def _directions(
    multiply: Multiply,
    b_MDS: Tensor,
    start_MDS: Tensor | None = None,
    precondition: Multiply | None = None,
) -> Generator[_State, Tensor | None]:
    """Search along conjugate directions; each step takes one product."""

    def measured(r_MDS: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return z, the preconditioned residual r, with r.z and the length of r."""
        if precondition is None:
            squared = _dot(r_MDS, r_MDS)
            return r_MDS, squared, squared.sqrt()
        z_MDS = precondition(r_MDS)
        return z_MDS, _dot(r_MDS, z_MDS), _norms(r_MDS)

    x_MDS, r_MDS = torch.zeros_like(b_MDS), b_MDS
    if start_MDS is not None:
        x_MDS, r_MDS = start_MDS, b_MDS - multiply(start_MDS)
    p_MDS, squared, lengths = measured(r_MDS)
    negative = torch.zeros_like(squared, dtype=torch.bool)
    scale = torch.zeros_like(squared)
    yield _State(x_MDS, lengths, negative, negative, scale, scale)
    while True:
        Ap_MDS = multiply(p_MDS)
        curvature = _dot(p_MDS, Ap_MDS)
        scale = torch.maximum(scale, _over(_norms(Ap_MDS), _norms(p_MDS)))
        negative = negative | ((curvature <= 0) & (squared > 0))
        step = _over(squared, curvature).masked_fill(negative, 0.0)
        x_MDS = x_MDS + step * p_MDS
        r_MDS = r_MDS - step * Ap_MDS
        z_MDS, after, lengths = measured(r_MDS)
        p_MDS = z_MDS + _over(after, squared) * p_MDS
        squared = after
        going = yield _State(x_MDS, lengths, negative, negative, scale, scale)
        if going is not None:  # what has ended must not grow without bound
            p_MDS, squared = p_MDS.where(going, 0.0), squared.where(going, 0.0)


def _minimal(operator: BatchedOperator, b_MDS: Tensor) -> Generator[_State, Tensor]:
    """Search Krylov spaces for the least residual, by Givens rotations."""
    x_MDS, before_MDS = torch.zeros_like(b_MDS), torch.zeros_like(b_MDS)
    w_before_MDS, w_MDS = torch.zeros_like(b_MDS), torch.zeros_like(b_MDS)
    beta = _norms(b_MDS)
    v_MDS, left = b_MDS * _over(torch.ones_like(beta), beta), beta
    cosine = cosine_before = torch.ones_like(beta)
    sine = sine_before = torch.zeros_like(beta)
    beta = largest = torch.zeros_like(beta)  # before the first step there is none
    broken = negative = torch.zeros_like(beta, dtype=torch.bool)
    tolerance = breakdown_tolerance(operator.dtype)
    yield _State(x_MDS, left, broken, negative, largest, largest)
    while True:
        Av_MDS = product(operator, v_MDS)
        alpha = _dot(v_MDS, Av_MDS)
        next_MDS = Av_MDS - alpha * v_MDS - beta * before_MDS
        beta_next = _norms(next_MDS)
        pivot = cosine * alpha - cosine_before * sine * beta
        length = torch.hypot(pivot, beta_next)
        slopes = torch.hypot(pivot, cosine * beta_next)
        largest = torch.maximum(largest, _norms(Av_MDS))
        # The space is invariant and the operator singular within it: b has a part
        # that no product reaches.
        broken = broken | (length <= tolerance * largest)
        above = sine * alpha + cosine_before * cosine * beta
        far_above = sine_before * beta
        w_next_MDS = v_MDS - far_above * w_before_MDS - above * w_MDS
        w_next_MDS = w_next_MDS * _over(torch.ones_like(length), length)
        cosine_before, cosine = cosine, _over(pivot, length)
        sine_before, sine = sine, _over(beta_next, length)
        x_MDS = x_MDS + cosine * left * w_next_MDS
        left = -sine * left
        w_before_MDS, w_MDS = w_MDS, w_next_MDS
        before_MDS, v_MDS = v_MDS, next_MDS * _over(torch.ones_like(beta), beta_next)
        beta = beta_next
        going = yield _State(x_MDS, left.abs(), broken, negative, largest, slopes)
        # What has ended must not grow without bound.
        before_MDS, v_MDS = before_MDS.where(going, 0.0), v_MDS.where(going, 0.0)
