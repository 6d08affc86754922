"""Curvature and gradient noise about targets, measured for the calibration."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from curvflow.tasks.numerics.estimators.traces import random_vectors
from curvflow.tasks.numerics.krylov.eigenpairs import Ritz, all_pairs
from curvflow.tasks.numerics.krylov.lanczos import RitzData, joined, lanczos
from curvflow.tasks.numerics.krylov.quadrature import extremes, nodes
from curvflow.tasks.numerics.operators.base import BatchedOperator
from curvflow.tasks.numerics.sampling.chain_targets import ChainTargets
from curvflow.tasks.numerics.sampling.posteriors import ChainLosses
from curvflow.tasks.numerics.sampling.whitening import Eigenvectors
from curvflow.tasks.numerics.streams import stream

# Lanczos runs, and their steps; up to as many parameters as these take products, all
# eigenvectors are found.
RUNS, STEPS = 8, 30
DENSE = RUNS * STEPS

# Samples whose gradients are compared, at most, and positions about the weights at
# which they are.
COMPARED, POSITIONS = 256, 4

# Numbers of their gradients that one pass may hold of a target.
PASS_NUMBERS = 1 << 20


@dataclass(frozen=True)
class MeasuredCurvature:
    """Curvature about targets at their inverse temperatures.

    Attributes:
        ritz: of the Hessian of the free parameters.
        at_reach: mean curvature at the reach of the posterior, (M,).
        scales: of both.
        nbeta: inverse temperatures, (M,).
    """

    ritz: RitzData
    at_reach: Tensor
    scales: Scales
    nbeta: Tensor

    def work(self, number: int) -> float:
        """Return the gradients over all data that measuring one target took.

        A product with the Hessian counts as two gradients, a loss as a third of one.
        """
        products = 2 * int(self.ritz.steps[number].sum())
        return products + 10 * RUNS / 3

    @property
    def unknown(self) -> Tensor:
        """Curvature of the directions of which no eigenvector is known, (M,)."""
        every = [self.eigenvectors(number) for number in range(len(self.nbeta))]
        left_M = self.ritz.steps[:, 0] < self.ritz.size
        rest_M = torch.stack([each.curvatures[-1] for each in every])
        return torch.where(left_M, rest_M, 0.0)

    def eigenvectors(self, number: int) -> Eigenvectors:
        """Return eigenvectors about one target: all, or Ritz vectors of one run.

        Of a Hessian of zero there are none.
        """
        values_SK, weights_SK = self.ritz.values[number], self.ritz.weights[number]
        curvatures_K, vectors = values_SK[0], self.ritz.vectors
        assert vectors is not None
        left = self.ritz.size - int(self.ritz.steps[number, 0])
        trace = self.ritz.size * (weights_SK * values_SK.nan_to_num(0.0)).sum(1).mean()
        rest = (trace - curvatures_K.nansum()) / left if left else curvatures_K.amin()
        if self.scales.is_flat[number]:
            return Eigenvectors(vectors[number, 0, :, :0], torch.zeros(1).double())
        known = torch.cat([curvatures_K, rest.clamp(min=0.0)[None]])
        return Eigenvectors(vectors[number, 0], known)


def measure(
    targets: ChainTargets, nbeta_M: Tensor, *, vectors: bool = False
) -> MeasuredCurvature:
    """Measure the curvature about targets.

    Args:
        targets: the weights and losses.
        nbeta_M: inverse temperatures.
        vectors: whether to keep eigenvectors: all of small Hessians, or Ritz vectors of
            one run.

    Returns:
        The curvature.

    Raises:
        InputError: products with the Hessian hold NaN or infinity.
    """
    ritz = spectrum(targets, vectors=vectors)
    at_reach_M = reached(targets, nbeta_M)
    return MeasuredCurvature(ritz, at_reach_M, scales(ritz, at_reach_M), nbeta_M)


def reached(
    targets: ChainTargets,
    nbeta_M: Tensor,
    whitening: Callable[[Tensor], Tensor] = lambda directions_CD: directions_CD,
) -> Tensor:
    """Return the mean curvature at the reach of each posterior, (M,).

    Args:
        targets: the weights and losses.
        nbeta_M: inverse temperatures.
        whitening: of the targets; the curvature is then that in its coordinates.
    """
    target_C = torch.arange(len(targets.weights)).repeat_interleave(RUNS)
    return curvature_at_reach(
        targets.losses(target_C.to(targets.weights.device)),
        targets.weights[target_C],
        whitening(targets.directions(target_C.tolist())),
        nbeta_M[target_C],
        RUNS,
    )


def spectrum(targets: ChainTargets, *, vectors: bool) -> RitzData:
    """Return all eigenvalues of the free parameters' Hessians, or Ritz values."""
    return spectrum_of(targets.operator(RUNS), targets.seeds, vectors=vectors)


def spectrum_of(
    operator: BatchedOperator, seeds: Sequence[int], *, vectors: bool
) -> RitzData:
    """Return all eigenvalues of operators, or Ritz values.

    Args:
        operator: one for each target.
        seeds: of the targets.
        vectors: whether to return the vectors of one run; all eigenvalues have them.
    """
    size = operator.shape[1]
    if size <= DENSE:
        pairs = all_pairs(operator, k=size, which="LA", tol=0.0, columns=RUNS)
        return _all_eigenvalues(pairs)
    start = random_vectors(seeds, size, range(RUNS), "rademacher")
    if not vectors:
        return lanczos(operator, start, num_steps=STEPS)
    # Ritz vectors are as large as a basis: of one run alone.
    first = lanczos(operator, start[..., :1], num_steps=STEPS, vectors=True)
    others = lanczos(operator, start[..., 1:], num_steps=STEPS)
    return replace(joined([first, others]), vectors=first.vectors)


def _all_eigenvalues(pairs: Ritz) -> RitzData:
    values_M1K = pairs.values.flip(1)[:, None].cpu()
    size = values_M1K.shape[2]
    return RitzData(
        values_M1K,
        torch.full_like(values_M1K, 1 / size),
        pairs.residuals.flip(1)[:, None].cpu().double(),
        torch.full_like(values_M1K[..., 0], size, dtype=torch.int64),
        size,
        pairs.vectors.flip(2)[:, None],
    )


@dataclass(frozen=True)
class Scales:
    """Curvatures about the weights that decide the settings of a sampler.

    Attributes:
        largest: curvature of the sharpest direction, (M,).
        smallest: least eigenvalue of the Hessian, 0 if none is negative, (M,).
        typical: curvature of a direction that is not flat, (M,).
        is_flat: whether the Hessian is zero, against the curvature at the reach, (M,).
    """

    largest: Tensor
    smallest: Tensor
    typical: Tensor
    is_flat: Tensor


def scales(ritz: RitzData, mean_curvature_M: Tensor) -> Scales:
    """Return the scales of a spectrum.

    Where the Hessian all but vanishes, as at a degenerate minimum of higher order, the
    curvature at the reach of the posterior takes its place.

    Args:
        ritz: of the Hessian at the weights.
        mean_curvature_M: of `curvature_at_reach`.

    Returns:
        The scales of each target.
    """
    low_M, high_M = extremes(ritz)
    values, shares = nodes(ritz).flatten(1), ritz.weights.flatten(1)
    # Ritz values this small against that curvature are those of a Hessian of zero.
    counts = values > 1e-4 * torch.maximum(high_M, mean_curvature_M)[:, None]
    order = values.argsort(1)
    below = torch.where(counts, shares, 0.0).gather(1, order).cumsum(1)
    middle_M1 = (below >= below[:, -1:] / 2).to(torch.uint8).argmax(1, keepdim=True)
    median_M = values.gather(1, order).gather(1, middle_M1).squeeze(1)
    is_flat_M = ~counts.any(1)
    return Scales(
        largest=torch.maximum(high_M, mean_curvature_M),
        smallest=low_M.clamp(max=0.0),
        typical=torch.where(is_flat_M, mean_curvature_M, median_M),
        is_flat=is_flat_M,
    )


def curvature_at_reach(
    losses: ChainLosses,
    centre_CD: Tensor,
    directions_CD: Tensor,
    nbeta_C: Tensor,
    num_chains: int,
) -> Tensor:
    """Return the mean curvature at the distance that the posterior reaches, (M,).

    It is 2 dL / r^2 at the distance r where nbeta dL = d / 2, dL the mean rise of the
    loss in random directions: on a quadratic the mean eigenvalue, and where the loss
    rises with a higher power, the mean eigenvalue of the quadratic of that reach.

    Args:
        losses: of the chains.
        centre_CD: the weights of each chain's target.
        directions_CD: random, of unit length, 0 where a parameter does not move.
        nbeta_C: inverse temperatures.
        num_chains: chains of a target, whose rises are averaged.

    Returns:
        Curvature in units of the loss, by bisection of log r to 5 %.
    """

    def mean(values_C: Tensor) -> Tensor:
        return values_C.double().reshape(-1, num_chains).mean(1)

    first_M = mean(losses.values(centre_CD, None))
    moving_M = mean((directions_CD != 0).sum(1))
    nbeta_M = mean(nbeta_C).to(first_M.device)
    low_M, high_M = (torch.full_like(first_M, math.log(r)) for r in (1e-6, 1e3))
    for _ in range(9):
        middle_M = (low_M + high_M) / 2
        reach_C1 = middle_M.exp().repeat_interleave(num_chains)[:, None]
        there_CD = centre_CD + reach_C1.to(centre_CD) * directions_CD
        rise_M = nbeta_M * (mean(losses.values(there_CD, None)) - first_M)
        # A loss that is not finite is a large one.
        is_beyond_M = ~(rise_M < moving_M / 2)
        high_M = torch.where(is_beyond_M, middle_M, high_M)
        low_M = torch.where(is_beyond_M, low_M, middle_M)
    reach_M = ((low_M + high_M) / 2).exp()
    return (moving_M / (nbeta_M * reach_M.square())).cpu()


def gradient_noise(
    targets: ChainTargets,
    coefficient_M: Tensor,
    steep_M: Tensor,
    whitening: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Return S^2, the variance of single samples' gradients about the weights, (M,).

    At weights that fit every sample it is zero, and at the draws it is not. It is the
    mean over positions in random directions where nbeta L has risen by the coefficient,
    as it has at the draws.

    Args:
        targets: the weights and losses.
        coefficient_M: predicted.
        steep_M: nbeta times the curvature at the reach of the posterior.
        whitening: of the targets; directions and gradients are then those in its
            coordinates, as is the curvature.

    Returns:
        S^2 over the free parameters, in double precision on the CPU.
    """
    reach_M = (2 * coefficient_M / steep_M).sqrt()
    numbers = POSITIONS * list(range(len(targets.weights)))
    directions = targets.directions(numbers).chunk(POSITIONS)
    rows_Mn = _compared(targets.seeds, targets.num_samples)
    variances = []
    for direction_MD in directions:
        apart_MD = reach_M[:, None].to(direction_MD) * direction_MD
        if whitening is None:
            variance = targets.gradient_variance(targets.weights + apart_MD, rows_Mn)
        else:
            there_MD = targets.weights + whitening(apart_MD)
            variance = _mapped_variance(targets, there_MD, rows_Mn, whitening)
        variances.append(variance)
    return torch.stack(variances).mean(0)


def _mapped_variance(
    targets: ChainTargets,
    weights_MD: Tensor,
    rows_Mn: Tensor,
    whitening: Callable[[Tensor], Tensor],
) -> Tensor:
    """Return the variance between samples' gradients in coordinates, (M,)."""
    models, size = weights_MD.shape
    number_M = torch.arange(models, device=weights_MD.device)
    sum_MD, square_M = torch.zeros_like(weights_MD), torch.zeros_like(weights_MD[:, 0])
    rows_per_pass = max(1, min(64, PASS_NUMBERS // size))
    for rows_Mb in torch.split(rows_Mn, rows_per_pass, dim=1):
        owner_C = number_M.repeat_interleave(rows_Mb.shape[1])
        rows_C1 = rows_Mb.reshape(-1, 1).to(weights_MD.device)
        losses = targets.losses(owner_C)
        _, gradients_CD = losses.gradients(weights_MD[owner_C], rows_C1)
        if targets.free is not None:
            gradients_CD = gradients_CD * targets.free
        mapped_MbD = whitening(gradients_CD).view(models, -1, size)
        sum_MD += mapped_MbD.sum(1)
        square_M += mapped_MbD.square().sum((1, 2))
    count = rows_Mn.shape[1]
    between_M = square_M - sum_MD.square().sum(1) / count
    return (between_M / max(count - 1, 1)).cpu().double()


def _compared(seeds: Sequence[int], num_samples: int) -> Tensor:
    """Draw the samples whose gradients are compared, without replacement."""
    orders = [
        torch.randperm(num_samples, generator=stream(seed, "compared"))
        for seed in seeds
    ]
    return torch.stack(orders)[:, : min(COMPARED, num_samples)]
