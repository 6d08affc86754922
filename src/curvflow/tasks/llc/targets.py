"""From the members of a probe's tile to chains about their weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import cast

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.sampling import LlcParams
from curvflow.schemas.nodes import Member
from curvflow.tasks.curvature.network_operators import problem_of, stacked_weights
from curvflow.tasks.llc.losses import SampledLosses
from curvflow.tasks.networks.network import Layout
from curvflow.tasks.networks.problems import Samples, load_samples
from curvflow.tasks.numerics.derivatives.precision import full_precision
from curvflow.tasks.numerics.sampling.posteriors import Draws, Posterior, Steps, Stream
from curvflow.tasks.numerics.sampling.sample import sample
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.registry import Machine


def params_of(member: Member) -> LlcParams:
    """Return a member's parameters."""
    return cast("LlcParams", member.params)


def by_key(keys: Sequence[Hashable]) -> list[list[int]]:
    """Return the numbers of equal keys together, in the order of their firsts."""
    numbers: dict[Hashable, list[int]] = {}
    for number, key in enumerate(keys):
        numbers.setdefault(key, []).append(number)
    return list(numbers.values())


@dataclass(frozen=True)
class Walkers:
    """Chains of one member under one setting.

    Attributes:
        member: its number.
        nbeta: inverse temperature.
        localization: gamma.
        lr: step.
        first: number of the first chain; chains of two settings that are to be
            independent have other numbers.
    """

    member: int
    nbeta: float
    localization: float
    lr: float
    first: int = 0


@dataclass(frozen=True)
class Ground:
    """The weights of a tile's members and the losses about them.

    Attributes:
        members: of one problem, and data of equal shapes.
        samples: their data.
        weights: parameters, (M, D).
        statistics: (M, S).
        free: which parameters move, (D,); None for all.
        machine: where to compute.
    """

    members: Sequence[Member]
    samples: Samples
    weights: Tensor
    statistics: Tensor
    free: Tensor | None
    machine: Machine

    @property
    def num_free(self) -> int:
        """Number of parameters that move, d."""
        return self.weights.shape[1] if self.free is None else int(self.free.sum())

    def losses(self, owner_C: Tensor) -> SampledLosses:
        """Return the losses of chains, each of the member it belongs to."""
        return SampledLosses(
            problem_of(self.members[0]), self.samples, self.statistics[owner_C], owner_C
        )

    def first_losses(self) -> Tensor:
        """Return the mean loss at the weights of each member, (M,), on the CPU."""
        every_M = torch.arange(len(self.members), device=self.weights.device)
        first_M = self.losses(every_M).values(self.weights, None)
        return first_M.cpu().double()

    def posterior(self, walkers: Sequence[Walkers], num_chains: int) -> Posterior:
        """Return what the chains of all walkers sample, in order."""

        def each(values: Sequence[float], dtype: torch.dtype) -> Tensor:
            one = torch.tensor(values, dtype=dtype, device=self.weights.device)
            return one.repeat_interleave(num_chains)

        owner_C = each([one.member for one in walkers], torch.int64)
        kind = self.weights.dtype
        return Posterior(
            self.losses(owner_C),
            self.weights[owner_C],
            nbeta=each([one.nbeta for one in walkers], kind),
            localization=each([one.localization for one in walkers], kind),
            free=self.free,
        )

    def walk(
        self,
        walkers: Sequence[Walkers],
        num_chains: int,
        steps: Steps,
        earlier: Mapping[str, Tensor] | None = None,
    ) -> Draws:
        """Sample all walkers' chains in one program.

        Args:
            walkers: settings that differ in what a chain may have of its own.
            num_chains: chains of each.
            steps: how; its lr is that of the walkers.
            earlier: where to go on from.

        Returns:
            The draws of all chains, walker by walker.
        """
        streams = [
            Stream(params_of(self.members[one.member]).seed, one.first + chain)
            for one in walkers
            for chain in range(num_chains)
        ]
        posterior = self.posterior(walkers, num_chains)
        with full_precision():
            return sample(posterior, steps, streams, earlier=earlier)

    def directions(self, owner: Sequence[int]) -> Tensor:
        """Draw a direction of unit length for each chain, 0 where nothing moves.

        Args:
            owner: member of each chain, C of them.

        Returns:
            Directions, (C, D). The first, second and later of a member are its own,
            whoever is beside it.
        """
        seen: Counter[int] = Counter()
        drawn = []
        for number in owner:
            seed = params_of(self.members[number]).seed
            source = stream(seed, f"direction {seen[number]}")
            drawn.append(torch.randn(self.weights.shape[1], generator=source))
            seen[number] += 1
        drawn_CD = torch.stack(drawn).to(self.weights)
        if self.free is not None:
            drawn_CD *= self.free
        return torch.nn.functional.normalize(drawn_CD, dim=1)


def ground(members: Sequence[Member], machine: Machine) -> Ground:
    """Bring weights and data of a tile to the device.

    Args:
        members: `weights` and `data`, of the same problem.
        machine: where to compute.

    Returns:
        What chains start from.

    Raises:
        InputError: a weight is NaN or infinite, or `layers` names no tensor.
    """
    params, network = params_of(members[0]), problem_of(members[0]).network
    weights_MW = stacked_weights(members, machine, dtype=params.dtype)
    weights_MD, statistics_MS = network.split(weights_MW)
    data = [member.one("data") for member in members]
    free = None if params.layers is None else _named(network.layout, params.layers)
    return Ground(
        members,
        load_samples(data, "", machine.device, weights_MD.dtype),
        weights_MD.contiguous(),
        statistics_MS.contiguous(),
        None if free is None else free.to(machine.device),
        machine,
    )


def _named(layout: Layout, patterns: Sequence[str]) -> Tensor:
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in layout.names):
            raise InputError(
                f"layers: expected one of {', '.join(layout.names)}, got {pattern}. "
                "Name parameter tensors, or a pattern such as layer1.*."
            )
    moves = [any(fnmatchcase(name, p) for p in patterns) for name in layout.names]
    return torch.tensor(moves).repeat_interleave(torch.tensor(layout.sizes))
