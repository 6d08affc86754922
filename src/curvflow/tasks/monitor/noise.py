"""Noise scale of a module in training, from gradients of random parts of the data.

Letters of the shape suffixes: D parameters, G groups of parts that lie side by side.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from curvflow.schemas.nodes import Array
from curvflow.tasks.monitor.measures import Numbers, gradient
from curvflow.tasks.monitor.settings import NoiseSettings
from curvflow.tasks.numerics.derivatives.batches import Batch, num_samples
from curvflow.tasks.numerics.derivatives.over_batches import taken
from curvflow.tasks.numerics.derivatives.subjects import Subject
from curvflow.tasks.numerics.streams import stream

# Gradients kept for errors over drawn data: more parts than these are put together.
MAX_GROUPS = 64
# Fewest parts that tell tr(C^2), of the covariance C, without bias.
MIN_GROUPS = 4
# Parameters taken to double precision at a time.
CHUNK = 2**20


def noise(of: Subject, settings: NoiseSettings, *, seed: int) -> tuple[Numbers, Tensor]:
    """Estimate the noise scale from gradients of random parts of the data.

    The mean gradients g_k of K disjoint parts of n_k samples, g their mean over all n,
    give S^2 = sum n_k |g_k - g|^2 / (K - 1), the variance between samples summed over
    parameters, without bias, and |g|^2 - (1/n - 1/N) S^2 the squared norm of the
    gradient over the population of N. With K = n these are the numbers of
    `probe.gradient_variance`. Standard errors are those over the parts drawn, and if
    the population is larger than the data over the data drawn, too.

    Args:
        of: the module, its loss and data, samples of which can be taken apart.
        settings: K and N.
        seed: of the parts, the same at every step.

    Returns:
        Numbers by name, and the gradient over all data, (D,), float64.

    Reference:
        McCandlish et al. (2018), arXiv:1812.06162, Eq. 2.8 and appendix A.1, with two
        sizes of batches: a part and all data. There the parts are independent.
    """
    parts = list(_parts(of, settings.num_batches, seed))
    spread = Spread(torch.zeros_like(of.weights, dtype=torch.float64))
    counts = [num_samples(batch) for batch in parts]
    is_sample = (settings.population or 0) > sum(counts)
    groups = Groups(of.weights, len(parts)) if is_sample else None
    pairs = Pairs()
    for batch, count in zip(parts, counts, strict=True):
        slope_D = gradient(of, batch)
        spread.add(slope_D.double(), count)
        if groups is not None:
            groups.add(slope_D, count)
        else:
            pairs.add(slope_D.double(), count)
    variance = spread.squares / (len(parts) - 1)
    rest = 1 / spread.weight - 1 / (settings.population or spread.weight)
    if groups is not None:
        errors = groups.errors(spread.mean, rest)
    else:
        is_exact = len(parts) == spread.weight
        errors = Errors(0.0 if is_exact else pairs.error(len(parts)) ** 2)
    return numbers_of(spread, variance, rest, errors), spread.mean


class Errors(NamedTuple):
    """Variances of the estimates of S^2 and of |g|^2, and their covariance."""

    variance: float
    squared: float = 0.0
    both: float = 0.0

    def along(self, by_variance: float, by_squared: float) -> float:
        """Return the standard error of a function with these derivatives."""
        total = (
            by_variance**2 * self.variance
            + by_squared**2 * self.squared
            + 2 * by_variance * by_squared * self.both
        )
        return math.sqrt(max(total, 0.0)) if math.isfinite(total) else math.nan


@dataclass
class Spread:
    """Mean of gradients seen, (D,), and their weighted squares about it.

    Reference:
        Chan, Golub and LeVeque (1983), doi:10.1080/00031305.1983.10483115, Eq. (1.5).
    """

    mean: Tensor
    weight: float = 0.0
    squares: float = 0.0

    def add(self, slope_D: Tensor, count: int) -> None:
        """Take the mean gradient of a part of so many samples."""
        step_D = slope_D - self.mean
        share = count / (self.weight + count)
        self.squares += float(step_D.square().sum()) * self.weight * share
        self.mean += step_D * share
        self.weight += count


class Pairs:
    """Estimates of S^2 by two parts each: its error over the parts drawn."""

    def __init__(self) -> None:
        """Take no part yet."""
        self._apart: list[float] = []
        self._first: tuple[Tensor, int] | None = None

    def add(self, slope_D: Tensor, count: int) -> None:
        """Take the mean gradient of a part of so many samples."""
        if self._first is None:
            self._first = slope_D, count
            return
        before_D, before = self._first
        weight = count * before / (count + before)
        self._apart.append(float((slope_D - before_D).square().sum()) * weight)
        self._first = None

    def error(self, parts: int) -> float:
        """Return the standard error; NaN of one pair.

        A pair has one degree of freedom for each direction, all parts have K - 1.
        """
        if len(self._apart) < 2:
            return math.nan
        return float(np.std(self._apart, ddof=1)) / math.sqrt(parts - 1)


class Groups:
    """Gradients of neighbouring parts put together: errors over the data drawn.

    Up to 64 gradients are kept, in the precision of the weights.
    """

    def __init__(self, weights_D: Tensor, num_parts: int) -> None:
        """Take no part yet."""
        self._parts, self._seen = num_parts, 0
        size = min(num_parts, MAX_GROUPS)
        self._sums_GD = weights_D.new_zeros(size, len(weights_D))
        self._counts_G = np.zeros(size)

    def add(self, slope_D: Tensor, count: int) -> None:
        """Take the mean gradient of a part of so many samples."""
        group = self._seen * len(self._counts_G) // self._parts
        self._sums_GD[group].add_(slope_D, alpha=count)
        self._counts_G[group] += count
        self._seen += 1

    def errors(self, mean_D: Tensor, rest: float) -> Errors:
        """Return the errors over data drawn, and parts of them; NaN of few parts.

        That of |g|^2 is a jackknife's, less what it counts twice (Efron and Stein,
        1981, doi:10.1214/aos/1176345462): of the noise squared it finds 4 tr(C^2)
        rest^2 instead of 2. That of S^2 holds both the choice of the parts,
        2 tr(C^2) / K, and the choice of the data, a jackknife's, and not below what
        it is of normal gradients.

        Args:
            mean_D: gradient over all data.
            rest: 1/n - 1/N.
        """
        size, count = len(self._counts_G), float(self._counts_G.sum())
        if size < MIN_GROUPS:
            return Errors(math.nan, math.nan, math.nan)
        inner_GG, along_G = self._inner(mean_D)
        squares = max(squared_covariance(inner_GG), 0.0)
        drawn = rest * count  # 1 - n/N
        own_G, slope_G = np.diag(inner_GG), 2 * np.sqrt(self._counts_G) * along_G
        off_G = own_G - own_G.mean()
        jackknife = float(off_G @ off_G) / (size * (size - 1))
        of_data = jackknife - _of_parts(squares, size, count)
        of_data = max(of_data, 2 * squares / count)
        twice = 2 * squares * rest**2
        of_squared = rest * float(slope_G @ slope_G) / count * size / (size - 1)
        return Errors(
            _of_parts(squares, self._parts, count) + drawn * of_data,
            max(of_squared - twice, twice),
            rest * float(off_G @ slope_G) / (size - 1),
        )

    def _inner(self, mean_D: Tensor) -> tuple[Array, Array]:
        """Return products of centred gradients, each of covariance C, and with g."""
        size = len(self._counts_G)
        inner_GG, along_G = np.zeros((size, size)), np.zeros(size)
        counts_G1 = torch.as_tensor(self._counts_G, device=mean_D.device)[:, None]
        for first in range(0, len(mean_D), CHUNK):
            part_D = mean_D[first : first + CHUNK]
            sums_GD = self._sums_GD[:, first : first + CHUNK].double()
            off_GD = sums_GD / counts_G1.sqrt() - counts_G1.sqrt() * part_D
            inner_GG += (off_GD @ off_GD.T).cpu().numpy()
            along_G += (off_GD @ part_D).cpu().numpy()
        return inner_GG, along_G


def squared_covariance(inner_GG: Array) -> float:
    """Return tr(C^2) of a covariance C from products of draws, without bias.

    Args:
        inner_GG: products of independent draws of any mean, 4 or more.

    Reference:
        Chen, Zhang and Zhong (2010), doi:10.1198/jasa.2010.tm09560, their unbiased
        statistic.
    """
    apart_GG = inner_GG - np.diag(np.diag(inner_GG))
    size, rows_G = len(inner_GG), apart_GG.sum(axis=1)
    twos, threes, fours = (
        float(np.sum(apart_GG**2)),
        float(np.sum(rows_G**2)),
        float(rows_G.sum()) ** 2,
    )
    pairs = size * (size - 1)
    triples = pairs * (size - 2)
    value = twos / pairs - 2 * (threes - twos) / triples
    value += (fours - 4 * threes + 2 * twos) / (triples * (size - 3))
    return value


def numbers_of(spread: Spread, variance: float, rest: float, errors: Errors) -> Numbers:
    """Return S^2, the squared norm and their ratio, with errors to first order.

    Args:
        spread: of all parts.
        variance: S^2.
        rest: 1/n - 1/N.
        errors: of S^2 and of the squared norm with its bias.
    """
    squared = float(spread.mean.square().sum()) - rest * variance
    # Lost in the noise if not above 0.
    scale, scale_sem = math.nan, math.nan
    if squared > 0:
        scale = variance / squared
        scale_sem = errors.along((1 + rest * scale) / squared, -scale / squared)
    return {
        "gradient_variance": variance,
        "gradient_variance_sem": errors.along(1, 0),
        "gradient_squared_norm": squared,
        "gradient_squared_norm_sem": errors.along(-rest, 1),
        "noise_scale": scale,
        "noise_scale_sem": scale_sem,
    }


def _of_parts(squares: float, parts: int, count: float) -> float:
    """Return the variance of S^2 for the choice of parts; none of single samples."""
    return 2 * squares * (1 - parts / count) / (parts - 1)


def _parts(of: Subject, num_batches: int, seed: int) -> Iterator[Batch]:
    count = sum(num_samples(batch) for batch in of.data)
    order = torch.randperm(count, generator=stream(seed, "samples"))
    for rows in torch.tensor_split(order, min(num_batches, count)):
        yield taken(of.data, rows)
