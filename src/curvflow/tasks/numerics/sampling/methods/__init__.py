"""Samplers, one file each and a line below: `init` and `step`, over all chains.

    init(weights_CD, posterior) -> state
    step(state, context) -> losses_C, probability_C or None

`init` returns, by name, the tensors that the sampler keeps between steps in addition to
`weights`; their first dimension is the chain. `step` replaces `state["weights"]` and
returns the mean loss at the position that it left. It may write into the tensors of the
state, but not into those that it returned. `context` has the settings and the random
numbers of the step: see `curvflow.tasks.numerics.sampling.step_context.StepContext`.

Chains must not interact: a chain that leaves the finite numbers stays in the batch.

A sampler with a target acceptance accepts and rejects: its steps take all the data, and
`step` returns the probability with which each was accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from curvflow.tasks.numerics.sampling.methods import (
    adam_sgld,
    mala,
    multiscale_mala,
    rmsprop_sgld,
    sghmc,
    sgld,
    sgnht,
)
from curvflow.tasks.numerics.sampling.posteriors import Posterior, Steps
from curvflow.tasks.numerics.sampling.step_context import StepContext

State = dict[str, Tensor]


@dataclass(frozen=True)
class Method:
    """A sampler.

    Attributes:
        init: returns the state in addition to the weights.
        step: takes one step.
        scale: factors of a preconditioner, from the state, (C, D); None if there is
            none.
        target_acceptance: acceptance that the step is adapted to; None if every step
            is accepted.
        lag: factor, relative to sgld, by which steps raise the variance on a
            quadratic, to first order and at the most.
        has_friction: whether a step adds only the friction's part of sgld's noise,
            against the whole of a batch's.
        has_thermostat: whether it responds to the mean heat of all directions.
        step_name: names the step size in the state that a step takes and adapts.
        is_whitened: whether it uses eigenvectors of the Hessian: steps are whitened,
            and every second chain starts at a draw of the whitened normal about the
            weights.
    """

    init: Callable[[Tensor, Posterior], State]
    step: Callable[[State, StepContext], tuple[Tensor, Tensor | None]]
    scale: Callable[[State, Steps], Tensor] | None = None
    target_acceptance: float | None = None
    lag: float = 1.0
    has_friction: bool = False
    has_thermostat: bool = False
    step_name: Callable[[int, Posterior], str] = lambda step, posterior: "lr"
    is_whitened: bool = False

    @property
    def is_exact(self) -> bool:
        """True of a method that accepts or rejects, over all the data."""
        return self.target_acceptance is not None

    def most_scale(self, damping: float) -> float:
        """Return the largest factor of a preconditioner."""
        return 1.0 if self.scale is None else 1 / damping


# Named one by one, so that the fingerprint of a kind sees a change of any.
METHODS = {
    "adam_sgld": Method(
        adam_sgld.init, adam_sgld.step, adam_sgld.scale, lag=adam_sgld.LAG
    ),
    "mala": Method(mala.init, mala.step, target_acceptance=mala.TARGET_ACCEPTANCE),
    "multiscale_mala": Method(
        multiscale_mala.init,
        multiscale_mala.step,
        target_acceptance=multiscale_mala.TARGET_ACCEPTANCE,
        step_name=multiscale_mala.step_name,
        is_whitened=True,
    ),
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
        raise ValueError(
            f"method: expected one of {', '.join(METHODS)}, got {name}. Choose one of "
            "these."
        )
    return METHODS[name]
