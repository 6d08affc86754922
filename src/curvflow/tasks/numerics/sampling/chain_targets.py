"""Targets that chains are sampled about, and the settings of their chains.

Letters in addition to those of the package: here M counts targets; C chains.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from curvflow.errors import InputError
from curvflow.tasks.numerics.kronecker.blocks import BlockOperator
from curvflow.tasks.numerics.operators.base import BatchedOperator
from curvflow.tasks.numerics.sampling.posteriors import (
    AtDraws,
    ChainLosses,
    Draws,
    Observables,
    Posterior,
    Steps,
    Stream,
)
from curvflow.tasks.numerics.sampling.sample import sample
from curvflow.tasks.numerics.sampling.whitening import (
    BlockWhitening,
    Eigenvectors,
    Whitening,
)
from curvflow.tasks.numerics.streams import stream


@dataclass(frozen=True)
class SamplingOptions:
    """Settings as requested for one target; None leaves them to the calibration.

    Attributes:
        nbeta: inverse temperature; `auto` is n / ln n of n samples, `devinterp` is
            b / ln b of the batch size.
        calibrate: whether settings of None are chosen from the measured curvature.
        sampling_method: the sampler.
        lr: step.
        localization: gamma.
        batch_size: samples per step; None for all, or as calibrated.
        num_chains: chains about the target.
        num_draws: draws of each chain.
        num_burnin_steps: steps before the first draw.
        num_steps_bw_draws: steps from draw to draw.
        at_draws: the loss at a draw, see `Steps`.
        friction: of sghmc and sgnht.
        decay: of rmsprop_sgld and adam_sgld.
        damping: of the same.
        keep_draws: whether the weights of draws are kept.
        max_hold: share of the coefficient that the localization may take.
    """

    nbeta: float | Literal["auto", "devinterp"]
    calibrate: Literal["auto", "none"]
    sampling_method: str | None
    lr: float | None
    localization: float | None
    batch_size: int | None
    num_chains: int
    num_draws: int
    num_burnin_steps: int | None
    num_steps_bw_draws: int
    at_draws: AtDraws
    friction: float
    decay: float
    damping: float
    keep_draws: bool
    max_hold: float

    def nbeta_of(self, num_counted: int) -> float:
        """Return the inverse temperature for n samples that count."""
        if not isinstance(self.nbeta, str):
            return self.nbeta
        count = num_counted
        if self.nbeta == "devinterp":
            count = self.batch_size or num_counted
        return count / math.log(count)

    def check(self, num_samples: int, num_counted: int) -> None:
        """Refuse options that the samples do not allow.

        Args:
            num_samples: of the data, N.
            num_counted: of which a label counts, n.

        Raises:
            InputError: n / ln n is not defined, or a batch is larger than the data.
        """
        if num_counted < 3 and isinstance(self.nbeta, str):
            raise InputError(
                f"nbeta: expected a number with {num_counted} samples, got "
                f"{self.nbeta}, which is n / ln n of three or more. Give it."
            )
        if self.batch_size is not None and self.batch_size > num_samples:
            raise InputError(
                f"batch_size: expected at most the {num_samples} samples, got "
                f"{self.batch_size}. Lower it."
            )


@dataclass(frozen=True)
class ChainSettings:
    """Settings that the chains about one target use.

    Attributes:
        method: the sampler.
        nbeta: inverse temperature.
        lr: step.
        localization: gamma.
        batch_size: samples per step; None for all.
        num_burnin_steps: steps before the first draw.
        first_lr: step from which each chain's burn-in adapts, up to lr; None if all
            chains use lr.
        calibration: what the calibration measured and tried, by name.
        work: gradients over all data that the calibration took.
    """

    method: str
    nbeta: float
    lr: float
    localization: float
    batch_size: int | None
    num_burnin_steps: int
    first_lr: float | None = None
    calibration: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    work: float = 0.0

    @property
    def ritz(self) -> tuple[Tensor, Tensor] | None:
        """Ritz values and weights of the Hessian, (S, K), where it was measured."""
        if "ritz_values" not in self.calibration:
            return None
        values, weights = (self.calibration[f"ritz_{n}"] for n in ("values", "weights"))
        return torch.as_tensor(values), torch.as_tensor(weights)

    @property
    def in_metric(self) -> bool:
        """True if steps are taken in the metric of factors that were given."""
        return str(self.calibration.get("metric")) == "factors"

    @property
    def metric_spectrum(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """Curvatures of the energy in that metric, if they were measured, (S, K).

        With their weights, and the part of each that is the loss's.
        """
        if not self.in_metric or "metric_values" not in self.calibration:
            return None
        values, weights, parts = (
            torch.as_tensor(self.calibration[f"metric_{name}"])
            for name in ("values", "weights", "parts")
        )
        return values, weights, parts

    @property
    def eigenvectors(self) -> Eigenvectors | None:
        """Eigenvectors of the Hessian, where the method uses them."""
        if "whitening_vectors" not in self.calibration:
            return None
        return Eigenvectors(
            torch.as_tensor(self.calibration["whitening_vectors"]),
            torch.as_tensor(self.calibration["whitening_curvatures"]),
        )

    @property
    def off_plateau(self) -> str:
        """The swept setting whose chosen value is off the plateau; "" if none is."""
        if "trial_in_plateau" not in self.calibration:
            return ""
        swept = str(self.calibration["trial_parameter"][0])
        chosen = np.abs(self.calibration["trial_value"] - getattr(self, swept)).argmin()
        return "" if self.calibration["trial_in_plateau"][chosen] else swept


def given(
    options: SamplingOptions, num_counted: int, *, has_factors: bool = False
) -> ChainSettings:
    """Return the settings of options that leave nothing to the calibration.

    Args:
        options: as requested.
        num_counted: samples of which a label counts, n.
        has_factors: whether factors are given: their metric is then taken.
    """
    return ChainSettings(
        options.sampling_method or "",
        options.nbeta_of(num_counted),
        options.lr or 0.0,
        options.localization or 0.0,
        options.batch_size,
        options.num_burnin_steps or 0,
        calibration={"metric": np.array("factors")} if has_factors else {},
    )


def steps_of(
    options: SamplingOptions, settings: ChainSettings, lr_C: Tensor, **others: Any
) -> Steps:
    """Return the steps of chains that share settings.

    Args:
        options: as requested.
        settings: of the first chain.
        lr_C: step of each chain.
        **others: fields of `Steps` that do not follow from these.
    """
    return Steps(
        settings.method,
        lr_C,
        num_burnin_steps=settings.num_burnin_steps,
        num_steps_bw_draws=options.num_steps_bw_draws,
        batch_size=settings.batch_size,
        friction=options.friction,
        decay=options.decay,
        damping=options.damping,
        **others,
    )


@dataclass(frozen=True)
class ChainGroup:
    """Chains about one target under one setting.

    Attributes:
        target: its number.
        nbeta: inverse temperature.
        localization: gamma.
        lr: step.
        first: number of the first chain; groups of one target whose chains are to be
            independent have different numbers.
        eigenvectors: of the Hessian, if steps are whitened; of all groups or none.
        metric: localization at which the factors of the target give the metric of
            steps, in place of eigenvectors; of all groups or none.
    """

    target: int
    nbeta: float
    localization: float
    lr: float
    first: int = 0
    eigenvectors: Eigenvectors | None = None
    metric: float | None = None


@dataclass(frozen=True)
class ChainTargets:
    """Weights that chains are sampled about, with the losses there.

    Attributes:
        losses: mean losses of chains, from the target that each belongs to, (C,).
        num_samples: samples of each loss, N.
        weights: of the targets, (M, D).
        seeds: of the targets.
        free: whether a parameter moves, (D,); None lets all move.
        operator: Hessians of the free parameters, for so many columns at once.
        gradient_variance: sum over the free parameters of the variance between
            samples' gradients, (M,), at weights (M, D), from samples (M, n).
        observables: quantities of chains to be recorded at the draws, from the target
            that each belongs to, (C,); None if there are none.
        factors: of the Hessians of the free parameters, by blocks, (M, F, F), in double
            precision; None if none are given.
        counted: samples of each target of which a label counts, n; None if all do.
    """

    losses: Callable[[Tensor], ChainLosses]
    num_samples: int
    weights: Tensor
    seeds: Sequence[int]
    free: Tensor | None
    operator: Callable[[int], BatchedOperator]
    gradient_variance: Callable[[Tensor, Tensor], Tensor]
    observables: Callable[[Tensor], Observables] | None = None
    factors: BlockOperator | None = None
    counted: Sequence[int] | None = None

    def num_counted(self, target: int) -> int:
        """Return the number of a target's samples of which a label counts, n."""
        return self.num_samples if self.counted is None else self.counted[target]

    @property
    def num_free(self) -> int:
        """Number of parameters that move, d."""
        return self.weights.shape[1] if self.free is None else int(self.free.sum())

    @cached_property
    def first_losses(self) -> Tensor:
        """Mean loss at the weights of each target, (M,), on the CPU."""
        targets_M = torch.arange(len(self.weights), device=self.weights.device)
        return self.losses(targets_M).values(self.weights, None).cpu().double()

    def posterior(self, groups: Sequence[ChainGroup], num_chains: int) -> Posterior:
        """Return the posteriors of the chains of all groups, in order."""

        def of_chains(values: Sequence[float], dtype: torch.dtype) -> Tensor:
            values_G = torch.tensor(values, dtype=dtype, device=self.weights.device)
            return values_G.repeat_interleave(num_chains)

        target_C = of_chains([group.target for group in groups], torch.int64)
        dtype = self.weights.dtype
        return Posterior(
            self.losses(target_C),
            self.weights[target_C],
            nbeta=of_chains([group.nbeta for group in groups], dtype),
            localization=of_chains([group.localization for group in groups], dtype),
            free=self.free,
            whitening=self._whitening(groups),
            observables=None
            if self.observables is None
            else self.observables(target_C),
        )

    def _whitening(
        self, groups: Sequence[ChainGroup]
    ) -> Whitening | BlockWhitening | None:
        if groups[0].metric is not None:
            return self._of_factors(groups)
        known = [
            (group.eigenvectors, group.nbeta, group.localization)
            for group in groups
            if group.eigenvectors is not None
        ]
        return Whitening.of(known, self.free, self.weights) if known else None

    def _of_factors(self, groups: Sequence[ChainGroup]) -> BlockWhitening:
        assert self.factors is not None
        targets = torch.tensor([g.target for g in groups], device=self.factors.device)
        return BlockWhitening.of(
            self.factors.select(targets),
            torch.tensor([g.nbeta for g in groups], dtype=torch.float64),
            torch.tensor([g.metric for g in groups], dtype=torch.float64),
            free=self.free,
            dtype=self.weights.dtype,
        )

    def sample(
        self,
        groups: Sequence[ChainGroup],
        num_chains: int,
        steps: Steps,
        earlier: Mapping[str, Tensor] | None = None,
    ) -> Draws:
        """Sample the chains of all groups in one program.

        Args:
            groups: settings that may differ between chains.
            num_chains: chains of each group.
            steps: settings that may not, and the lr of the groups' chains.
            earlier: state to resume from.

        Returns:
            The draws of all chains, group by group.
        """
        streams = [
            Stream(self.seeds[group.target], group.first + chain)
            for group in groups
            for chain in range(num_chains)
        ]
        posterior = self.posterior(groups, num_chains)
        return sample(posterior, steps, streams, earlier=earlier)

    def directions(self, targets: Sequence[int]) -> Tensor:
        """Draw a direction of unit length for each chain, 0 where nothing moves.

        Args:
            targets: number of the target of each chain, C of them.

        Returns:
            Directions, (C, D). Those of a target do not depend on the other targets.
        """
        counts: Counter[int] = Counter()
        drawn = []
        for number in targets:
            source = stream(self.seeds[number], f"direction {counts[number]}")
            drawn.append(torch.randn(self.weights.shape[1], generator=source))
            counts[number] += 1
        drawn_CD = torch.stack(drawn).to(self.weights)
        if self.free is not None:
            drawn_CD *= self.free
        return torch.nn.functional.normalize(drawn_CD, dim=1)


def by_key(keys: Sequence[Hashable]) -> list[list[int]]:
    """Return the numbers of equal keys together, in the order of their firsts."""
    numbers: dict[Hashable, list[int]] = {}
    for number, key in enumerate(keys):
        numbers.setdefault(key, []).append(number)
    return list(numbers.values())
