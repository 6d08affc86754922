"""Results of the chains about one target, and the biases of their estimate.

Letters: S runs of Lanczos; K nodes of each, or draws of a chain; C chains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from curvflow.tasks.numerics.sampling.chain_targets import ChainSettings
from curvflow.tasks.numerics.sampling.methods import Method, find
from curvflow.tasks.numerics.sampling.posteriors import Draws, Steps


def bias_of_spectrum(
    values_SK: Tensor,
    weights_SK: Tensor,
    nbeta: float,
    localization: float,
    lr: float,
) -> float:
    """Return the relative excess that steps of sgld cause at a regular minimum.

    In a direction of curvature h a chain that accepts every step has 1 / (1 - lr c / 4)
    times the variance 1 / c of c = nbeta h + gamma.

    Args:
        values_SK: Ritz values of the Hessian, of S runs; negative ones count as zero.
        weights_SK: their weights, of sum 1 over a run.
        nbeta: inverse temperature.
        localization: gamma.
        lr: step.

    Returns:
        Excess over the estimate; infinite where the chain is not stable, NaN where no
        eigenvalue is positive.
    """
    steep_SK, whole_SK = _energy(values_SK, nbeta, localization)
    return _excess(whole_SK, weights_SK * steep_SK / whole_SK, lr)


def _energy(
    values_SK: Tensor, nbeta: float, localization: float
) -> tuple[Tensor, Tensor]:
    """Return the curvatures of nbeta L, and those of the energy."""
    steep_SK = nbeta * values_SK.nan_to_num(0.0).clamp(min=0.0)
    whole_SK = (steep_SK + localization).clamp(min=torch.finfo(torch.float64).tiny)
    return steep_SK, whole_SK


def _excess(whole_SK: Tensor, part_SK: Tensor, lr: float) -> float:
    left_SK = 1 - lr * whole_SK / 4
    raised_SK = torch.where(left_SK > 0, part_SK / left_SK, math.inf)
    return float(raised_SK.where(part_SK > 0, 0.0).sum() / part_SK.sum()) - 1


def bias_of_batches(method: Method, heat: float, llc: float, size: int) -> float:
    """Bound the relative excess of an estimate that the noise of batches causes.

    A thermostat takes from every direction the mean heat of all: of the heat of some,
    their share among the directions that count, 2 lambda of d, is made up for.

    Args:
        method: of the chains.
        heat: what the noise adds at the most to nbeta E L.
        llc: lambda, the estimate.
        size: parameters that move, d.

    Returns:
        Excess over the estimate; NaN if that is not positive.
    """
    if not llc > 0:
        return math.nan
    left = max(0.0, 1 - 2 * llc / size) if method.has_thermostat else 1.0
    return left * heat / llc


@dataclass(frozen=True)
class Length:
    """Length of chains, in steps and in pace.

    Attributes:
        pace: lr of sgld that forgets as fast.
        whitened: the same of steps that are whitened.
        num_burnin_steps: steps before the first draw.
        num_steps: steps from there to the last draw.
        num_chains: chains that are averaged.
    """

    pace: float
    whitened: float
    num_burnin_steps: int
    num_steps: int
    num_chains: int


def slowness(
    values_SK: Tensor,
    weights_SK: Tensor,
    num_parameters: int,
    *,
    nbeta: float,
    localization: float,
    length: Length,
    unknown: float = math.inf,
) -> tuple[float, float]:
    """Return the error of the coefficient by slow directions and chains this long.

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
        unknown: curvature that whitening takes directions to have at the least.

    Returns:
        The mean that the estimate lacks, and its standard error; of continuous time,
        so that directions which are forgotten from draw to draw add nothing.
    """
    steep_SK, whole_SK = _energy(values_SK, nbeta, localization)
    rate_SK = length.pace * whole_SK
    if length.whitened:
        width_SK = nbeta * values_SK.nan_to_num(0.0).abs().clamp(min=unknown)
        rate_SK = rate_SK + length.whitened * whole_SK / (width_SK + localization)
    part_SK = steep_SK / whole_SK
    return _slowness(rate_SK, part_SK, weights_SK, num_parameters, length)


def _slowness(
    rate_SK: Tensor,
    part_SK: Tensor,
    weights_SK: Tensor,
    num_parameters: int,
    length: Length,
) -> tuple[float, float]:
    """Return what `slowness` does, from the rates at which directions are forgotten."""
    span_SK = (rate_SK * length.num_steps).clamp(min=1e-6)
    begun_SK = torch.exp(-rate_SK * length.num_burnin_steps)
    lacking_SK = part_SK / 2 * begun_SK * -torch.expm1(-span_SK) / span_SK
    # Variance of a mean over time, of what has variance part^2 / 2.
    spread_SK = part_SK.square() * (span_SK + torch.expm1(-span_SK)) / span_SK.square()

    def trace(each_SK: Tensor) -> float:
        return num_parameters * float((weights_SK * each_SK).sum(1).mean())

    return trace(lacking_SK), math.sqrt(trace(spread_SK) / length.num_chains)


@dataclass(frozen=True)
class EarlierChains:
    """Chains about one target that further draws resume from.

    Attributes:
        settings: under which they were sampled.
        traces: `loss_trace`, `batch_loss_trace` and `distance_trace`, each (C, K).
        weights: of the draws, (C, K, D), if they were kept.
        state: tensors whose first dimension is the chain, by name.
        observed: observables at the draws, (C, K, O), if they were recorded.
    """

    settings: ChainSettings
    traces: Mapping[str, Tensor]
    weights: Tensor | None
    state: Mapping[str, Tensor]
    observed: Tensor | None = None


@dataclass(frozen=True)
class ChainResults:
    """The chains about one target with all their draws, earlier ones included.

    Attributes:
        traces: `loss_trace`, `batch_loss_trace` and `distance_trace`, each (C, K).
        acceptance: mean acceptance, (C,).
        raised: what steps of sgld add, see `Draws`, (C,).
        heat: what the noise of batches adds, (C,).
        failed_at: step at which a chain left the finite numbers, -1 if none, (C,).
        passes: work, in gradients over all data, of all chains.
        state: what further draws resume from.
        weights: of the draws, (C, K, D), if they were kept.
        observed: observables at the draws, (C, K, O), if they were recorded.
    """

    traces: dict[str, Tensor]
    acceptance: Tensor
    raised: Tensor
    heat: Tensor
    failed_at: Tensor
    passes: float
    state: dict[str, Tensor]
    weights: Tensor | None
    observed: Tensor | None = None

    @property
    def is_finite(self) -> Tensor:
        """True for chains that stayed finite, (C,)."""
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
    if earlier is not None:
        traces = {
            name: torch.cat([earlier.traces[name], trace], dim=1)
            for name, trace in traces.items()
        }
    weights, observed = (
        _after(before, kept, chains)
        for before, kept in (
            (None if earlier is None else earlier.weights, draws.weights),
            (None if earlier is None else earlier.observed, draws.observed),
        )
    )
    return ChainResults(
        traces,
        draws.acceptance[chains].cpu().double(),
        draws.raised[chains].cpu().double(),
        draws.heat[chains].cpu().double(),
        draws.failed_at[chains].cpu(),
        float(draws.passes[chains].sum()),
        {name: tensor[chains] for name, tensor in draws.state.items()},
        weights,
        observed,
    )


def _after(before: Tensor | None, drawn: Tensor | None, chains: slice) -> Tensor | None:
    """Return what was kept of some chains, after what was kept of them before."""
    if drawn is None:
        return None
    kept = drawn[chains].cpu().double()
    return kept if before is None else torch.cat([before, kept], dim=1)


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
    method = find(settings.method)
    if method.is_exact:
        return 0.0, 0.0
    raised, heat = (
        float(each_C[results.is_finite].mean())
        for each_C in (results.raised, results.heat)
    )
    # Of a method that lags, steps cause so many times what those of sgld do.
    at_draws = method.lag * abs(raised) / llc if llc > 0 else math.nan
    most_lr = method.lag * results.lr * method.most_scale(damping)
    of_steps = float(np.fmax(at_draws, _bias_at_weights(settings, most_lr)))
    return of_steps, bias_of_batches(method, heat, llc, num_free)


def _bias_at_weights(settings: ChainSettings, lr: float) -> float:
    """Return the excess by the spectrum that steps meet; NaN if it is not known."""
    if (inside := settings.metric_spectrum) is not None:
        whole_SK, weights_SK, part_SK = (each.nan_to_num(0.0) for each in inside)
        return _excess(whole_SK, weights_SK * part_SK, lr)
    if settings.ritz is None:
        return math.nan
    return bias_of_spectrum(*settings.ritz, settings.nbeta, settings.localization, lr)


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
    if not finite_C.any():
        return math.nan
    draws = results.traces["loss_trace"].shape[1]
    state = {name: tensor[finite_C] for name, tensor in results.state.items()}
    acceptance_C = results.acceptance[finite_C]
    return sum(
        slow_directions(
            settings,
            state,
            acceptance_C,
            steps,
            num_steps=draws * steps.num_steps_bw_draws,
            num_free=num_free,
        )
    )


def slow_directions(
    settings: ChainSettings,
    state: Mapping[str, Tensor],
    acceptance_C: Tensor,
    steps: Steps,
    *,
    num_steps: int,
    num_free: int,
) -> tuple[float, float]:
    """Return the mean that slow directions leave out, and its standard error.

    Args:
        settings: of the chains, with the spectrum if one was measured.
        state: of the chains, all finite.
        acceptance_C: share of their steps that is accepted.
        steps: of the chains.
        num_steps: steps after the burn-in.
        num_free: parameters that move.

    Returns:
        Both; NaN without a spectrum.
    """
    if settings.ritz is None:
        return math.nan, math.nan
    length = Length(
        *pace(state, acceptance_C, steps),
        settings.num_burnin_steps,
        num_steps,
        len(acceptance_C),
    )
    if (inside := settings.metric_spectrum) is not None:
        whole_SK, weights_SK, part_SK = (each.nan_to_num(0.0) for each in inside)
        # Of multiscale_mala those of its steps that are taken in the metric.
        rate_SK = (length.whitened or length.pace) * whole_SK
        return _slowness(rate_SK, part_SK, weights_SK, num_free, length)
    gamma = settings.localization
    known = settings.eigenvectors
    has_all = known is None or known.vectors.shape[1] == num_free
    unknown = 0.0 if has_all or known is None else float(known.curvatures[-1])
    ritz = settings.ritz
    return slowness(
        *ritz,
        num_free,
        nbeta=settings.nbeta,
        localization=gamma,
        length=length,
        unknown=unknown,
    )


def pace(
    state: Mapping[str, Tensor], acceptance_C: Tensor, steps: Steps
) -> tuple[float, float]:
    """Return the lr of sgld that forgets as fast, mean over chains, and if whitened.

    Args:
        state: of the chains.
        acceptance_C: share of their steps that is accepted.
        steps: of the chains.
    """
    method, lr = find(steps.method), float(state["lr"].double().mean())
    if "pace" in state:
        paces = (state[name] / state["step"] for name in ("pace", "whitened_pace"))
        plain, whitened = (float(each_C.double().mean()) for each_C in paces)
        return plain, whitened
    if method.is_exact:
        lr *= float(acceptance_C.mean())
    if method.has_friction:
        lr /= steps.friction
    if method.scale is not None:
        lr *= float(method.scale(dict(state), steps).double().mean())
    return lr, 0.0
