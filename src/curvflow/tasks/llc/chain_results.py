"""Results of chains: their bias, where they ended, and summaries."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from curvflow.schemas.nodes import Array, NodeData
from curvflow.tasks.llc.chain_settings import EXACT, Setting
from curvflow.tasks.llc.targets import Ground, params_of
from curvflow.tasks.numerics.sampling.bias import (
    Length,
    bias_of_acceptance,
    bias_of_batches,
    bias_of_spectrum,
    slowness,
)
from curvflow.tasks.numerics.sampling.diagnostics import summarise
from curvflow.tasks.numerics.sampling.methods import find
from curvflow.tasks.numerics.sampling.posteriors import Draws, Steps


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


def packed(state: Mapping[str, Tensor]) -> dict[str, Array]:
    """Return the state of a member's chains as variables of the kind.

    Args:
        state: tensors whose first dimension is the chain, by name; every number is
            exact in double precision.

    Returns:
        `chain_state` (chain, entry) and the `chain_state_form` that cuts it up.
    """
    parts = {name: state[name].cpu() for name in sorted(state)}
    flat = [part.reshape(len(part), -1) for part in parts.values()]
    form = {name: list(part.shape[1:]) for name, part in parts.items()}
    return {
        "chain_state": torch.cat([part.double() for part in flat], dim=1).numpy(),
        "chain_state_form": np.array(json.dumps(form)),
    }


def unpacked(nodes: Sequence[NodeData]) -> dict[str, Tensor]:
    """Return the state of the chains of several stored results, one after the other.

    Args:
        nodes: of one form.

    Returns:
        Tensors in double precision.
    """
    form = json.loads(str(nodes[0]["chain_state_form"].item()))
    whole_CE = torch.cat([torch.tensor(node["chain_state"]) for node in nodes])
    sizes = [int(np.prod(shape, dtype=np.int64)) for shape in form.values()]
    pieces = torch.split(whole_CE, sizes, dim=1)
    return {
        name: piece.reshape(-1, *shape)
        for (name, shape), piece in zip(form.items(), pieces, strict=True)
    }


def summarised(losses_CK: Array, init_loss: float, nbeta: float) -> dict[str, Array]:
    """Estimate a learning coefficient from losses alone.

    Args:
        losses_CK: of the draws of each chain; NaN from where a chain failed.
        init_loss: at the weights.
        nbeta: inverse temperature.

    Returns:
        The variables of `probe.llc` that these tell.
    """
    finite_CK = np.isfinite(losses_CK)
    failed_at_C = np.where(finite_CK.all(1), -1, finite_CK.argmin(1))
    losses, failed_at = torch.as_tensor(losses_CK), torch.as_tensor(failed_at_C)
    found = summarise(losses, init_loss, nbeta, failed_at)
    return {
        "llc_mean": np.array(found.llc_mean),
        "llc_std": np.array(found.llc_std),
        "llc_sem": np.array(found.llc_sem),
        "llc_per_chain": found.llc_per_chain.numpy(),
        "r_hat": np.array(found.r_hat),
        "ess_bulk": np.array(found.ess_bulk),
        "ess_tail": np.array(found.ess_tail),
        "num_failed": np.array(found.num_failed),
        "failed_at": failed_at_C,
    }
