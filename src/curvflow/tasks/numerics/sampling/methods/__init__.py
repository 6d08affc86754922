"""Samplers, one file each and a line below: `init` and `step`, over all chains.

    init(weights_CD, posterior) -> state
    step(state, now) -> losses_C, probability_C or None

`init` returns, by name, what the sampler keeps between steps beside `weights`: tensors
whose first dimension is the chain. `step` leaves the weights `state["weights"]` for the
next ones and returns the mean loss it saw where it left; the tensors of the state are
its own to write into, what it returned is not. `now` tells where the walk is and what
chance gives: see `curvflow.tasks.numerics.sampling.step_context.Now`.

Chains must not meet: a chain that leaves the finite numbers stays in the batch.

One that has a target acceptance accepts and rejects: its steps take all the data, and
`step` returns the probability with which each was accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from curvflow.tasks.numerics.sampling.methods import (
    adam_sgld,
    mala,
    rmsprop_sgld,
    sghmc,
    sgld,
    sgnht,
)
from curvflow.tasks.numerics.sampling.posteriors import Posterior, Steps
from curvflow.tasks.numerics.sampling.step_context import Now

State = dict[str, Tensor]


@dataclass(frozen=True)
class Method:
    """A sampler.

    Attributes:
        init: returns the state beside the weights.
        step: takes one step.
        scale: of one that scales a step's directions, from the state: by what, (C, D).
        target_acceptance: what its step is tuned to; None if it accepts every step.
        lag: how many times as much as of sgld its steps raise the variance on a
            quadratic, to first order and at the most.
        has_friction: whether a step adds the friction's part of sgld's noise, against
            the whole of a batch's.
        has_thermostat: whether it answers to the mean heat of all directions.
    """

    init: Callable[[Tensor, Posterior], State]
    step: Callable[[State, Now], tuple[Tensor, Tensor | None]]
    scale: Callable[[State, Steps], Tensor] | None = None
    target_acceptance: float | None = None
    lag: float = 1.0
    has_friction: bool = False
    has_thermostat: bool = False

    def most_scale(self, damping: float) -> float:
        """Return what a step's directions are multiplied by at the most."""
        return 1.0 if self.scale is None else 1 / damping


# Named one by one, so that a change of any is seen as a change of what uses them.
METHODS = {
    "adam_sgld": Method(
        adam_sgld.init, adam_sgld.step, adam_sgld.scale, lag=adam_sgld.LAG
    ),
    "mala": Method(mala.init, mala.step, target_acceptance=mala.TARGET_ACCEPTANCE),
    "rmsprop_sgld": Method(rmsprop_sgld.init, rmsprop_sgld.step, rmsprop_sgld.scale),
    "sghmc": Method(sghmc.init, sghmc.step, has_friction=True),
    "sgld": Method(sgld.init, sgld.step),
    "sgnht": Method(sgnht.init, sgnht.step, has_friction=True, has_thermostat=True),
}


def find(name: str) -> Method:
    """Return a sampler.

    Args:
        name: of one of METHODS.

    Returns:
        The sampler.

    Raises:
        ValueError: none has this name.
    """
    if name not in METHODS:
        raise ValueError(f"method: expected one of {', '.join(METHODS)}, got {name}.")
    return METHODS[name]
