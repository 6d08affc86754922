"""Points that chains are sampled about, and groups of chains under one setting.

Letters in addition to those of the package: here M counts targets; C chains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from curvflow.tasks.numerics.operators.base import BatchedOperator
from curvflow.tasks.numerics.sampling.posteriors import (
    ChainLosses,
    Draws,
    Posterior,
    Steps,
    Stream,
)
from curvflow.tasks.numerics.sampling.sample import sample
from curvflow.tasks.numerics.streams import stream


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
    """

    target: int
    nbeta: float
    localization: float
    lr: float
    first: int = 0


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
    """

    losses: Callable[[Tensor], ChainLosses]
    num_samples: int
    weights: Tensor
    seeds: Sequence[int]
    free: Tensor | None
    operator: Callable[[int], BatchedOperator]
    gradient_variance: Callable[[Tensor, Tensor], Tensor]

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
