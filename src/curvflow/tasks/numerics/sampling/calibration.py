"""Sampler settings from the measured curvature, by the closed forms of a quadratic.

For eigenvalues h_i of the Hessian and c_i = nbeta h_i + gamma, a walk of step lr on a
quadratic has the stationary estimate

    1/2 sum_i (nbeta h_i / c_i) / (1 - lr c_i / 4) (1 + lr nbeta^2 s_i^2 / (4 B))

of the coefficient, s_i^2 the variance of single samples' gradients along direction i:
the localisation takes from it, the step and the batch add to it. Other methods are
bounded by the same with a larger step, or with a larger s_i^2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from curvflow.tasks.numerics.estimators.traces import Estimate
from curvflow.tasks.numerics.krylov.lanczos import RitzData
from curvflow.tasks.numerics.krylov.quadrature import extremes, functional, nodes
from curvflow.tasks.numerics.sampling.methods import Method
from curvflow.tasks.numerics.sampling.posteriors import ChainLosses

# Steps that the slowest direction may take to forget, 2 / (lr gamma), in multiples of
# the steps between draws.
MEMORY = 5000

# What the localisation may take of a typical direction; and of one in which the loss
# rises with the fourth power of weights of size 1, whose posterior meets the curvature
# (nbeta h)^(1/2), or a crossing w1^2 w2^4, of which a hold of 1 takes 6 % at nbeta 1e4.
HELD = 1e-3
HELD_SINGULAR = 0.003

# What a mini-batch may add to the estimate, and how far a walk without correction goes:
# lr (nbeta h + gamma) of the sharpest direction adds a quarter of that there, times the
# lag of the method. Together they stay below the 5 % of a step too large.
HEATING = 0.02
STRIDE = 0.1

# Steps of burn-in in multiples of the time that a typical direction, or one of fourth
# power, takes to forget.
WAIT = 5

# Steps of burn-in at the least: adapting a step takes as many.
LEAST_BURNIN = 512

# How many times over directions of negative curvature are held.
MARGIN = 2.0

# Estimates agree within AGREEING, relative, or twice their joint error; but an error so
# many times what the other would tolerate alone agrees with anything, and so with none.
AGREEING = 0.05
HOPELESS = 20.0


@dataclass(frozen=True)
class Scales:
    """What the neighbourhood of the weights looks like to a sampler, of M members.

    Attributes:
        largest: curvature of the sharpest direction met, (M,).
        smallest: least eigenvalue of the Hessian, 0 if none is negative, (M,).
        typical: curvature of a direction that is not flat, (M,).
    """

    largest: Tensor
    smallest: Tensor
    typical: Tensor


def scales(ritz: RitzData, mean_curvature_M: Tensor) -> Scales:
    """Read the scales off a spectrum.

    Where the Hessian all but vanishes, as at a degenerate minimum of higher order, the
    curvature that the posterior meets away from it takes its place.

    Args:
        ritz: of the Hessian at the weights.
        mean_curvature_M: of `curvature_met`.

    Returns:
        The scales of each member.
    """
    low_M, high_M = extremes(ritz)
    values, shares = nodes(ritz).flatten(1), ritz.weights.flatten(1)
    # Ritz values this small against what is met are those of a Hessian of zero.
    counts = values > 1e-4 * torch.maximum(high_M, mean_curvature_M)[:, None]
    order = values.argsort(1)
    below = torch.where(counts, shares, 0.0).gather(1, order).cumsum(1)
    middle_M1 = (below >= below[:, -1:] / 2).to(torch.uint8).argmax(1, keepdim=True)
    median_M = values.gather(1, order).gather(1, middle_M1).squeeze(1)
    is_flat_M = ~counts.any(1)
    return Scales(
        largest=torch.maximum(high_M, mean_curvature_M),
        smallest=low_M.clamp(max=0.0),
        typical=torch.where(is_flat_M, mean_curvature_M, median_M),
    )


def curvature_met(
    losses: ChainLosses,
    centre_CD: Tensor,
    directions_CD: Tensor,
    nbeta_C: Tensor,
    num_chains: int,
) -> Tensor:
    """Return the mean curvature at the distance that the posterior reaches, (M,).

    It is 2 dL / r^2 at the distance r where nbeta dL = d / 2, dL the mean rise of the
    loss in random directions: on a quadratic the mean eigenvalue, and where the loss
    rises with a higher power, the mean eigenvalue of the quadratic of that reach.

    Args:
        losses: of the chains.
        centre_CD: where from.
        directions_CD: random, of unit length, 0 where a parameter does not move.
        nbeta_C: inverse temperatures.
        num_chains: chains of a member, whose rises are averaged.

    Returns:
        Curvature in units of the loss, found by bisection of log r to 5 %.
    """

    def mean(values_C: Tensor) -> Tensor:
        return values_C.double().reshape(-1, num_chains).mean(1)

    first_M = mean(losses.values(centre_CD, None))
    moving_M = mean((directions_CD != 0).sum(1))
    nbeta_M = mean(nbeta_C).to(first_M.device)
    low_M, high_M = (torch.full_like(first_M, math.log(r)) for r in (1e-6, 1e3))
    for _ in range(9):
        middle_M = (low_M + high_M) / 2
        reach_C1 = middle_M.exp().repeat_interleave(num_chains)[:, None]
        there_CD = centre_CD + reach_C1.to(centre_CD) * directions_CD
        rise_M = nbeta_M * (mean(losses.values(there_CD, None)) - first_M)
        # A loss that is not finite is a large one.
        is_beyond_M = ~(rise_M < moving_M / 2)
        high_M = torch.where(is_beyond_M, middle_M, high_M)
        low_M = torch.where(is_beyond_M, low_M, middle_M)
    reach_M = ((low_M + high_M) / 2).exp()
    return (moving_M / (nbeta_M * reach_M.square())).cpu()


def localization_for(
    found: Scales, nbeta_M: Tensor, *, steps_bw_draws: int, stride: float
) -> Tensor:
    """Return gamma, (M,): a hold that a typical or a singular direction hardly feels.

    It is no weaker than lets the flattest direction forget within MEMORY draws, and
    holds every direction of negative curvature.

    Args:
        found: the scales.
        nbeta_M: inverse temperatures.
        steps_bw_draws: steps from draw to draw.
        stride: of the method, see `stride_of`.

    Returns:
        gamma of each member.
    """
    steep_M, usual_M = nbeta_M * found.largest, nbeta_M * found.typical
    mixing_M = 2 * steep_M / (MEMORY * steps_bw_draws * stride)
    gentle_M = torch.minimum(HELD * usual_M, HELD_SINGULAR * usual_M.sqrt())
    confining_M = MARGIN * nbeta_M * -found.smallest
    return torch.stack([mixing_M, gentle_M, confining_M]).amax(0)


def lr_for(
    found: Scales, nbeta_M: Tensor, localization_M: Tensor, *, stride: float
) -> Tensor:
    """Return the step, (M,), by the sharpest direction.

    Args:
        found: the scales.
        nbeta_M: inverse temperatures.
        localization_M: gamma.
        stride: of the method, see `stride_of`.
    """
    return stride / (nbeta_M * found.largest + localization_M)


def stride_of(method: Method) -> float:
    """Return lr (nbeta h + gamma) of the sharpest direction.

    A walk that is corrected adapts its step from 1; that of others causes an excess of
    STRIDE / 4 there.
    """
    return 1.0 if method.target_acceptance is not None else STRIDE / method.lag


def burnin_for(found: Scales, nbeta_M: Tensor, *, stride: float, most: int) -> Tensor:
    """Return the steps of burn-in, (M,).

    Flatter directions than those it waits for hardly enter the loss.

    Args:
        found: the scales.
        nbeta_M: inverse temperatures.
        stride: of the method, see `stride_of`.
        most: bound, at least LEAST_BURNIN.

    Returns:
        WAIT times as long as a typical direction, or one of fourth power, takes.
    """
    steep_M = nbeta_M * found.largest
    slowness_M = torch.maximum(found.largest / found.typical, steep_M.sqrt())
    steps_M = WAIT * 2 / stride * slowness_M
    return steps_M.clamp(LEAST_BURNIN, most).ceil().to(torch.int64)


def batch_for(
    lr_M: Tensor, nbeta_M: Tensor, variance_M: Tensor, coefficient_M: Tensor
) -> Tensor:
    """Return the smallest batch, (M,), that adds no more than HEATING.

    Along all directions together a batch adds at most lr nbeta^2 S^2 / (4 B d_eff), as
    each of the d_eff directions that are not flat weighs the same.

    Args:
        lr_M: the step, over the part of its noise that a method with friction adds.
        nbeta_M: inverse temperatures.
        variance_M: S^2, variance of single samples' gradients, all directions, where
            the draws are.
        coefficient_M: predicted, d_eff / 2.
    """
    effective_M = (2 * coefficient_M).clamp(min=1.0)
    return lr_M * nbeta_M.square() * variance_M / (4 * HEATING * effective_M)


def predicted(
    ritz: RitzData,
    nbeta_M: Tensor,
    localization_M: Tensor,
) -> Estimate:
    """Predict the coefficient as if the minimum were regular.

    Args:
        ritz: of the Hessian at the weights; negative eigenvalues count as zero.
        nbeta_M: inverse temperatures.
        localization_M: gamma.

    Returns:
        Half the effective dimension at the prior precision gamma / nbeta, (M,), with
        the standard error over the runs.
    """
    nbeta, gamma = (x[:, None, None] for x in (nbeta_M, localization_M))

    def share(values: Tensor) -> Tensor:
        steep = nbeta * values.clamp(min=0.0)
        whole = steep + gamma
        return torch.where(whole > 0, steep / whole, 0.0) / 2

    return functional(ritz, share)


def plateau(estimates_T: Tensor, errors_T: Tensor, chosen: int) -> Tensor:
    """Tell which trials agree with the chosen one, (T,).

    They do within 5 % or twice their joint standard error, and so do all between them.
    An error above HOPELESS times 5 % of the other estimate, and times its error, is of
    a walk that tells nothing: the two do not agree, whatever they are. One that agrees
    with the chosen one at the least makes a plateau.

    Args:
        estimates_T: of trials in order of what is varied.
        errors_T: their standard errors.
        chosen: number of the one chosen.

    Returns:
        Whether each is on the plateau; none is if there is none.
    """
    apart_T = (estimates_T - estimates_T[chosen]).abs()
    joint_T = (errors_T.square() + errors_T[chosen].square()).sqrt()
    allowed_T = torch.maximum(AGREEING * estimates_T.abs(), errors_T)
    agrees = apart_T <= torch.maximum(allowed_T[chosen], 2 * joint_T)
    agrees &= errors_T <= HOPELESS * allowed_T[chosen]
    agrees &= errors_T[chosen] <= HOPELESS * allowed_T
    agrees[chosen] = bool(estimates_T[chosen].isfinite())
    on_T = torch.zeros_like(agrees)
    for way in (range(chosen, len(on_T)), range(chosen, -1, -1)):
        for trial in way:
            if not agrees[trial]:
                break
            on_T[trial] = True
    return on_T if on_T.sum() > 1 else torch.zeros_like(on_T)
