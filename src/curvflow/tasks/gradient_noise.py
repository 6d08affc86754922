"""How much the gradients of single samples differ where chains will be."""

from __future__ import annotations

import torch
from torch import Tensor

from curvflow.tasks.chains import Ground, params_of
from curvflow.tasks.curvature import described
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.numerics.variances import gradient_variance

# Samples whose gradients are compared, most, and places about the weights where they
# are.
COMPARED, PLACES = 256, 4

# Numbers that their gradients may hold in one pass for one member.
PASS_NUMBERS = 1 << 20


def gradient_noise(ground: Ground, coefficient_M: Tensor, steep_M: Tensor) -> Tensor:
    """Return S^2, the variance of single samples' gradients about the weights, (M,).

    At weights that fit every sample it is zero, and at the draws it is not. It is the
    mean over places in random directions where nbeta L has risen by the coefficient,
    as it has at the draws.

    Args:
        ground: the members.
        coefficient_M: predicted.
        steep_M: nbeta times the curvature met.

    Returns:
        S^2 over the directions that move, in double precision on the CPU.
    """
    reach_M = (2 * coefficient_M / steep_M).sqrt()
    places = PLACES * list(range(len(ground.members)))
    directions = ground.directions(places).chunk(PLACES)
    away = [reach_M[:, None].to(one) * one for one in directions]
    return torch.stack([_variance(ground, one) for one in away]).mean(0)


def _variance(ground: Ground, away_MD: Tensor) -> Tensor:
    problem, count = described(ground.members[0]), ground.samples.count
    used = min(COMPARED, count)
    rows_Mn = torch.stack(
        [
            torch.randperm(count, generator=stream(params_of(one).seed, "compared"))
            for one in ground.members
        ]
    )[:, :used]
    taken = ground.samples.taken(rows_Mn.to(ground.weights.device))
    found = gradient_variance(
        problem.losses,
        ground.weights + away_MD,
        taken.inputs,
        taken.targets,
        sizes=problem.network.layout.sizes,
        num_samples=count,
        fixed_MS=ground.statistics,
        samples_per_pass=max(1, min(64, PASS_NUMBERS // ground.weights.shape[1])),
    )
    first_L = torch.tensor([0, *problem.network.layout.sizes]).cumsum(0)[:-1]
    variance_ML = found.layer_variance.cpu().double()
    if ground.free is not None:
        variance_ML *= ground.free.cpu()[first_L]
    return variance_ML.sum(1)
