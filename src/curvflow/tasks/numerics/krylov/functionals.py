"""Traces of functions of an operator, with the error of the rule and of the vectors.

A run from a random vector v bounds v.f(A)v whatever the spectrum is like: its rule says
where each part of the weight lies, to within the neighbouring Ritz values. Where the
derivatives of f have signs, a Gauss and a Gauss-Radau rule bound it far better; where f
is any function, so does the polynomial of degree 2K - 1 that is near it.
Further letters: S runs, K nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from numpy.polynomial.chebyshev import chebval
from torch import Tensor

from curvflow.tasks.numerics.estimators.intervals import student_interval
from curvflow.tasks.numerics.estimators.traces import Estimate, estimate
from curvflow.tasks.numerics.krylov.lanczos import RitzData
from curvflow.tasks.numerics.krylov.quadrature import (
    Function,
    distribution_bounds,
    expectation,
    nodes,
    over_forms,
    radau_rule,
)

# Points by decades at which a function may vary below what the steps resolve.
DECADES = 129

# Points, each half of the one before, that may be below all eigenvalues.
HALVINGS = 14

# Part of a value that its rule may be off and still have converged.
RELATIVE = 0.01


@dataclass(frozen=True)
class Bernstein:
    """An increasing function whose derivatives alternate in sign, such as a logarithm.

    Attributes:
        f: from eigenvalues (M, S, K) to numbers, element by element, above the pole.
        pole: where it ceases to be smooth, below the eigenvalues that it takes; (M, 1)
            where models differ in it.
        is_clamped: whether negative eigenvalues count as zero.
        most: an upper bound of f, and 0 a lower one; infinity if there is none.
    """

    f: Function
    pole: float | Tensor
    is_clamped: bool = True
    most: float = math.inf

    def __call__(self, values: Tensor) -> Tensor:
        """Return f, with negative eigenvalues as zero if they count as such."""
        return self.f(values.clamp_min(0) if self.is_clamped else values)


@dataclass(frozen=True)
class Peak:
    """A function that rises up to a point and falls beyond it.

    Attributes:
        f: from eigenvalues (M, ...) to numbers, element by element.
        mode: where it is largest, (M,).
    """

    f: Function
    mode: Tensor

    def __call__(self, values: Tensor) -> Tensor:
        """Return f."""
        return self.f(values)

    def between(self, low_MSK: Tensor, high_MSK: Tensor) -> tuple[Tensor, Tensor]:
        """Return the least and the most that f is between two points each."""
        mode_MSK = self.mode[:, None, None].expand(low_MSK.shape)
        most_MSK = self.f(torch.minimum(torch.maximum(mode_MSK, low_MSK), high_MSK))
        return torch.minimum(self.f(low_MSK), self.f(high_MSK)), most_MSK


@dataclass(frozen=True)
class Bounded:
    """tr f(A) of M models with both its errors.

    Attributes:
        estimate: by the Gauss rules, (M,), with the draws of S runs.
        lower: the least that each run's draw can truly be, (M, S).
        upper: the most, (M, S).
        most: what it can be at most, whatever the spectrum, and 0 at least; infinite if
            nothing is known.
    """

    estimate: Estimate
    lower: Tensor
    upper: Tensor
    most: float = math.inf

    def of_model(self, number: int) -> Bounded:
        """Return the estimate of one model, without the dimension of models."""
        return self._taken(lambda tensor: tensor[number])

    def part(self, number: int) -> Bounded:
        """Return one of several functions, (M,)."""
        return self._taken(lambda tensor: tensor[:, number])

    def plus(self, known: float) -> Bounded:
        """Return the estimate with a number that is known exactly added to it."""
        of = self.estimate
        estimate = replace(of, draws=of.draws + known, mean=of.mean + known)
        return Bounded(
            estimate, self.lower + known, self.upper + known, self.most + known
        )

    def _taken(self, take: Callable[[Tensor], Tensor]) -> Bounded:
        of = self.estimate
        estimate = Estimate(
            take(of.draws), take(of.mean), take(of.sem), of.count, take(of.freedom)
        )
        return Bounded(estimate, take(self.lower), take(self.upper), self.most)

    @property
    def rule_error(self) -> Tensor:
        """Bound of the rules' mean error for these very vectors, (M,)."""
        mean_M = self.estimate.mean
        above_M, below_M = self.upper.mean(-1) - mean_M, mean_M - self.lower.mean(-1)
        return torch.maximum(above_M, below_M).clamp_min(0)

    @property
    def total(self) -> Tensor:
        """Standard error of vectors and rule together, (M,).

        The rule's error counts as two of its standard deviations.
        """
        return torch.hypot(self.estimate.sem, self.rule_error / 2)

    def interval(self) -> tuple[Tensor, Tensor]:
        """Return an interval of 95 % that allows for the random vectors and the rule.

        Returns:
            Its ends, (M,): of the bounds' means, further apart by Student's interval of
            the vectors. Where the rule is no better than these, nodes do not give the
            error of the bounds, and the spread of the bounds over the runs counts too;
            NaN then of a single run.
        """
        of = self.estimate
        is_resolved_M = self.rule_error <= of.sem
        lower, upper = estimate(self.lower), estimate(self.upper)
        (low_M, _), (_, high_M) = (
            student_interval(bound.mean, of.sem, of.freedom) for bound in (lower, upper)
        )
        (wide_low_M, _), (_, wide_high_M) = (
            student_interval(bound.mean, bound.sem, bound.freedom)
            for bound in (lower, upper)
        )
        is_low_M, is_high_M = (is_resolved_M | end.isinf() for end in (low_M, high_M))
        low_M = torch.where(is_low_M, low_M, torch.minimum(low_M, wide_low_M))
        high_M = torch.where(is_high_M, high_M, torch.maximum(high_M, wide_high_M))
        if math.isinf(self.most):
            return low_M, high_M
        return low_M.clamp(0, self.most), high_M.clamp(0, self.most)

    def converged(self, relative: float | None = None) -> Tensor:
        """Return whether the rule's error is below what was requested, (M,).

        Args:
            relative: error requested, relative to the value; None asks that it is below
                the standard error of the vectors, or 1 % of the value.
        """
        size_M = self.estimate.mean.abs()
        if relative is not None:
            return self.rule_error <= relative * size_M
        enough_M = torch.maximum(self.estimate.sem.nan_to_num(), RELATIVE * size_M)
        return self.rule_error <= enough_M


def bounded(
    ritz: RitzData, f: Function | Bernstein | Peak, *, floor: float | None = None
) -> Bounded:
    """Estimate tr f(A), and bound the error of the quadrature.

    Args:
        ritz: runs from random vectors.
        f: any function, or one whose derivatives have signs, or that has one peak.
        floor: what the eigenvalues are known not to be below, such as 0 of a
            Gauss-Newton matrix; None knows of none.

    Returns:
        The estimate with its bounds. They hold for a Bernstein function, given the
        floor; without one, the least Ritz value less its residual takes its place; if
        that is not above the pole of an unbounded one, there is no lower bound. Of
        another function they are what the weights allow, and its distance from
        polynomials, as far as the points show at which it is looked at.

    Examples:
        >>> from curvflow.tasks.numerics import Dense, bounded, lanczos
        >>> A = Dense(torch.diag(torch.arange(1.0, 41.0).double()))
        >>> log = bounded(lanczos(A, torch.ones(40), num_steps=8), torch.log)
        >>> bool(log.lower < 110.3206 < log.upper)  # ln 40!
        True

    Reference:
        Golub and Meurant (2010), Matrices, Moments and Quadrature, chapter 6, for
        signs of derivatives, and section 2.2 for what the weights allow.
    """
    estimate = over_forms(ritz, f(nodes(ritz)))
    draws_MS, exact_MS = estimate.draws, _is_exact(ritz)
    if isinstance(f, Bernstein):
        lower_MS, upper_MS = _by_signs(ritz, f, floor)
    else:
        lower_MS, upper_MS = _by_approximation(ritz, f, floor)
    lower_MS = torch.minimum(ritz.size * lower_MS, draws_MS)
    upper_MS = torch.maximum(ritz.size * upper_MS, draws_MS)
    return Bounded(
        estimate,
        torch.where(exact_MS, draws_MS, lower_MS),
        torch.where(exact_MS, draws_MS, upper_MS),
        ritz.size * f.most if isinstance(f, Bernstein) and f.is_clamped else math.inf,
    )


def floor_by_test(ritz: RitzData, *, confidence: float = 0.99) -> float | None:
    """Return what all eigenvalues of a positive definite operator are above, by a test.

    An eigenvector has the mean weight 1 / D in a random vector. Where all runs together
    allow less weight up to a point than one eigenvector has but in 1 % of cases, there
    is none.

    Args:
        ritz: runs of one operator from random vectors.
        confidence: of the test.

    Returns:
        The largest that passes of the least Ritz value over powers of 2, by Chebyshev,
        Markov and Stieltjes; None if none does, as of an end that is not resolved.
    """
    from scipy.special import chdtri

    runs = ritz.steps.shape[1]
    # As a sum of squared normal numbers, one for each run.
    enough = float(chdtri(runs, confidence)) / runs
    least = float(nodes(ritz).min())
    for halvings in range(HALVINGS if least > 0 else 0):
        point_1 = torch.tensor([least / 2**halvings], dtype=torch.float64)
        _, most_MS = distribution_bounds(ritz, point_1)
        if ritz.size * float(most_MS.mean()) < enough:
            return float(point_1)
    return None


def effective_dimension(
    ritz: RitzData, prior_precision: Sequence[float], *, floor: float | None = None
) -> Bounded:
    """Estimate the sum of lambda / (lambda + prior precision).

    Negative eigenvalues count as zero.

    Args:
        ritz: runs from random vectors.
        prior_precision: P positive numbers, in units of the eigenvalues.
        floor: what the eigenvalues are known not to be below; None knows of none.

    Returns:
        The dimensions with their draws and bounds, (M, P).

    Examples:
        >>> from curvflow.tasks.numerics import Dense, effective_dimension, lanczos
        >>> A = Dense(torch.eye(4).double())
        >>> ritz = lanczos(A, torch.ones(4), num_steps=2)
        >>> effective_dimension(ritz, [1.0, 3.0]).estimate.mean.tolist()
        [[2.0, 1.0]]

    Reference:
        MacKay (1992), doi:10.1162/neco.1992.4.3.415, for a positive definite Hessian.
    """
    each = [bounded(ritz, share_above(alpha), floor=floor) for alpha in prior_precision]
    estimates = [bounds.estimate for bounds in each]
    draws, mean, sem, freedom = (
        torch.stack([getattr(estimate, name) for estimate in estimates], dim=1)
        for name in ("draws", "mean", "sem", "freedom")
    )
    lower, upper = (
        torch.stack([getattr(bounds, name) for bounds in each], dim=1)
        for name in ("lower", "upper")
    )
    estimate = Estimate(draws, mean, sem, estimates[0].count, freedom)
    return Bounded(estimate, lower, upper, each[0].most)


def share_above(scale: float, *, factor: float = 1.0) -> Bernstein:
    """Return factor x / (x + scale), a direction's part of an effective dimension."""
    return Bernstein(lambda x: factor * (x / (x + scale)), pole=-scale, most=factor)


def _is_exact(ritz: RitzData) -> Tensor:
    """Return which rules are exact for any function: of all D steps, or ended early."""
    length = ritz.values.shape[2]
    return (ritz.steps < length) | (ritz.steps >= ritz.size)


def _ends(ritz: RitzData, floor: float | None) -> tuple[Tensor, Tensor]:
    """Return what the eigenvalues that a run sees are taken to lie between, (M, S)."""
    reach = ritz.residuals.nan_to_num(nan=0.0)
    low_MS = (nodes(ritz) - reach).amin(2)
    high_MS = (nodes(ritz) + reach).amax(2)
    return (low_MS if floor is None else low_MS.clamp_min(floor)), high_MS


def _by_signs(
    ritz: RitzData, f: Bernstein, floor: float | None
) -> tuple[Tensor, Tensor]:
    """Bound the rules of a Bernstein function.

    The Gauss rule is too high, and with a node below the spectrum and above the pole
    the Gauss-Radau rule too low. Clamped, the truth is above that of the function as it
    is by what that takes off below zero, which the weights bound.

    Returns:
        Lower and upper bounds of v.f(A)v, (M, S) each.
    """
    low_MS, high_MS = _ends(ritz, floor)
    lower_MS, upper_MS = _by_weights(ritz, f, low_MS, high_MS)
    node_MS = low_MS if floor is None else torch.full_like(low_MS, floor)
    # Close to the pole no rule converges, and beyond it there is no function.
    smooth_MS = node_MS - f.pole > 1e-9 * (high_MS - f.pole)
    safe_MS1 = torch.where(smooth_MS, node_MS, high_MS).unsqueeze(2)
    values, weights = radau_rule(ritz, safe_MS1.squeeze(2))
    # Rounding may take nodes of no weight below the one prescribed.
    terms = weights * f.f(torch.maximum(values, safe_MS1))
    radau_MS = torch.where(weights > 0, terms, 0.0).sum(2)
    gauss_MS = (ritz.weights * f.f(torch.maximum(nodes(ritz), safe_MS1))).sum(2)
    if f.is_clamped:
        zero_MS1 = f.f(torch.zeros_like(safe_MS1))
        most_MS, least_MS = (
            _weighed(ritz, zero_MS1 - f.f(torch.maximum(edge, safe_MS1).clamp_max(0)))
            for edge in _neighbours(ritz, low_MS, high_MS)
        )
        gauss_MS, radau_MS = gauss_MS + most_MS, radau_MS + least_MS
    else:
        # Such a function presumes that all eigenvalues are above its pole.
        gauss_MS = expectation(ritz, f)
        upper_MS = torch.minimum(upper_MS, gauss_MS)
    usable_MS = smooth_MS & radau_MS.isfinite() & gauss_MS.isfinite()
    lower_MS = torch.where(usable_MS, torch.maximum(lower_MS, radau_MS), lower_MS)
    upper_MS = torch.where(usable_MS, torch.minimum(upper_MS, gauss_MS), upper_MS)
    return lower_MS, upper_MS


def _by_weights(
    ritz: RitzData, f: Function, low_MS: Tensor, high_MS: Tensor
) -> tuple[Tensor, Tensor]:
    """Bound the rules by where their weights may lie.

    The weight of a node lies between the nodes on both of its sides, as the
    Chebyshev-Markov-Stieltjes inequalities say of its cumulative sums.

    Returns:
        Lower and upper bounds of v.f(A)v, (M, S) each.
    """
    before, behind = _neighbours(ritz, low_MS, high_MS)
    if isinstance(f, Bernstein):
        least = f(before).nan_to_num(nan=-math.inf, neginf=-math.inf)
        most = f(behind).clamp_max(f.most)
        if f.is_clamped and math.isfinite(f.most):
            # What lies beyond the runs is bounded all the same.
            least[..., :1] = f(torch.zeros_like(least[..., :1]))
            most[..., -1] = f.most
    elif isinstance(f, Peak):
        least, most = f.between(before, behind)
    else:
        part_G = torch.logspace(-16, 0, DECADES, dtype=torch.float64)
        share_G = torch.cat([part_G, 1 - part_G])
        spread = before.unsqueeze(3) + (behind - before).unsqueeze(3) * share_G
        # Zero, where a clamped function has its corner, if it lies in between.
        zero = torch.zeros_like(before).clamp(before, behind)
        seen = torch.cat([f(spread), f(nodes(ritz))[..., None], f(zero)[..., None]], 3)
        least = seen.amin(3).nan_to_num(-math.inf, math.inf, -math.inf)
        most = seen.amax(3).nan_to_num(math.inf, math.inf, -math.inf)
    return _weighed(ritz, least), _weighed(ritz, most)


def _neighbours(
    ritz: RitzData, low_MS: Tensor, high_MS: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the Ritz value, or the end, on both sides of each, (M, S, K) each."""
    high_MS1 = high_MS.unsqueeze(2)
    edge_MSK = torch.where(ritz.values.isnan(), high_MS1, ritz.values)
    before = torch.cat([low_MS.unsqueeze(2), edge_MSK[..., :-1]], dim=2)
    return before, torch.cat([edge_MSK[..., 1:], high_MS1], dim=2)


def _weighed(ritz: RitzData, numbers_MSK: Tensor) -> Tensor:
    """Return the sum of numbers times the weights, (M, S); none of a weight of zero."""
    return torch.where(ritz.weights > 0, ritz.weights * numbers_MSK, 0.0).sum(2)


def _by_approximation(
    ritz: RitzData, f: Function, floor: float | None
) -> tuple[Tensor, Tensor]:
    """Bound the rules of any function by how well a polynomial approximates it.

    The Gauss rule of K steps is exact for polynomials of degree 2K - 1, so that it is
    off by at most twice the largest distance of f from one of these. It is taken from
    the polynomial at Chebyshev points, at many points between these, and by decades at
    zero and at both ends, where a function may vary below what the steps resolve.

    Returns:
        Lower and upper bounds of v.f(A)v, (M, S) each.
    """
    from scipy.fft import dct

    low_MS, high_MS = _ends(ritz, floor)
    low_M1, high_M1 = low_MS.amin(1, keepdim=True), high_MS.amax(1, keepdim=True)
    middle_M1, half_M1 = (low_M1 + high_M1) / 2, (high_M1 - low_M1) / 2
    count = 2 * ritz.values.shape[2]
    at_MC = f(middle_M1 + half_M1 * _chebyshev_points(count))
    coefficients_MC = dct(at_MC.numpy()) / count
    coefficients_MC[:, 0] /= 2
    decades_G = torch.logspace(-16, 0, DECADES, dtype=torch.float64)
    near_G = torch.cat([-decades_G, torch.zeros(1).double(), decades_G])
    places = [
        middle_M1 + half_M1 * _chebyshev_points(8 * count),
        torch.maximum(low_M1.abs(), high_M1.abs()) * near_G,
        low_M1 + 2 * half_M1 * decades_G,
        high_M1 - 2 * half_M1 * decades_G,
    ]
    x_MX = torch.maximum(torch.minimum(torch.cat(places, dim=1), high_M1), low_M1)
    unit_MX = ((x_MX - middle_M1) / half_M1.clamp_min(1e-300)).clamp(-1, 1)
    series_MX = chebval(unit_MX.numpy(), coefficients_MC.T[..., None], tensor=False)
    apart_M1 = (f(x_MX) - torch.from_numpy(series_MX)).abs().amax(1, keepdim=True)
    error_M1 = (2 * apart_M1).nan_to_num(nan=math.inf)
    here_MS = expectation(ritz, f)
    lower_MS, upper_MS = _by_weights(ritz, f, low_MS, high_MS)
    lower_MS = torch.maximum(lower_MS, here_MS - error_M1)
    upper_MS = torch.minimum(upper_MS, here_MS + error_M1)
    return lower_MS, upper_MS


def _chebyshev_points(count: int) -> Tensor:
    """Return the zeros of Chebyshev's polynomial of a degree, (count,)."""
    number_C = torch.arange(count, dtype=torch.float64)
    return ((number_C + 0.5) * (math.pi / count)).cos()


def steps_needed(
    bounds: Bounded,
    ritz: RitzData,
    f: Bernstein,
    relative: float | None,
    *,
    floor: float | None = None,
) -> Tensor:
    """Return how many steps bring the rule's error to a share of the value, (M,).

    Over a spectrum above a floor, the error of a Gauss rule falls by rho^2 a step with
    rho = (sqrt k + 1) / (sqrt k - 1), k the condition number from the pole. Without a
    floor no rate is known, since more steps may find eigenvalues further down.

    Args:
        bounds: bounds by these runs.
        ritz: the runs.
        f: the function.
        relative: error wanted, relative to the value; None takes 1 %.
        floor: as for `bounded`.

    Returns:
        Steps, at least those made and at most D, which are exact.

    Reference:
        Ubaru, Chen and Saad (2017), doi:10.1137/16M1104974, theorem 4.2.
    """
    made_M = ritz.steps.amax(1).double()
    wanted_M = ((relative or RELATIVE) * bounds.estimate.mean.abs()).clamp_min(1e-300)
    ratio_M = (bounds.rule_error / wanted_M).clamp_min(1.0)
    more_M = torch.full_like(made_M, math.inf)
    if floor is not None:
        pole_M = torch.as_tensor(f.pole, dtype=torch.float64).reshape(-1)
        low_MS, high_MS = _ends(ritz, floor)
        condition_M = (high_MS.amax(1) - pole_M) / (low_MS.amin(1) - pole_M)
        root_M = condition_M.clamp_min(1.0 + 1e-12).sqrt()
        rate_M = 2 * ((root_M + 1) / (root_M - 1)).log()
        more_M = (ratio_M.log() / rate_M).ceil() + 1
    needed_M = torch.where(ratio_M > 1, made_M + more_M, made_M)
    return needed_M.clamp_max(ritz.size).to(torch.int64)
