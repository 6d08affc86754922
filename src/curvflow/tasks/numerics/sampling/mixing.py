"""What slow directions leave of an estimate, by the closed forms of a quadratic.

Letters: S runs of Lanczos; K nodes of each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


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
