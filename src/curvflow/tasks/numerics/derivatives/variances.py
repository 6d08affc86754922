"""Variance of gradients and of curvature between samples, without bias.

With S^2 the variance of N samples, of divisor N - 1, the mean over a batch of B drawn
without replacement has the variance (1/B - 1/N) S^2: see `batch_variance`.
Further letters: L parameter tensors, K batches, R pairs of a model
and a batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from scipy.special import stdtrit
from torch import Tensor

from curvflow.tasks.numerics.derivatives.hessians import Losses
from curvflow.tasks.numerics.derivatives.passes import Draw
from curvflow.tasks.numerics.derivatives.precision import full_precision
from curvflow.tasks.numerics.estimators.forms import TINY
from curvflow.tasks.numerics.estimators.intervals import HIGH, positive_interval
from curvflow.tasks.numerics.estimators.traces import random_vectors
from curvflow.tasks.numerics.operators.base import BatchedOperator, product
from curvflow.tasks.numerics.streams import shuffled

# From models (R,) and samples of each (R, B) to the operators of the mean over them,
# shape (R, D, D).
Sampled = Callable[[Tensor, Tensor], BatchedOperator]

# From the number of models M and the numbers of batches (n,) to the source of random
# numbers of the M n pairs of both, batches within models, the same at each call.
Drawn = Callable[[int, Tensor], Draw]

# Numbers of the copies of one model's weights in a pass, a copy per batch.
PASS_NUMBERS = 1 << 20

# Deviation of squared distances, to their mean, that is that of rounding in float32.
ALIKE = 1e-6


def batches_per_pass(size: int) -> int:
    """Return how many batches are multiplied at once, for D parameters."""
    return max(1, min(64, PASS_NUMBERS // size))


def batch_variance(variance: Tensor, batch_size: int, num_samples: int) -> Tensor:
    """Return the variance of the mean over a batch drawn without replacement.

    Args:
        variance: between the N samples, S^2, of divisor N - 1.
        batch_size: B, at most N.
        num_samples: N.

    Returns:
        (1/B - 1/N) S^2, which equals (N - B) / (B (N - 1)) times the variance of
        divisor N.
    """
    return variance * (1 / batch_size - 1 / num_samples)


def batches(
    seeds: Sequence[int], draw: int, *, num_samples: int, num_batches: int, size: int
) -> Tensor:
    """Draw disjoint batches of samples, without replacement.

    Args:
        seeds: seed of each model.
        draw: number of the draw; each has a separate stream.
        num_samples: N.
        num_batches: K.
        size: samples per batch, B; K B is at most N.

    Returns:
        Numbers of samples, (M, K, B), on the CPU.
    """
    rows_MN = shuffled(seeds, draw, num_samples)
    return rows_MN[:, : num_batches * size].view(len(seeds), num_batches, size)


@dataclass(frozen=True)
class CurvatureDraws:
    """Unbiased estimates, each of a new random vector and new random batches.

    Attributes:
        variance: of S^2 = sum over entries of the variance between samples, (M, S).
        squared_mean: of ||A||_F^2, A the mean over all samples, (M, S).
    """

    variance: Tensor
    squared_mean: Tensor


def curvature_variances(
    sampled: Sampled,
    seeds: Sequence[int],
    *,
    size: int,
    num_samples: int,
    batch_size: int,
    num_batches: int,
    num_probes: int,
    distribution: str,
    batches_per_pass: int,
    first_probe: int = 0,
) -> CurvatureDraws:
    """Estimate how much curvature matrices differ between samples.

    For a vector z and the matrices A_b of K disjoint batches of B, the U-statistic
    sum_b ||A_b z - mean_b A_b z||^2 / (K - 1) has the mean S^2 / B, whatever K and N:
    what batches without replacement have less of variance, they have of covariance.

    Args:
        sampled: from models and samples to the operators of the means over these.
        seeds: seed of each model's vectors and batches.
        size: D.
        num_samples: N.
        batch_size: samples per batch, B.
        num_batches: K per vector, 2 or more; K B is at most N.
        num_probes: vectors, S.
        distribution: `rademacher` or `gaussian`.
        batches_per_pass: multiplied at once, bounding memory.
        first_probe: number of the first vector of each model's stream.

    Returns:
        The draws; their spread holds all that is random.

    Raises:
        InputError: a product holds NaN or infinity.

    Examples:
        >>> from curvflow.tasks.numerics import BatchedDense, curvature_variances
        >>> slopes = torch.arange(1.0, 9.0).double()  # of sample n the matrix is n I
        >>> def sampled(models, rows):
        ...     means = slopes[rows].mean(-1)
        ...     return BatchedDense(means[:, None, None] * torch.eye(2).double())
        >>> draws = curvature_variances(
        ...     sampled,
        ...     [0],
        ...     size=2,
        ...     num_samples=8,
        ...     batch_size=1,
        ...     num_batches=8,
        ...     num_probes=2,
        ...     distribution="rademacher",
        ...     batches_per_pass=8,
        ... )
        >>> round(draws.variance.mean().item(), 6)  # D times the variance of 1, ..., 8
        12.0

    Reference:
        Granziol (2020), Algorithm 8, which lacks a 1/N and subtracts (v.Av)^2 instead
        of ||Av||^2; its s^2, of a unit vector, has the mean S^2 (N - 1) / (N D).
        Hoeffding (1948), doi:10.1214/aoms/1177730196, for U-statistics.
    """
    drawn, last = [], first_probe + num_probes
    together = max(1, batches_per_pass // num_batches)
    for start in range(first_probe, last, together):
        probes = range(start, min(start + together, last))
        z_MDS = random_vectors(seeds, size, probes, distribution)
        rows_MSKB = torch.stack(
            [
                batches(
                    seeds,
                    probe,
                    num_samples=num_samples,
                    num_batches=num_batches,
                    size=batch_size,
                )
                for probe in probes
            ],
            dim=1,
        )
        total_MSD, squares_MS = _sums(sampled, z_MDS.mT, rows_MSKB, batches_per_pass)
        whole_MS = total_MSD.square().sum(2)
        between_MS = (squares_MS - whole_MS / num_batches) / (num_batches - 1)
        across_MS = (whole_MS - squares_MS) / (num_batches * (num_batches - 1))
        variance_MS = batch_size * between_MS
        drawn.append(torch.stack([variance_MS, across_MS + variance_MS / num_samples]))
    variance_MS, squared_MS = torch.cat(drawn, dim=2)
    return CurvatureDraws(variance_MS, squared_MS)


def _sums(
    sampled: Sampled, z_MSD: Tensor, rows_MSKB: Tensor, batches_per_pass: int
) -> tuple[Tensor, Tensor]:
    """Return sum_b A_b z, (M, S, D), and sum_b ||A_b z||^2, (M, S), on the CPU."""
    models, probes, size = z_MSD.shape
    total_MSD, squares_MS = torch.zeros_like(z_MSD), z_MSD.new_zeros(models, probes)
    for rows_MSkB in torch.split(rows_MSKB, batches_per_pass, dim=2):
        count = rows_MSkB.shape[2]
        models_R = torch.arange(models).repeat_interleave(probes * count)
        operator = sampled(models_R, rows_MSkB.flatten(0, 2))
        z_RD1 = z_MSD.repeat_interleave(count, dim=1).reshape(-1, size, 1)
        images_RD1 = product(operator, z_RD1.to(operator.device)).cpu()
        images_MSkD = images_RD1.view(models, probes, count, size)
        total_MSD = total_MSD + images_MSkD.sum(2)
        squares_MS = squares_MS + images_MSkD.square().sum((2, 3))
    return total_MSD, squares_MS


@dataclass(frozen=True)
class GradientVariance:
    """Spread of the gradients of n of N samples, in double precision.

    Attributes:
        layer_variance: sum over each parameter tensor's entries of the variance between
            samples, S^2 of divisor n - 1, (M, L); its mean is that of all N.
        sem: standard error of the sum over tensors, (M,); 0 if all samples were used
            one by one, NaN if those that were are alike.
        squared_norm: of the mean gradient over all N, without bias, (M,).
        low: lower end of an interval of 95 % of the sum over tensors, (M,).
        high: upper end, (M,); both are the sum if all samples were used one by one.
        effective: how many samples, or batches, make up the sum, (M,); infinite if all
            samples were used one by one. Batches of all could be others, with other
            random numbers, and are counted.
        drawn_variance: the part of S^2 that random numbers drawn for each batch have,
            such as masks, (M,); none of it is between samples, so that it does not go
            where all N are in a batch.
    """

    layer_variance: Tensor
    sem: Tensor
    squared_norm: Tensor
    low: Tensor
    high: Tensor
    effective: Tensor
    drawn_variance: Tensor


def gradient_variance(
    losses: Losses,
    weights_MD: Tensor,
    inputs: Tensor,
    targets: Tensor,
    *,
    sizes: Sequence[int],
    num_samples: int,
    fixed_MS: Tensor,
    samples_per_pass: int,
    batch_size: int = 1,
    drawn: Drawn | None = None,
) -> GradientVariance:
    """Measure how much the gradients of single samples, or of batches, differ.

    Of batches S^2 is B times half the mean squared distance between the gradients of
    two disjoint ones, which is the variance between samples where these do not meet.
    What random numbers have of it is B times half the mean squared distance between
    two gradients of the same batch.

    Args:
        losses: loss of each sample, (M, n), of weights, inputs and targets.
        weights_MD: where to take the gradients.
        inputs: of n >= 2 samples drawn without replacement, (M, n, ...).
        targets: shape (M, n) or (M, n, C).
        sizes: sizes of the L consecutive parameter tensors.
        num_samples: N, of which these are n.
        fixed_MS: what `losses` takes behind the weights.
        samples_per_pass: gradients in memory at once for each model.
        batch_size: consecutive samples that meet in one gradient, B, a divisor of n.
        drawn: random numbers of networks in training, which `losses` then takes as
            `draw`; the standard error is then that of the batches.

    Returns:
        Variance, its standard error and the mean's squared norm.

    Examples:
        >>> from curvflow.tasks.numerics import gradient_variance
        >>> def losses(weights, inputs, targets):
        ...     return weights * inputs[..., 0]  # the gradient is the input
        >>> found = gradient_variance(
        ...     losses,
        ...     torch.zeros(1, 1).double(),
        ...     torch.tensor([[[1.0], [2.0], [3.0]]]).double(),
        ...     torch.zeros(1, 3),
        ...     sizes=[1],
        ...     num_samples=3,
        ...     fixed_MS=torch.zeros(1, 0).double(),
        ...     samples_per_pass=2,
        ... )
        >>> found.layer_variance.sum().item()
        1.0
    """
    count = inputs.shape[1] // batch_size

    def passes() -> list[Tensor]:
        starts = range(0, count, samples_per_pass)
        return [torch.arange(s, min(s + samples_per_pass, count)) for s in starts]

    def gradients(numbers_n: Tensor, again: int = 0) -> Tensor:
        rows_nB = numbers_n[:, None] * batch_size + torch.arange(batch_size)
        x, y = inputs[:, rows_nB], targets[:, rows_nB]
        draw = drawn(len(weights_MD), numbers_n + again * count) if drawn else None
        return _gradients(losses, weights_MD, fixed_MS, x, y, draw).double()

    mean_MD, spread_ML = _merged(gradients, passes(), sizes)
    layer_ML = (batch_size * (spread_ML / (count - 1))).cpu()
    variance_M, rest = layer_ML.sum(1), 1 / (count * batch_size) - 1 / num_samples
    none_M = drawn_M = torch.zeros_like(variance_M)
    if drawn is not None:
        drawn_M = (batch_size * _between_draws(gradients, passes())).cpu()
    # Of all N there is no variance between samples, but there is between draws.
    squared_M = mean_MD.square().sum(1).cpu()
    squared_M = squared_M - rest * variance_M - drawn_M / num_samples
    error = VarianceError(none_M, variance_M, variance_M, none_M + math.inf)
    # Of single samples none are left over that could differ; of batches, other ones.
    if rest or drawn is not None:
        apart = (gradients(r) - mean_MD[:, None] for r in passes())
        distances_Mn = torch.cat([each.square().sum(2) for each in apart], dim=1)
        whole = num_samples if drawn is None else math.inf
        error = spread_of_few(distances_Mn.cpu() * batch_size, whole)
    return GradientVariance(
        layer_ML, squared_norm=squared_M, drawn_variance=drawn_M, **error._asdict()
    )


def spread_of_distances(distances_Mn: Tensor) -> Tensor:
    """Return n times the variance of a sample variance, (M,), from squared distances.

    Distances from the mean of their own samples are alike: those of two are equal. So
    their variance is too small, of Gaussian numbers by (n - 1)(n - 2) / n^2. Of two
    samples it is taken to be that of Gaussian numbers, along one direction, which is
    the most. NaN where all distances are equal, which shows no error and is no proof
    that there is none: of samples that are alike, or of two values in equal parts.
    """
    count, mean_M = distances_Mn.shape[1], distances_Mn.mean(1)
    if count == 2:
        spread_M, is_alike_M = 4 * distances_Mn.sum(1).square(), mean_M == 0
    else:
        variance_M = distances_Mn.var(dim=1)
        spread_M = variance_M * count**2 / ((count - 1) * (count - 2))
        is_alike_M = variance_M <= (ALIKE * mean_M).square()
    return spread_M.masked_fill(is_alike_M, torch.nan)


class VarianceError(NamedTuple):
    """Error and interval of a variance by some squared distances, (M,) each.

    Attributes:
        sem: standard error.
        low: lower end of an interval of 95 %.
        high: upper end; both are NaN where the distances are alike.
        effective: how many distances make up their sum, its square by that of squares.
    """

    sem: Tensor
    low: Tensor
    high: Tensor
    effective: Tensor


def spread_of_few(distances_Mn: Tensor, num_samples: float) -> VarianceError:
    """Return the error of a sample variance, from squared distances of n of N samples.

    The interval is that of a positive, skewed mean. What was seen is a part of all, so
    that the variance of all is (n - 1) / (N - 1) of the one seen at least; and it
    reaches as far as the distances' own tail, if that is log-normal: by those above the
    median or by all, each weighed by itself, whichever is less.

    Args:
        distances_Mn: from the mean of their own n samples, 2 at least.
        num_samples: N; infinite where the distances are draws from a law.

    Examples:
        >>> from curvflow.tasks.numerics.derivatives.variances import spread_of_few
        >>> found = spread_of_few(torch.tensor([[1.0, 2.0, 1.0, 4.0]]).double(), 8)
        >>> [round(part.item(), 2) for part in found]  # of a variance of 8 / 3
        [0.82, 1.14, 18.91, 2.91]
    """
    count = distances_Mn.shape[1]
    sum_M, squares_M = distances_Mn.sum(1), distances_Mn.square().sum(1)
    effective_M = sum_M.square() / squares_M.clamp_min(TINY)
    variance_M = sum_M / (count - 1)
    rest = 1 / count - 1 / num_samples
    sem_M = (rest * spread_of_distances(distances_Mn)).sqrt()
    # One degree for the mean, one for the mean of the distances from it.
    low_M, high_M = positive_interval(variance_M, sem_M, max(count - 2, 1))
    least_M = variance_M * ((count - 1) / (num_samples - 1))
    if count > 2:
        seen, rest = count / num_samples, max(num_samples - count, 1)
        # The first is the gap between two groups where more than half are small.
        unseen_M = torch.minimum(
            _end_above_median(distances_Mn, rest),
            _end_by_weights(distances_Mn, effective_M, rest),
        )
        mean_M = seen * distances_Mn.mean(1) + (1 - seen) * unseen_M
        high_M = torch.maximum(high_M, mean_M * (count / (count - 1)))
    return VarianceError(sem_M, torch.maximum(low_M, least_M), high_M, effective_M)


def _end_above_median(distances_Mn: Tensor, unseen: float) -> Tensor:
    """Return how large the mean of others may be, by distances above the median, (M,).

    If all are log-normal, with the deviation of those above alone: small distances say
    nothing of how large others are. Not only the mean of the law is uncertain, but that
    of those not seen, nearly log-normal too (Fenton 1960).

    Args:
        distances_Mn: squared distances, three at least.
        unseen: how many others there are.

    Returns:
        The end of an interval.

    Reference:
        Olsson (2005), doi:10.1080/10691898.2005.11910638, section 3.4, with Student's
        law; Fenton (1960), doi:10.1109/TCOM.1960.1097606.
    """
    count = distances_Mn.shape[1]
    logs_Mn = distances_Mn.clamp_min(TINY).log()
    middle_M = logs_Mn.quantile(0.5, dim=1)
    above_Mn = (logs_Mn - middle_M[:, None]).clamp_min(0)
    square_M = 2 * above_Mn.square().sum(1) / (count - 1)
    error_M = square_M / count + square_M.square() / (2 * (count - 1))
    # log(1 + (e^s - 1) / u) of any s, and of infinitely many others.
    u = torch.tensor(unseen, dtype=torch.float64)
    share_M = torch.logaddexp((-1 / u).log1p(), square_M - u.log())
    half_M = float(stdtrit(count - 1, HIGH)) * (error_M + share_M).sqrt()
    return (middle_M + square_M / 2 + half_M).exp()


def _end_by_weights(distances_Mn: Tensor, effective_M: Tensor, unseen: float) -> Tensor:
    """Return how large the mean of others may be, by all distances, (M,).

    Each is weighed by itself. Small ones have no say then, however many they are; and a
    log-normal law that is so weighted keeps its deviation. The error of the mean that
    was seen is added, as others may mix small and large ones otherwise. Degrees of
    freedom are those of as many distances as make up the sum.

    Args:
        distances_Mn: squared distances, three at least.
        effective_M: how many make up their sum.
        unseen: how many others there are.
    """
    count, mean_M = distances_Mn.shape[1], distances_Mn.mean(1)
    weights_Mn = distances_Mn / distances_Mn.sum(1, keepdim=True).clamp_min(TINY)
    logs_Mn = distances_Mn.clamp_min(TINY).log()
    away_Mn = logs_Mn - (weights_Mn * logs_Mn).sum(1, keepdim=True)
    degrees_M = (effective_M - 1).clamp_min(1)
    square_M = (weights_Mn * away_Mn.square()).sum(1) * effective_M / degrees_M
    error_M = (1 + square_M) / effective_M + square_M.square() / (2 * degrees_M)
    error_M = error_M + ((count / effective_M - 1).clamp_min(0) / unseen).log1p()
    half_M = torch.as_tensor(stdtrit(degrees_M.numpy(), HIGH)) * error_M.sqrt()
    return mean_M * half_M.exp()


def _between_draws(
    gradients: Callable[[Tensor, int], Tensor], passes: Sequence[Tensor]
) -> Tensor:
    """Return the mean over batches of the variance between draws, (M,).

    Where the gradients of a pass are the same twice, nothing is drawn.
    """
    squares = []
    for numbers_n in passes:
        change_MnD = gradients(numbers_n, 1) - gradients(numbers_n, 0)
        squares.append(change_MnD.square().sum(2) / 2)
        if not squares[0].any():
            return squares[0].sum(1)
    return torch.cat(squares, dim=1).mean(1)


def _merged(
    gradients: Callable[[Tensor], Tensor],
    passes: Sequence[Tensor],
    sizes: Sequence[int],
) -> tuple[Tensor, Tensor]:
    """Return the mean gradient (M, D) and the sums of squares about it (M, L).

    Reference:
        Chan, Golub and LeVeque (1983), doi:10.1080/00031305.1983.10483115, Eq. (1.5).
    """
    first_MnD = gradients(passes[0])
    mean_MD, count = first_MnD.mean(1), len(passes[0])
    spread_MD = (first_MnD - mean_MD[:, None]).square().sum(1)
    for rows_n in passes[1:]:
        more_MnD = gradients(rows_n)
        step_MD = more_MnD.mean(1) - mean_MD
        own_MD = (more_MnD - more_MnD.mean(1, keepdim=True)).square().sum(1)
        share = len(rows_n) / (count + len(rows_n))
        spread_MD = spread_MD + own_MD + step_MD.square() * count * share
        mean_MD, count = mean_MD + step_MD * share, count + len(rows_n)
    parts = torch.split(spread_MD, list(sizes), dim=1)
    return mean_MD, torch.stack([part.sum(1) for part in parts], dim=1)


def _gradients(
    losses: Losses,
    weights_MD: Tensor,
    fixed_MS: Tensor,
    inputs: Tensor,
    targets: Tensor,
    draw: Draw | None,
) -> Tensor:
    """Return the gradient of each batch, (M, n, D): as many models of one batch each.

    Inputs and targets have shape (M, n, B, ...).
    """
    models, count, batch = inputs.shape[:3]
    weights_RD = weights_MD.repeat_interleave(count, dim=0)
    fixed_RS = fixed_MS.repeat_interleave(count, dim=0)
    inputs_RB, targets_RB = (data.flatten(0, 1) for data in (inputs, targets))
    drawing = {"draw": draw} if draw else {}

    # Not by functorch, which takes no functions of a user's without `setup_context`.
    with full_precision(), torch.enable_grad():
        weights_RD = weights_RD.detach().requires_grad_()
        weights_RW = torch.cat([weights_RD, fixed_RS], dim=1)
        loss = losses(weights_RW, inputs_RB, targets_RB, **drawing).sum() / batch
        (found_RD,) = torch.autograd.grad(loss, weights_RD, materialize_grads=True)
    return found_RD.view(models, count, -1)
