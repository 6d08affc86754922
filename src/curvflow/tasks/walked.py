"""The chains of one member, and what they may be off by."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from curvflow.schemas.nodes import NodeData
from curvflow.tasks.chains import Ground, params_of
from curvflow.tasks.numerics.sampling.discretisation import (
    bias_of_batches,
    bias_of_steps,
)
from curvflow.tasks.numerics.sampling.methods import find
from curvflow.tasks.numerics.sampling.mixing import Length, mixing_error
from curvflow.tasks.numerics.sampling.posteriors import Draws
from curvflow.tasks.settings import EXACT, Setting


@dataclass(frozen=True)
class Walked:
    """The chains of one member with all their draws, earlier ones included."""

    traces: dict[str, Tensor]  # (C, K)
    acceptance: Tensor  # (C,)
    heat: Tensor  # (C,)
    failed_at: Tensor  # (C,)
    passes: float
    state: dict[str, Tensor]
    weights: Tensor | None  # (C, K, D)

    @property
    def fine(self) -> Tensor:
        """Which chains stayed finite, (C,)."""
        return self.failed_at < 0

    @property
    def lr(self) -> float:
        """Step, mean over chains."""
        return float(self.state["lr"].double().mean())


def walked(found: Draws, chains: slice, earlier: NodeData | None) -> Walked:
    """Take one member's part of what was drawn, behind what was drawn before.

    Args:
        found: the draws of all members.
        chains: which are the member's.
        earlier: its stored result that these go on from, if there is one.

    Returns:
        The chains.
    """
    traces = {
        "loss_trace": found.losses,
        "batch_loss_trace": found.batch_losses,
        "distance_trace": found.distances,
    }
    own = {name: trace[chains].cpu().double() for name, trace in traces.items()}
    weights = None if found.weights is None else found.weights[chains].cpu().double()
    if earlier is not None:
        own = {
            name: torch.cat([torch.tensor(earlier[name]), trace], dim=1)
            for name, trace in own.items()
        }
        if weights is not None:
            weights = torch.cat([torch.tensor(earlier["draws"]), weights], dim=1)
    state = {name: tensor[chains] for name, tensor in found.state.items()}
    return Walked(
        own,
        found.acceptance[chains].cpu().double(),
        found.heat[chains].cpu().double(),
        found.failed_at[chains].cpu(),
        float(found.passes[chains].sum()),
        state,
        weights,
    )


def biases(
    place: Ground, setting: Setting, one: Walked, llc: float
) -> dict[str, float]:
    """Return what steps and batches add to the estimate at the most, relative.

    Args:
        place: where the chains walked.
        setting: how.
        one: the chains.
        llc: their estimate.

    Returns:
        `step_bias` and `batch_bias`.
    """
    if setting.method == EXACT:
        return {"step_bias": 0.0, "batch_bias": 0.0}
    method = find(setting.method)
    acceptance, heat = (
        float(each_C[one.fine].mean()) for each_C in (one.acceptance, one.heat)
    )
    of_steps = setting.bias
    if of_steps is None:
        of_steps = bias_of_steps(method, acceptance, llc)
    of_batches = bias_of_batches(method, heat, llc, place.num_free)
    return {"step_bias": of_steps, "batch_bias": of_batches}


def slow_error(place: Ground, setting: Setting, one: Walked) -> float:
    """Return what directions too slow for the chains leave; NaN if not calibrated.

    Args:
        place: where the chains walked.
        setting: how, with the spectrum if one was measured.
        one: the chains.
    """
    if setting.ritz is None or not one.fine.any():
        return math.nan
    params, method = params_of(place.members[0]), find(setting.method)
    pace = one.lr
    if method.target_acceptance is not None:
        pace *= float(one.acceptance[one.fine].mean())
    if method.has_friction:
        pace /= params.friction
    if method.scale is not None:  # at the most, where gradients are smallest
        pace /= params.damping
    draws = one.traces["loss_trace"].shape[1]
    return mixing_error(
        *setting.ritz,
        place.num_free,
        setting.nbeta,
        setting.localization,
        Length(
            pace,
            setting.num_burnin_steps,
            draws * params.num_steps_bw_draws,
            int(one.fine.sum()),
        ),
    )
