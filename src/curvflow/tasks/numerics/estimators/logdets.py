"""Log-determinants of positive definite operators from Lanczos runs.

Every estimate is a mean over runs, each with an independent draw, so that each has a
standard error; `gap` shows errors that all runs share. Further letters: S
runs, K nodes of a run or orders.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeGuard

import numpy as np
import torch
from scipy.special import stdtrit
from torch import Tensor

from curvflow.tasks.numerics.entropy.maxent import maxent, prior
from curvflow.tasks.numerics.estimators.forms import Error
from curvflow.tasks.numerics.estimators.polynomials import Support, polynomials
from curvflow.tasks.numerics.krylov.functionals import (
    Bernstein,
    bounded,
    floor_by_test,
)
from curvflow.tasks.numerics.krylov.lanczos import RitzData
from curvflow.tasks.numerics.krylov.quadrature import nodes, over_forms

NUM_NODES = 2000


@dataclass(frozen=True)
class Controls:
    """Quantities of each run whose mean is known, which take noise off.

    Attributes:
        draws: of each run, (S, C).
        means: known, (C,).
    """

    draws: Tensor
    means: Tensor


@dataclass(frozen=True)
class LogDet:
    """An estimate of log det A.

    Attributes:
        draws: of each run, (S,).
        vectors: standard error of their mean over the random vectors.
        quadrature: the most that the mean may be off for all runs alike, by what their
            own rules allow; infinite where they allow anything.
        low: lower end of an interval of 95 % for both errors.
        high: its upper end.
        gap: how far another rule from the same runs is from the mean.
        strain: of the moments, in standard errors, where a density is fitted; or NaN.
        converged: whether the quadrature is as accurate as asked, else within two
            standard errors of the vectors, and a fit converged.
        floor: what the eigenvalues were taken to be above; None where nothing shows
            that there is none about zero, and below.
    """

    draws: Tensor
    vectors: float
    quadrature: float
    low: float
    high: float
    gap: float
    strain: float
    converged: bool
    floor: float | None

    @property
    def value(self) -> float:
        """The mean."""
        return float(self.draws.mean())

    @property
    def sem(self) -> float:
        """Standard error of both; the quadrature's counts as two of its deviations."""
        return math.hypot(self.vectors, self.quadrature / 2)


def exactly(value: float, rounding: float, *, relative: float) -> LogDet:
    """Return a value that nothing but rounding moves.

    Args:
        value: log det A.
        rounding: the most that it may be off.
        relative: rounding that is enough, relative to the value.
    """
    draws = torch.tensor([value], dtype=torch.float64)
    low, high = value - rounding, value + rounding
    is_enough = rounding <= relative * abs(value)
    return LogDet(draws, 0.0, rounding, low, high, 0.0, math.nan, is_enough, 0.0)


LOG = Bernstein(torch.log, pole=0.0, is_clamped=False)


@dataclass(frozen=True)
class _Rules:
    """Estimate of log det A by the Gauss rules of runs, and its bounds.

    Attributes:
        mean: of the rules, controls taken off.
        lower: least mean of v.log(A)v, controls taken off; -inf if there is none.
        upper: greatest.
        draws: of each run, (S,), controls taken off.
        error: of the mean of the draws over the random vectors.
        margins: how much further the ends of an interval of 95 % are than the bounds.
        floor: what the eigenvalues were taken to be above; None if nothing shows it.
        relative: error of the rules that is enough, relative to the value; None if it
            should be within two standard errors of the vectors.
    """

    mean: float
    lower: float
    upper: float
    draws: Tensor
    error: Error
    margins: tuple[float, float]
    floor: float | None
    relative: float | None

    def are_enough(self, off: float, value: float, sem: float) -> bool:
        """Return whether rules that may be off by so much are as good as wanted."""
        if self.relative is not None:
            return off <= self.relative * abs(value)
        return off <= max(2 * sem, 1e-9 * abs(value))


def _rules(
    ritz: RitzData,
    *,
    floor: float | None = None,
    controls: Controls | None = None,
    relative: float | None = None,
) -> _Rules:
    if floor is None:
        floor = floor_by_test(ritz)
    rules = bounded(ritz, LOG, floor=floor).of_model(0)
    draws_S, of = rules.estimate.draws, rules.estimate
    error = Error(of.sem, of.freedom)
    if _has_use(controls, draws_S):
        draws_S = _freed(draws_S[:, None], controls)[:, 0]
        error = _spread(draws_S, controls)
    moved = float(draws_S.mean() - rules.estimate.mean)
    lower, upper = (float(b.mean()) + moved for b in (rules.lower, rules.upper))
    ends = (float(end) for end in rules.interval())
    below, above = (
        0.0 if math.isinf(end) else abs(float(bound.mean()) - end)
        for bound, end in zip((rules.lower, rules.upper), ends, strict=True)
    )
    value, margins = float(draws_S.mean()), (below, above)
    return _Rules(value, lower, upper, draws_S, error, margins, floor, relative)


def _has_use(controls: Controls | None, draws_S: Tensor) -> TypeGuard[Controls]:
    """Return whether there are controls, and enough runs to fit them."""
    return controls is not None and len(draws_S) >= 8 * len(controls.means)


def _spread(draws_S: Tensor, controls: Controls) -> Error:
    """Return the error of the mean of draws by what the controls leave of them.

    The mean is that of a fit at the known means of the controls; the further the runs'
    own are from these, the less they say of it (Lavenberg and Welch 1981).
    """
    left = len(draws_S) - 1 - len(controls.means)
    variance = (draws_S - draws_S.mean()).square().sum() / left
    centred_SC, known_SC = _scaled(controls)
    off_C = known_SC.mean(0).numpy()
    weights_S = np.linalg.lstsq(centred_SC.numpy().T, off_C, rcond=1e-10)[0]
    share = 1 / len(draws_S) + float(weights_S @ weights_S)
    return Error((variance * share).sqrt(), torch.tensor(float(left)))


def _reported(draws_S: Tensor, error: Error, rules: _Rules, other: float) -> LogDet:
    """Return an estimate, with the interval of its draws and of the rules."""
    value, sem = float(draws_S.mean()), float(error.sem)
    half = float(stdtrit(float(error.freedom), 0.975)) * sem
    off = max(rules.upper - value, value - rules.lower, 0.0)
    # NaN, of a single run that is not resolved, stays.
    below, above = (
        half if off <= sem or margin < half else margin for margin in rules.margins
    )
    return LogDet(
        draws_S,
        sem,
        off,
        min(rules.lower, value) - below,
        max(rules.upper, value) + above,
        other - value,
        math.nan,
        rules.are_enough(off, value, sem),
        rules.floor,
    )


def by_quadrature(
    ritz: RitzData,
    *,
    floor: float | None = None,
    controls: Controls | None = None,
    relative: float | None = None,
) -> LogDet:
    """Sum log over each run's Gauss rule: stochastic Lanczos quadrature.

    Args:
        ritz: runs of one positive definite operator.
        floor: what eigenvalues are known to be above; if not given, what the runs
            show that they are above, see `floor_by_test`.
        controls: taken off by regression over the runs; few runs are left alone.
        relative: error of the quadrature that is enough, relative to the value; None
            requests two standard errors of the vectors.

    Returns:
        The estimate; its gap is to the Gauss-Radau rule with a node at the floor, which
        is too low, as the Gauss rule is too high.

    Reference:
        Ubaru, Chen and Saad (2017), doi:10.1137/16M1104974.
    """
    rules = _rules(ritz, floor=floor, controls=controls, relative=relative)
    return _reported(rules.draws, rules.error, rules, rules.lower)


def _freed(draws_SK: Tensor, controls: Controls) -> Tensor:
    """Take off what the controls explain, by least squares over the runs."""
    centred_SC, known_SC = _scaled(controls)
    fit = np.linalg.lstsq(centred_SC.numpy(), draws_SK.numpy(), rcond=1e-10)[0]
    freed_SK: Tensor = draws_SK - known_SC @ torch.as_tensor(fit)
    return freed_SK


def _scaled(controls: Controls) -> tuple[Tensor, Tensor]:
    """Return controls less the means of the runs, and less the known ones, scaled.

    They differ in size; one that varies by rounding alone explains nothing: zero.
    """
    centred_SC = controls.draws - controls.draws.mean(0)
    scale_C = centred_SC.norm(dim=0)
    varies_C = scale_C > 1e-13 * controls.draws.norm(dim=0)
    inverse_C = torch.where(varies_C, 1 / scale_C, 0.0)
    return centred_SC * inverse_C, (controls.draws - controls.means) * inverse_C


def by_chebyshev(
    ritz: RitzData,
    *,
    degree: int,
    low: float,
    high: float,
    floor: float | None = None,
    relative: float | None = None,
) -> LogDet:
    """Interpolate log by a polynomial on [low, high] and sum it over the spectrum.

    Args:
        ritz: runs of one operator, of more than degree / 2 steps.
        degree: of the polynomial.
        low: lower end, above zero.
        high: upper end.
        floor: what eigenvalues are known to be above.
        relative: as for `by_quadrature`.

    Returns:
        The estimate; its gap is to the quadrature of the same runs.

    Reference:
        Han, Malioutov and Shin (2015), arXiv:1503.06394.
    """
    coefficients_K = _interpolated(degree, low, high)
    theta_SK = nodes(ritz)[0]
    shape = theta_SK.shape
    values_NK = polynomials("chebyshev", theta_SK.reshape(-1), degree + 1, (low, high))
    series_SK = (values_NK @ coefficients_K).reshape(shape)
    of = over_forms(ritz, series_SK.unsqueeze(0))
    rules = _rules(ritz, floor=floor, relative=relative)
    return _reported(of.draws[0], Error(of.sem, of.freedom), rules, rules.mean)


def _interpolated(degree: int, low: float, high: float) -> Tensor:
    """Return the Chebyshev coefficients of log's interpolant, (degree + 1,)."""
    count = degree + 1
    angle_K = (torch.arange(count, dtype=torch.float64) + 0.5) * torch.pi / count
    x_K = (low + high) / 2 + (high - low) / 2 * torch.cos(angle_K)
    waves_KK = torch.cos(torch.arange(count)[:, None] * angle_K)
    coefficients_K = 2 / count * waves_KK @ x_K.log()
    coefficients_K[0] /= 2
    return coefficients_K


def by_entropy(
    ritz: RitzData,
    *,
    num_moments: int,
    support: Support,
    law: str,
    basis: str = "chebyshev",
    controls: Controls | None = None,
    floor: float | None = None,
) -> LogDet:
    """Integrate log over the density of largest entropy that has the runs' moments.

    Args:
        ritz: runs of one operator, of more than num_moments / 2 steps.
        num_moments: orders 1 .. K.
        support: interval of the density, which holds the spectrum.
        law: prior of the density, see `priors`.
        basis: of the moments.
        controls: taken off every moment by regression over the runs.
        floor: what eigenvalues are known to be above.

    Returns:
        The estimate. Its draws are what each run's moments change it by, to first
        order; its gap is to the quadrature of the same runs with the same controls.

    Reference:
        Granziol (2020), Algorithm 3, which has the flat law, exact moments and the
        interval (0, 1) after division by a bound of the largest eigenvalue.
    """
    values_SNK = _polynomial_values(ritz, num_moments, basis, support)
    draws_SK = (ritz.weights[0].unsqueeze(2) * values_SNK).sum(1)
    used = 1
    if _has_use(controls, draws_SK):
        draws_SK, used = _freed(draws_SK, controls), 1 + len(controls.means)
    left = max(1, len(draws_SK) - used)
    centred_SK = draws_SK - draws_SK.mean(0)
    errors_K = (centred_SK.square().sum(0) / left / len(draws_SK)).sqrt()
    fit = maxent(
        draws_SK.mean(0),
        errors_K,
        prior=prior(law, support, NUM_NODES),
        basis=basis,
        support=support,
    )
    logs_G = fit.prior.nodes.log()
    by_moment_K = fit.influence(logs_G)
    draws_S = ritz.size * (fit.mean(logs_G) + centred_SK @ by_moment_K)
    if _has_use(controls, draws_S):
        error = _spread(draws_S, controls)
    else:
        of = over_forms(ritz, (values_SNK @ by_moment_K).unsqueeze(0))
        error = Error(of.sem, of.freedom)
    rules = _rules(ritz, floor=floor, controls=controls)
    fitted = _reported(draws_S, error, rules, rules.mean)
    converged = fitted.converged and fit.converged and fit.is_feasible
    return replace(fitted, strain=fit.strain, converged=converged)


def _polynomial_values(
    ritz: RitzData, num_moments: int, basis: str, support: Support
) -> Tensor:
    """Return p_k at the nodes of each run for k = 1 .. num_moments, (S, N, K)."""
    theta_SN = nodes(ritz)[0]
    values = polynomials(basis, theta_SN.reshape(-1), num_moments + 1, support)
    return values.reshape(*theta_SN.shape, num_moments + 1)[..., 1:]


def moment_controls(ritz: RitzData, first: float, second: float) -> Controls:
    """Return the controls that v.Av and v.A^2 v are, of traces that are known.

    Args:
        ritz: runs of one operator.
        first: tr A / D.
        second: tr A^2 / D.
    """
    theta_SK, weights_SK = nodes(ritz)[0], ritz.weights[0]
    draws = [(weights_SK * theta_SK**power).sum(1) for power in (1, 2)]
    means = torch.tensor([first, second], dtype=torch.float64)
    return Controls(torch.stack(draws, dim=1), means)
