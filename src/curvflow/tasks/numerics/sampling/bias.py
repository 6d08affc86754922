"""Bias of the coefficient from finite steps, batches and slow directions.

Letters: S runs of Lanczos; K nodes of each.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

import torch
from torch import Tensor

from curvflow.tasks.numerics.sampling.methods import Method


def bias_of_spectrum(
    values_SK: Tensor,
    weights_SK: Tensor,
    nbeta: float,
    localization: float,
    lr: float,
) -> float:
    """Return the relative excess that steps of sgld cause at a regular minimum.

    In a direction of curvature h a walk that accepts every step has 1 / (1 - lr c / 4)
    times the variance 1 / c of c = nbeta h + gamma.

    Args:
        values_SK: Ritz values of the Hessian, of S runs; negative ones count as zero.
        weights_SK: their weights, of sum 1 over a run.
        nbeta: inverse temperature.
        localization: gamma.
        lr: step.

    Returns:
        Excess over the estimate; infinite where the walk is not stable, NaN where no
        eigenvalue is positive.
    """
    steep_SK = nbeta * values_SK.nan_to_num(0.0).clamp(min=0.0)
    whole_SK = (steep_SK + localization).clamp(min=torch.finfo(torch.float64).tiny)
    part_SK, left_SK = weights_SK * steep_SK / whole_SK, 1 - lr * whole_SK / 4
    raised_SK = torch.where(left_SK > 0, part_SK / left_SK, math.inf)
    return float(raised_SK.where(part_SK > 0, 0.0).sum() / part_SK.sum()) - 1


def bias_of_acceptance(method: Method, acceptance: float, llc: float) -> float:
    """Bound the relative excess of an estimate that unadjusted steps cause.

    At a quadratic minimum with curvatures c_i of the energy and step epsilon, the
    acceptance is 2 Phi(-s / 2) with s^2 = sum (epsilon c_i)^3 / 16, and the excess is
    sum epsilon c_i / 8, in 2 lambda directions at most (s lambda)^(2/3) / 2:
    reached when all c_i are equal. That is of Langevin steps; those of a method that
    lags cause so many times as much.

    Args:
        method: of the chains.
        acceptance: mean probability at which a Metropolis step would accept.
        llc: lambda, the estimate.

    Returns:
        Excess over the estimate; NaN if either is not positive.

    Reference:
        Roberts and Rosenthal (1998), doi:10.1111/1467-9868.00123, theorem 1, for s.
    """
    if not (acceptance > 0 and llc > 0):
        return math.nan
    half = statistics.NormalDist().inv_cdf(min(acceptance, 1.0) / 2)
    bound: float = (8 * (2 * half) ** 2 / llc) ** (1 / 3) / 4
    return method.lag * bound


def bias_of_batches(method: Method, heat: float, llc: float, size: int) -> float:
    """Bound the relative excess of an estimate that the noise of batches causes.

    A thermostat takes from every direction the mean heat of all: of the heat of some,
    their share among the directions that count, 2 lambda of d, is made up for.

    Args:
        method: of the chains.
        heat: what the noise adds at the most to nbeta E L.
        llc: lambda, the estimate.
        size: parameters that move, d.

    Returns:
        Excess over the estimate; NaN if that is not positive.
    """
    if not llc > 0:
        return math.nan
    left = max(0.0, 1 - 2 * llc / size) if method.has_thermostat else 1.0
    return left * heat / llc


@dataclass(frozen=True)
class Length:
    """How far chains walk.

    Attributes:
        pace: lr of sgld that forgets as fast.
        num_burnin_steps: steps before the first draw.
        num_steps: steps from there to the last draw.
        num_chains: chains that are averaged.
    """

    pace: float
    num_burnin_steps: int
    num_steps: int
    num_chains: int


def slowness(
    values_SK: Tensor,
    weights_SK: Tensor,
    num_parameters: int,
    nbeta: float,
    localization: float,
    length: Length,
) -> tuple[float, float]:
    """Return what slow directions leave of the coefficient by chains of this length.

    On a quadratic of curvature h, c = nbeta h + gamma, chains that begin at its minimum
    have on average nbeta h / (2 c) (1 - exp(-pace c t)) of the coefficient after t
    steps, and from then on forget as exp(-pace c t). Draws that have not yet been where
    a slow direction leads cannot show either.

    Args:
        values_SK: Ritz values of the Hessian; negative ones count as zero.
        weights_SK: their weights, of sum 1 over a run.
        num_parameters: d.
        nbeta: inverse temperature.
        localization: gamma.
        length: of the chains.

    Returns:
        What the estimate lacks on average, and its standard error; of continuous time,
        so that directions which are forgotten from draw to draw add nothing.
    """
    steep_SK = nbeta * values_SK.nan_to_num(0.0).clamp(min=0.0)
    whole_SK = (steep_SK + localization).clamp(min=torch.finfo(torch.float64).tiny)
    part_SK = steep_SK / whole_SK
    rate_SK = length.pace * whole_SK
    span_SK = (rate_SK * length.num_steps).clamp(min=1e-6)
    begun_SK = torch.exp(-rate_SK * length.num_burnin_steps)
    lacking_SK = part_SK / 2 * begun_SK * -torch.expm1(-span_SK) / span_SK
    # Variance of a mean over time, of what has variance part^2 / 2.
    spread_SK = part_SK.square() * (span_SK + torch.expm1(-span_SK)) / span_SK.square()

    def trace(each_SK: Tensor) -> float:
        return num_parameters * float((weights_SK * each_SK).sum(1).mean())

    return trace(lacking_SK), math.sqrt(trace(spread_SK) / length.num_chains)
