"""Results of the chains about one target, and the biases of their estimate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from curvflow.tasks.numerics.sampling.bias import (
    Length,
    bias_of_acceptance,
    bias_of_batches,
    bias_of_spectrum,
    slowness,
)
from curvflow.tasks.numerics.sampling.chain_settings import EXACT, ChainSettings
from curvflow.tasks.numerics.sampling.methods import find
from curvflow.tasks.numerics.sampling.posteriors import Draws, Steps


@dataclass(frozen=True)
class EarlierChains:
    """Chains about one target that further draws resume from.

    Attributes:
        settings: under which they were sampled.
        traces: `loss_trace`, `batch_loss_trace` and `distance_trace`, each (C, K).
        weights: of the draws, (C, K, D), if they were kept.
        state: tensors whose first dimension is the chain, by name.
    """

    settings: ChainSettings
    traces: Mapping[str, Tensor]
    weights: Tensor | None
    state: Mapping[str, Tensor]


@dataclass(frozen=True)
class ChainResults:
    """The chains about one target with all their draws, earlier ones included.

    Attributes:
        traces: `loss_trace`, `batch_loss_trace` and `distance_trace`, each (C, K).
        acceptance: mean acceptance, (C,).
        heat: what the noise of batches adds, see `Draws`, (C,).
        failed_at: step at which a chain left the finite numbers, -1 if none, (C,).
        passes: work, in gradients over all data, of all chains.
        state: what further draws resume from.
        weights: of the draws, (C, K, D), if they were kept.
    """

    traces: dict[str, Tensor]
    acceptance: Tensor
    heat: Tensor
    failed_at: Tensor
    passes: float
    state: dict[str, Tensor]
    weights: Tensor | None

    @property
    def is_finite(self) -> Tensor:
        """Whether a chain stayed finite, (C,)."""
        return self.failed_at < 0

    @property
    def lr(self) -> float:
        """Step, mean over chains."""
        return float(self.state["lr"].double().mean())


def results_of(
    draws: Draws, chains: slice, earlier: EarlierChains | None
) -> ChainResults:
    """Return the results of one target, after those of its earlier draws.

    Args:
        draws: of all targets.
        chains: those of the target.
        earlier: the chains that these resume, if any.

    Returns:
        The results.
    """
    drawn = {
        "loss_trace": draws.losses,
        "batch_loss_trace": draws.batch_losses,
        "distance_trace": draws.distances,
    }
    traces = {name: trace[chains].cpu().double() for name, trace in drawn.items()}
    weights = None if draws.weights is None else draws.weights[chains].cpu().double()
    if earlier is not None:
        traces = {
            name: torch.cat([earlier.traces[name], trace], dim=1)
            for name, trace in traces.items()
        }
        if weights is not None and earlier.weights is not None:
            weights = torch.cat([earlier.weights, weights], dim=1)
    return ChainResults(
        traces,
        draws.acceptance[chains].cpu().double(),
        draws.heat[chains].cpu().double(),
        draws.failed_at[chains].cpu(),
        float(draws.passes[chains].sum()),
        {name: tensor[chains] for name, tensor in draws.state.items()},
        weights,
    )


def biases(
    settings: ChainSettings,
    results: ChainResults,
    llc: float,
    *,
    damping: float,
    num_free: int,
) -> tuple[float, float]:
    """Bound the relative excess that finite steps and batches cause.

    Args:
        settings: of the chains.
        results: the chains.
        llc: their estimate.
        damping: of a preconditioned method.
        num_free: parameters that move.

    Returns:
        The excess by steps, and that by batches; NaN where no bound is known.
    """
    if settings.method == EXACT:
        return 0.0, 0.0
    method = find(settings.method)
    acceptance, heat = (
        float(each_C[results.is_finite].mean())
        for each_C in (results.acceptance, results.heat)
    )
    of_steps = bias_of_acceptance(method, acceptance, llc)
    if settings.ritz is not None:
        most_lr = method.lag * results.lr * method.most_scale(damping)
        of_spectrum = bias_of_spectrum(
            *settings.ritz, settings.nbeta, settings.localization, most_lr
        )
        of_steps = float(np.fmax(of_steps, of_spectrum))
    return of_steps, bias_of_batches(method, heat, llc, num_free)


def slow_error(
    settings: ChainSettings, results: ChainResults, steps: Steps, *, num_free: int
) -> float:
    """Return the error from directions too slow for the chains; NaN if not calibrated.

    Args:
        settings: of the chains, with the spectrum if one was measured.
        results: the chains.
        steps: those that they took last.
        num_free: parameters that move.
    """
    finite_C = results.is_finite
    if settings.ritz is None or not finite_C.any():
        return math.nan
    state = {name: tensor[finite_C] for name, tensor in results.state.items()}
    length = Length(
        pace(state, results.acceptance[finite_C], steps),
        settings.num_burnin_steps,
        results.traces["loss_trace"].shape[1] * steps.num_steps_bw_draws,
        int(finite_C.sum()),
    )
    gamma = settings.localization
    return sum(slowness(*settings.ritz, num_free, settings.nbeta, gamma, length))


def pace(state: Mapping[str, Tensor], acceptance_C: Tensor, steps: Steps) -> float:
    """Return the lr of sgld that forgets as fast, mean over chains.

    Args:
        state: of the chains.
        acceptance_C: share of their steps that is accepted.
        steps: of the chains.
    """
    method, lr = find(steps.method), float(state["lr"].double().mean())
    if method.target_acceptance is not None:
        lr *= float(acceptance_C.mean())
    if method.has_friction:
        lr /= steps.friction
    if method.scale is not None:
        lr *= float(method.scale(dict(state), steps).double().mean())
    return lr
