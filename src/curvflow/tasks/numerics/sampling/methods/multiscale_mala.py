"""Metropolis-adjusted Langevin steps of many lengths, whitened ones and rescalings."""

from __future__ import annotations

import torch
from torch import Tensor

from curvflow.tasks.numerics.sampling.methods import mala
from curvflow.tasks.numerics.sampling.methods.mala import Position, evaluate, propose
from curvflow.tasks.numerics.sampling.posteriors import Posterior
from curvflow.tasks.numerics.sampling.step_context import StepContext

# The largest step over the smallest. About a degenerate minimum the posterior is as
# narrow as (nbeta)^(-1/2) here and as wide as (localization)^(-1/2) there: steps
# made for one do not suit the other.
SPREAD = 1e4

# The largest standard deviation of the logarithm by which one parameter is rescaled,
# and that over the smallest.
WIDEST, NARROWING = 2.0, 100.0

# Parameters up to which one at a time is rescaled: of more, each would have its turn
# too seldom.
FEW = 128

# Bits of a uniform number that choose the length of a step, and those that choose the
# parameter; the others accept.
BITS = 2.0**16

TARGET_ACCEPTANCE = mala.TARGET_ACCEPTANCE


def init(weights_CD: Tensor, posterior: Posterior) -> dict[str, Tensor]:
    """Return loss, energy and drift at the start, and the pace of either step."""
    pace_C = torch.zeros_like(weights_CD[:, 0], dtype=torch.float64)
    # Optimal for MALA as the dimension grows: Roberts and Rosenthal (1998).
    first = 1.65**2 * posterior.num_free ** (-1 / 3)
    return {
        **mala.init(weights_CD, posterior),
        "whitened_lr": torch.full_like(weights_CD[:, 0], first),
        "pace": pace_C,
        "whitened_pace": pace_C.clone(),
    }


def step_name(step: int, posterior: Posterior) -> str:
    """Return the name of the step size that a step takes; "" of a rescaling."""
    names = ["lr"]
    if posterior.whitening is not None and not posterior.whitening.is_a_factor:
        names.append("whitened_lr")
    if posterior.num_free <= FEW:
        names.append("")
    return names[step % len(names)]


def step(
    state: dict[str, Tensor], context: StepContext
) -> tuple[Tensor, Tensor | None]:
    """Propose to move; accept or reject it.

    In turn: a Langevin step; one in the coordinates S^-1 w, S the root of the inverse
    of nbeta H + gamma, H the Hessian at the weights or factors of it, if it is known
    and not 0; and, of few parameters, the rescaling of one of them. The lr of a step is
    log-uniform from lr / SPREAD to lr. Each leaves the posterior as it is, and so does
    any mixture.

    Returns:
        The mean losses before the step and the probabilities, (C,); None of a
        rescaling, which has no step to be judged by it.

    Reference:
        Roberts and Rosenthal (1998), doi:10.1111/1467-9868.00123, for the step;
        Tierney (1994), doi:10.1214/aos/1176325750, section 2.4, for mixtures.
    """
    posterior = context.posterior
    here = Position(**{name: state[name] for name in Position._fields})
    name = step_name(context.step, posterior)
    shorter_C, rest_C = _split(context.acceptance_draws)
    if name:
        lr_C = state[name] * SPREAD ** -shorter_C.to(state[name])
        there, probability_C = propose(
            posterior,
            here,
            lr_C[:, None],
            context.noise,
            posterior.whitening if name == "whitened_lr" else None,
        )
    else:
        which_C, rest_C = _split(rest_C)
        width_C = WIDEST * NARROWING ** -shorter_C.to(here.weights)
        there, probability_C = rescale(posterior, here, which_C, width_C, context.noise)
    probability_C = probability_C.nan_to_num(0.0)
    accepts_C = rest_C < probability_C
    for part in ("losses", "energy"):
        state[part] = torch.where(accepts_C, getattr(there, part), state[part])
    for part in ("weights", "drift"):
        state[part] = torch.where(accepts_C[:, None], getattr(there, part), state[part])
    if not name:
        return here.losses, None
    state[name.replace("lr", "pace")] += lr_C * probability_C
    return here.losses, probability_C


def _split(draws_C: Tensor) -> tuple[Tensor, Tensor]:
    """Return two independent uniform numbers, by the bits of one."""
    whole_C = (draws_C * BITS).floor()
    return whole_C / BITS, draws_C * BITS - whole_C


def rescale(
    posterior: Posterior,
    here: Position,
    which_C: Tensor,
    width_C: Tensor,
    noise_CD: Tensor,
) -> tuple[Position, Tensor]:
    """Propose to multiply one parameter by exp(s), with the probability to accept it.

    In coordinates log |w| the proposal is symmetric, so that the ratio of densities
    has the factor exp(s). Where a loss is a product, this crosses in one step what
    steps of any length would crawl along.

    Args:
        posterior: the sampled density.
        here: the positions before.
        which_C: uniform, chooses the parameter.
        width_C: standard deviation of s.
        noise_CD: standard normal.

    Returns:
        The proposals and the probabilities, (C,); NaN where a proposal is not finite.
    """
    size = noise_CD.shape[1]
    moving = torch.arange(size, device=noise_CD.device)
    if posterior.free is not None:
        moving = moving[posterior.free]
    chosen_C1 = moving[(which_C * len(moving)).long()][:, None]
    log_C1 = width_C[:, None] * noise_CD.gather(1, chosen_C1)
    scaled_C1 = here.weights.gather(1, chosen_C1) * log_C1.exp()
    there = evaluate(posterior, here.weights.scatter(1, chosen_C1, scaled_C1))
    ratio_C = here.energy - there.energy + log_C1[:, 0]
    return there, ratio_C.clamp(max=0).exp()
