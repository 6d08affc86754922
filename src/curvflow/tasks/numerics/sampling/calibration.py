"""Sampler settings from the measured curvature, by the closed forms of a quadratic.

For eigenvalues h_i of the Hessian and c_i = nbeta h_i + gamma, a chain of step lr on a
quadratic has the stationary estimate

    1/2 sum_i (nbeta h_i / c_i) / (1 - lr c_i / 4) (1 + lr nbeta^2 s_i^2 / (4 B))

of the coefficient, s_i^2 the variance of single samples' gradients along direction i:
the localization lowers it, the step and the batch raise it. Other methods are bounded
by the same with a larger step, or with a larger s_i^2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from curvflow.tasks.numerics.krylov.functionals import Bernstein, Bounded, bounded
from curvflow.tasks.numerics.krylov.lanczos import RitzData
from curvflow.tasks.numerics.krylov.quadrature import nodes
from curvflow.tasks.numerics.sampling.calibration_sweep import swept
from curvflow.tasks.numerics.sampling.chain_targets import (
    ChainSettings,
    ChainTargets,
    SamplingOptions,
)
from curvflow.tasks.numerics.sampling.measured_curvature import (
    MeasuredCurvature,
    Scales,
    gradient_noise,
    measure,
)
from curvflow.tasks.numerics.sampling.methods import Method, find
from curvflow.tasks.numerics.sampling.metric_curvature import (
    MetricCurvature,
    by_eigenvectors,
    by_factors,
    condition_of,
)

# Steps that the slowest direction may take to forget, 2 / (lr gamma), in multiples of
# the steps between draws.
MEMORY = 5000

# Share by which the localization may lower a typical direction; and one in which the
# loss rises with the fourth power of weights of size 1, whose posterior reaches the
# curvature (nbeta h)^(1/2), or a crossing w1^2 w2^4, which a gamma of 1 lowers by 6 %
# at nbeta 1e4.
HELD = 1e-3
HELD_SINGULAR = 0.003

# Eigenvalues so small against the largest are rounding, or not resolved.
FLAT = 1e-7

# Times that gamma is lowered by the root of 10, at the most: three decades.
LOWERINGS = 6

# Share that a mini-batch may add to the estimate, and the stride of a chain without
# correction: lr (nbeta h + gamma) of the sharpest direction adds a quarter of that
# there, times the lag of the method. Together they stay below the 5 % of a step too
# large.
HEATING = 0.02
STRIDE = 0.1

# Steps of burn-in in multiples of the time that a typical direction, or one of fourth
# power, takes to forget.
WAIT = 5

# Steps of burn-in at the least: adapting a step takes as many; and at the most.
LEAST_BURNIN = 1024
MOST_BURNIN = 4096

# How many times over directions of negative curvature are held.
MARGIN = 2.0

# Up to so many samples a step over all the data is taken to be affordable, by a method
# that is exact.
FULL_DATA, AFFORDABLE = 4096, "multiscale_mala"


def calibrated(
    targets: ChainTargets, options: Sequence[SamplingOptions], nbeta: Sequence[float]
) -> list[ChainSettings]:
    """Choose the settings that options leave open.

    Args:
        targets: the weights and losses.
        nbeta: inverse temperature of each target.
        options: of each target; they differ in nbeta, lr and localization at most.

    Returns:
        Settings, with all that was measured and tried.

    Raises:
        InputError: products with the Hessian hold NaN or infinity.
    """
    name = _method(targets, options[0])
    is_whitened = find(name).is_whitened
    measured = measure(targets, _tensor(nbeta), vectors=is_whitened)
    settings = _chosen(targets, options, measured, name)
    if targets.factors is not None:
        settings = _in_better_metric(targets, options, measured, settings)
    if is_whitened:
        return [
            _adapting(each, option)
            for each, option in zip(settings, options, strict=True)
        ]
    return swept(targets, options, settings)


def _in_better_metric(
    targets: ChainTargets,
    options: Sequence[SamplingOptions],
    measured: MeasuredCurvature,
    settings: Sequence[ChainSettings],
) -> list[ChainSettings]:
    """Return settings in the metric of factors where that is measured to be better.

    It is better where the largest curvature that steps meet is fewer times the smallest
    than without it, or with eigenvectors where the method is whitened by these.
    """
    name = settings[0].method
    gamma_M = _localization(options, measured, find(name), in_metric=True)
    metric = by_factors(targets, measured.nbeta, gamma_M)
    inside = _chosen(targets, options, measured, name, metric)
    own_M = _tensor(each.localization for each in settings)
    if find(name).is_whitened:
        without_M, work_M = by_eigenvectors(targets, measured, own_M)
    else:
        without_M, work_M = condition_of(measured, own_M), torch.zeros_like(own_M)
    is_better_M = metric.condition < without_M
    otherwise = "eigenvectors" if find(name).is_whitened else "none"
    chosen = []
    for number, better in enumerate(is_better_M.tolist()):
        taken = inside[number] if better else settings[number]
        conditions = {
            "metric": np.array("factors" if better else otherwise),
            "condition": without_M[number].numpy(),
            "factors_condition": metric.condition[number].numpy(),
        }
        work = settings[number].work + metric.work(number) + float(work_M[number])
        calibration = {**taken.calibration, **conditions}
        chosen.append(replace(taken, calibration=calibration, work=work))
    return chosen


def _adapting(settings: ChainSettings, options: SamplingOptions) -> ChainSettings:
    """Let the burn-in move a step that is not given, without bounds."""
    if options.lr is not None:
        return settings
    return replace(settings, lr=math.inf, first_lr=settings.lr)


def _method(targets: ChainTargets, options: SamplingOptions) -> str:
    takes_batches = options.batch_size is not None or options.at_draws != "full"
    is_affordable = targets.num_samples <= FULL_DATA and not takes_batches
    return options.sampling_method or (AFFORDABLE if is_affordable else "sgld")


@dataclass(frozen=True)
class _Chosen:
    """Settings of all targets, each (M,)."""

    localization: Tensor
    lr: Tensor
    num_burnin_steps: Tensor
    batch_size: Tensor  # the smallest whose heating is allowed
    variance: Tensor  # of single samples' gradients; NaN where none is needed
    regular: Bounded  # the coefficient if the minima are regular
    held: Tensor  # second order of what gamma takes of it


def _localization(
    options: Sequence[SamplingOptions],
    measured: MeasuredCurvature,
    method: Method,
    *,
    in_metric: bool = False,
) -> Tensor:
    computed_M = localization_for(
        measured,
        steps_bw_draws=options[0].num_steps_bw_draws,
        stride=stride_of(method),
        is_whitened=method.is_whitened,
        max_hold=options[0].max_hold,
        in_metric=in_metric,
    )
    return _unless_given([each.localization for each in options], computed_M)


def _chosen(
    targets: ChainTargets,
    options: Sequence[SamplingOptions],
    measured: MeasuredCurvature,
    name: str,
    metric: MetricCurvature | None = None,
) -> list[ChainSettings]:
    """Return the settings of all targets, of steps in a metric if one is given."""
    nbeta_M, first = measured.nbeta, options[0]
    method = find(name)
    stride, most = stride_of(method), method.most_scale(first.damping)
    if metric is None:
        gamma_M = _localization(options, measured, method)
        scales, of_loss_M, of_hold_M = measured.scales, nbeta_M, gamma_M
        steep_M, whitening = nbeta_M * measured.at_reach, None
    else:
        # In its coordinates the energy itself is measured.
        gamma_M, scales = metric.localization, metric.scales
        of_loss_M, of_hold_M = torch.ones_like(gamma_M), torch.zeros_like(gamma_M)
        steep_M, whitening = metric.at_reach, metric.whitening
    lr_M = lr_for(scales, of_loss_M, of_hold_M, stride=stride) / most
    lr_M = _unless_given([each.lr for each in options], lr_M)
    regular = predicted(measured.ritz, nbeta_M, gamma_M)
    batch_M = torch.zeros_like(lr_M)
    variance_M = torch.full_like(lr_M, math.nan)
    if not method.is_exact:
        coefficient_M = regular.estimate.mean
        variance_M = gradient_noise(targets, coefficient_M, steep_M, whitening)
        step_M = lr_M * most / (first.friction if method.has_friction else 1)
        batch_M = batch_for(step_M, nbeta_M, variance_M, coefficient_M)
    burnin_M = burnin_for(scales, of_loss_M, stride=stride, most=MOST_BURNIN)
    _, held_M = held_share(measured.ritz, nbeta_M, gamma_M, power=2)
    chosen = _Chosen(gamma_M, lr_M, burnin_M, batch_M, variance_M, regular, held_M)
    return [
        _settings(each, targets.num_samples, measured, chosen, name, number, metric)
        for number, each in enumerate(options)
    ]


def _settings(
    options: SamplingOptions,
    num_samples: int,
    measured: MeasuredCurvature,
    chosen: _Chosen,
    method: str,
    number: int,
    metric: MetricCurvature | None,
) -> ChainSettings:
    """Return the settings of one target."""
    batch_size = options.batch_size
    is_exact = find(method).is_exact
    if batch_size is None and not is_exact:
        batch_size = _rounded(float(chosen.batch_size[number]), num_samples)
    return ChainSettings(
        method,
        float(measured.nbeta[number]),
        float(chosen.lr[number]),
        float(chosen.localization[number]),
        batch_size,
        _burnin(options, int(chosen.num_burnin_steps[number])),
        calibration={
            "predicted": chosen.regular.estimate.mean[number].numpy(),
            "predicted_sem": chosen.regular.total[number].numpy(),
            "largest_eigenvalue": measured.scales.largest[number].numpy(),
            "smallest_eigenvalue": measured.scales.smallest[number].numpy(),
            "typical_curvature": measured.scales.typical[number].numpy(),
            "gradient_variance": chosen.variance[number].numpy(),
            "ritz_values": measured.ritz.values[number].numpy(),
            "ritz_weights": measured.ritz.weights[number].numpy(),
            "hold_of_spectrum": chosen.held[number].numpy(),
            **_whitening(measured, method, number, metric),
        },
        work=measured.work(number) + (not is_exact),
    )


def _whitening(
    measured: MeasuredCurvature,
    method: str,
    number: int,
    metric: MetricCurvature | None,
) -> dict[str, NDArray[Any]]:
    """Return what steps are whitened by, if those of the method are.

    Of a metric that is the spectrum which steps meet: the map itself follows from
    factors and settings.
    """
    if metric is not None:
        return {
            "metric_values": metric.ritz.values[number].numpy(),
            "metric_weights": metric.ritz.weights[number].numpy(),
            "metric_parts": metric.parts[number].numpy(),
        }
    if not find(method).is_whitened:
        return {}
    known = measured.eigenvectors(number)
    return {
        "whitening_vectors": known.vectors.cpu().double().numpy(),
        "whitening_curvatures": known.curvatures.numpy(),
    }


def _burnin(options: SamplingOptions, steps: int) -> int:
    """Round up to a power of 2, so that more targets share their steps."""
    if options.num_burnin_steps is not None:
        return options.num_burnin_steps
    return 1 << (steps - 1).bit_length()


def _rounded(batch_size: float, num_samples: int) -> int | None:
    """Round up to a power of 2 from 32 on; all data where it is near to that."""
    size = max(32, 1 << math.ceil(math.log2(max(1.0, batch_size))))
    return size if 2 * size <= num_samples else None


def _unless_given(values: Sequence[float | None], computed_M: Tensor) -> Tensor:
    pairs = zip(values, computed_M.tolist(), strict=True)
    return _tensor(computed if value is None else value for value, computed in pairs)


def _tensor(values: Iterable[float]) -> Tensor:
    return torch.tensor(list(values), dtype=torch.float64)


def localization_for(
    measured: MeasuredCurvature,
    *,
    steps_bw_draws: int,
    stride: float,
    is_whitened: bool,
    max_hold: float,
    in_metric: bool = False,
) -> Tensor:
    """Return gamma, (M,), which hardly changes a typical or a singular direction.

    It takes at most half of `max_hold` from what the spectrum predicts, unless it needs
    to be stronger: so that the flattest direction forgets within MEMORY draws, or to
    confine every direction of negative curvature.

    Args:
        measured: curvature about the weights, and inverse temperatures.
        steps_bw_draws: steps from draw to draw.
        stride: of the method, see `stride_of`.
        is_whitened: whether steps are long where the measured curvature is small.
        max_hold: share of the coefficient that gamma may take.
        in_metric: whether steps are taken in a metric in which all directions forget
            in less time than that.

    Returns:
        gamma of each target.
    """
    scales, nbeta_M = measured.scales, measured.nbeta
    steep_M, usual_M = nbeta_M * scales.largest, nbeta_M * scales.typical
    if in_metric:
        steep_M = torch.zeros_like(steep_M)
    elif is_whitened:
        steep_M = nbeta_M * measured.unknown
    mixing_M = 2 * steep_M / (MEMORY * steps_bw_draws * stride)
    gentle_M = torch.minimum(HELD * usual_M, HELD_SINGULAR * usual_M.sqrt())
    gentle_M = _lowered(measured, gentle_M, max_hold / 2)
    confining_M = MARGIN * nbeta_M * -scales.smallest
    return torch.stack([mixing_M, gentle_M, confining_M]).amax(0)


def _lowered(measured: MeasuredCurvature, gamma_M: Tensor, most_held: float) -> Tensor:
    """Lower gamma until it takes no more from what the spectrum predicts, (M,)."""
    for _ in range(LOWERINGS):
        whole_M, held_M = held_share(measured.ritz, measured.nbeta, gamma_M)
        is_held_M = held_M > most_held * whole_M
        if not is_held_M.any():
            break
        gamma_M = torch.where(is_held_M, gamma_M / math.sqrt(10), gamma_M)
    return gamma_M


def held_share(
    ritz: RitzData, nbeta_M: Tensor, localization_M: Tensor, *, power: int = 1
) -> tuple[Tensor, Tensor]:
    """Return the coefficient of a regular minimum, and what gamma takes of it, (M,).

    Args:
        ritz: of the Hessian; eigenvalues below FLAT times the largest count as zero.
        nbeta_M: inverse temperatures.
        localization_M: gamma.
        power: of gamma's part of each direction.
    """
    nbeta, gamma = (x[:, None, None] for x in (nbeta_M, localization_M))
    values = nodes(ritz)
    counts = values > FLAT * values.abs().amax((1, 2), keepdim=True)
    held = torch.where(counts, (gamma / (nbeta * values + gamma)) ** power, 0.0)
    whole_M, held_M = (
        ritz.size / 2 * (ritz.weights * each).sum(2).mean(1)
        for each in (counts.double(), held)
    )
    return whole_M, held_M


def lr_for(
    scales: Scales, nbeta_M: Tensor, localization_M: Tensor, *, stride: float
) -> Tensor:
    """Return the step, (M,), by the sharpest direction.

    Args:
        scales: curvatures about the weights.
        nbeta_M: inverse temperatures.
        localization_M: gamma.
        stride: of the method, see `stride_of`.
    """
    return stride / (nbeta_M * scales.largest + localization_M)


def stride_of(method: Method) -> float:
    """Return lr (nbeta h + gamma) of the sharpest direction.

    A method that corrects its steps adapts them from 1; those of others cause an excess
    of STRIDE / 4 there.
    """
    return 1.0 if method.is_exact else STRIDE / method.lag


def burnin_for(scales: Scales, nbeta_M: Tensor, *, stride: float, most: int) -> Tensor:
    """Return the steps of burn-in, (M,).

    Directions that are flatter than these hardly enter the loss.

    Args:
        scales: curvatures about the weights.
        nbeta_M: inverse temperatures.
        stride: of the method, see `stride_of`.
        most: bound, at least LEAST_BURNIN.

    Returns:
        WAIT times as long as a typical direction, or one of fourth power, takes.
    """
    steep_M = nbeta_M * scales.largest
    slowness_M = torch.maximum(scales.largest / scales.typical, steep_M.sqrt())
    steps_M = WAIT * 2 / stride * slowness_M
    return steps_M.clamp(LEAST_BURNIN, most).ceil().to(torch.int64)


def batch_for(
    lr_M: Tensor, nbeta_M: Tensor, variance_M: Tensor, coefficient_M: Tensor
) -> Tensor:
    """Return the smallest batch, (M,), that adds no more than HEATING.

    Along all directions together a batch adds at most lr nbeta^2 S^2 / (4 B d_eff), as
    each of the d_eff directions that are not flat weighs the same.

    Args:
        lr_M: the step, over the part of its noise that a method with friction adds.
        nbeta_M: inverse temperatures.
        variance_M: S^2, variance of single samples' gradients, all directions, where
            the draws are.
        coefficient_M: predicted, d_eff / 2.
    """
    effective_M = (2 * coefficient_M).clamp(min=1.0)
    return lr_M * nbeta_M.square() * variance_M / (4 * HEATING * effective_M)


def predicted(
    ritz: RitzData,
    nbeta_M: Tensor,
    localization_M: Tensor,
) -> Bounded:
    """Predict the coefficient as if the minimum were regular.

    Args:
        ritz: of the Hessian at the weights; negative eigenvalues count as zero.
        nbeta_M: inverse temperatures.
        localization_M: gamma.

    Returns:
        Half the effective dimension at the prior precision gamma / nbeta, (M,).
    """
    nbeta, gamma = (x[:, None, None] for x in (nbeta_M, localization_M))

    def share(values: Tensor) -> Tensor:
        steep = nbeta * values
        whole = steep + gamma
        return torch.where(whole > 0, steep / whole, 0.0) / 2

    held_M1 = -(localization_M / nbeta_M)[:, None]
    return bounded(ritz, Bernstein(share, pole=held_M1, most=0.5))
