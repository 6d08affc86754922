"""The chains of one member, and what they may be off by."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from curvflow.schemas.nodes import NodeData
from curvflow.tasks.chains import Ground, params_of
from curvflow.tasks.numerics.sampling.discretisation import (
    bias_of_acceptance,
    bias_of_batches,
    bias_of_spectrum,
)
from curvflow.tasks.numerics.sampling.methods import find
from curvflow.tasks.numerics.sampling.mixing import Length, slowness
from curvflow.tasks.numerics.sampling.posteriors import Draws
from curvflow.tasks.numerics.sampling.steps import Steps
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
    method, params = find(setting.method), params_of(place.members[0])
    acceptance, heat = (
        float(each_C[one.fine].mean()) for each_C in (one.acceptance, one.heat)
    )
    of_steps = bias_of_acceptance(method, acceptance, llc)
    if setting.ritz is not None:
        most_lr = method.lag * one.lr * method.most_scale(params.damping)
        by_spectrum = bias_of_spectrum(
            *setting.ritz, setting.nbeta, setting.localization, most_lr
        )
        of_steps = float(np.fmax(of_steps, by_spectrum))
    of_batches = bias_of_batches(method, heat, llc, place.num_free)
    return {"step_bias": of_steps, "batch_bias": of_batches}


def slow_error(place: Ground, setting: Setting, one: Walked, steps: Steps) -> float:
    """Return what directions too slow for the chains leave; NaN if not calibrated.

    Args:
        place: where the chains walked.
        setting: how, with the spectrum if one was measured.
        one: the chains.
        steps: those they took last.
    """
    if setting.ritz is None or not one.fine.any():
        return math.nan
    state = {name: tensor[one.fine] for name, tensor in one.state.items()}
    length = Length(
        pace(state, one.acceptance[one.fine], steps),
        setting.num_burnin_steps,
        one.traces["loss_trace"].shape[1] * steps.num_steps_bw_draws,
        int(one.fine.sum()),
    )
    hold = setting.localization
    return sum(slowness(*setting.ritz, place.num_free, setting.nbeta, hold, length))


def pace(state: Mapping[str, Tensor], acceptance_C: Tensor, steps: Steps) -> float:
    """Return the lr of sgld that forgets as fast, mean over chains.

    Args:
        state: of the chains.
        acceptance_C: how many of their steps are accepted.
        steps: what they take.
    """
    method, lr = find(steps.method), float(state["lr"].double().mean())
    if method.target_acceptance is not None:
        lr *= float(acceptance_C.mean())
    if method.has_friction:
        lr /= steps.friction
    if method.scale is not None:
        lr *= float(method.scale(dict(state), steps).double().mean())
    return lr
