"""Standard errors of a learning coefficient, and what the localization takes.

Letters: C chains; K draws of each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from curvflow.tasks.numerics.sampling.chain_results import ChainResults, slow_error
from curvflow.tasks.numerics.sampling.chain_targets import ChainSettings
from curvflow.tasks.numerics.sampling.diagnostics import mcse_along, mcse_mean, r_hat
from curvflow.tasks.numerics.sampling.posteriors import Steps

# R-hat of log distances above which chains have not been equally far.
SPREAD_R_HAT = 1.1


@dataclass(frozen=True)
class Errors:
    """Standard errors of an estimate, by cause.

    Attributes:
        mcse: by autocorrelated losses.
        along: by the same, given distances that change slowly.
        unspread: by distances that chains have yet to go.
        slow: by directions too slow for the chains; NaN if the curvature was not
            measured.
    """

    mcse: float
    along: float
    unspread: float
    slow: float

    @property
    def total(self) -> float:
        """All together; the first two are of one cause."""
        slow = 0.0 if math.isnan(self.slow) else self.slow
        return math.hypot(max(self.mcse, self.along), self.unspread, slow)


@dataclass(frozen=True)
class Hold:
    """Part of a coefficient that the localization takes; NaN if unknown.

    Attributes:
        unheld: the coefficient without it, to first order in gamma of what is not
            quadratic.
        unheld_sem: its standard error; half of the correction is taken to be unknown.
        share: part of it that the localization takes.
    """

    unheld: float
    unheld_sem: float
    share: float


def errors_of(
    settings: ChainSettings,
    results: ChainResults,
    steps: Steps,
    init_loss: float,
    num_free: int,
) -> tuple[Errors, Hold]:
    """Return the errors of an estimate, and what the localization takes of it.

    Args:
        settings: of the chains.
        results: the chains.
        steps: those that they took last.
        init_loss: mean loss at the weights.
        num_free: parameters that move.

    Returns:
        Both; NaN if no chain is finite.
    """
    losses_CK = results.traces["loss_trace"].double()
    kept_C = results.is_finite & losses_CK.isfinite().all(1)
    slow = slow_error(settings, results, steps, num_free=num_free)
    if not kept_C.any():
        none = math.nan
        return Errors(none, none, 0.0, slow), Hold(none, none, none)
    rises_CK = settings.nbeta * (losses_CK[kept_C] - init_loss)
    distances_CK = results.traces["distance_trace"][kept_C]
    gamma = settings.localization
    errors = Errors(
        float(mcse_mean(rises_CK[None])),
        float(mcse_along(rises_CK[None], distances_CK[None])),
        unspread_error(rises_CK, distances_CK, localization=gamma, num_free=num_free),
        slow,
    )
    held = float(settings.calibration.get("hold_of_spectrum", math.nan))
    hold = hold_of(rises_CK, distances_CK, gamma, held=held, sem=errors.total)
    return errors, hold


def unspread_error(
    rises_CK: Tensor,
    distances_CK: Tensor,
    *,
    localization: float,
    num_free: int,
) -> float:
    """Return the error by distances that chains have yet to go, where they differ.

    Along a valley of equal loss only the localization ends the way out, at the root of
    the number of its directions over gamma. Chains whose distances differ have not come
    so far; what they lack is taken to follow the logarithm of the distance as it has so
    far, and counts as two standard errors.

    Args:
        rises_CK: nbeta (L - L(w*)) at the draws of the chains that are finite.
        distances_CK: of the draws from the weights.
        localization: gamma.
        num_free: parameters that move.

    Returns:
        Half of the slope times the way, or of what is lacking to a regular minimum; 0
        without localization, which ends no way.
    """
    if not localization or not distances_CK.all():
        return 0.0
    logs_CK = distances_CK.double().log()
    if not float(r_hat(logs_CK[None])) > SPREAD_R_HAT:
        return 0.0
    # Half a parameter is the most that a direction counts.
    room = max(num_free / 2 - float(rises_CK.mean()), 0.0)
    way = 0.5 * math.log(max(2 * room, 1.0) / localization) - float(logs_CK.mean())
    apart_CK = logs_CK - logs_CK.mean()
    slope = (apart_CK * rises_CK).mean() / apart_CK.square().mean()
    return min(abs(float(slope)) * max(way, 0.0), room) / 2


def hold_of(
    rises_CK: Tensor,
    distances_CK: Tensor,
    localization: float,
    *,
    held: float,
    sem: float,
) -> Hold:
    """Estimate what the localization takes from a coefficient.

    The derivative of nbeta E L in -ln gamma is gamma / 2 times the covariance of nbeta
    L and the squared distance; of a quadratic direction it is 1/2 p (1 - p), p the part
    of its curvature that is the loss's, of the 1/2 (1 - p) that it lacks.

    Args:
        rises_CK: nbeta (L - L(w*)) at the draws.
        distances_CK: of the draws from the weights.
        localization: gamma.
        held: 1/2 (1 - p)^2 over the directions of the measured spectrum; NaN if it was
            not measured, for draws do not show the whole share.
        sem: standard error of the mean of the rises.

    Returns:
        The coefficient without localization, and the share.
    """
    llc = float(rises_CK.mean())
    squares_CK = distances_CK.double().square()
    product_CK = (rises_CK - llc) * (squares_CK - squares_CK.mean())
    product_CK = localization / 2 * product_CK
    rise, rise_sem = float(product_CK.mean()), float(mcse_mean(product_CK[None]))
    added = max(rise, 0.0) + held
    unheld = llc + added
    error = math.hypot(sem, rise_sem, added / 2)
    return Hold(unheld, error, added / unheld if unheld > 0 else math.nan)
