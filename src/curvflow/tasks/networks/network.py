"""Networks as functions of stacked parameter vectors, for a batch of models."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class Passage:
    """What a network's layers are given beside their inputs.

    A network is written down once; its layers ask the passage how to behave.

    Attributes:
        tensors: parameters and statistics by name, each (M, *shape).
        draw: from a shape to uniform numbers (M, *shape) in [0, 1), each model's from
            its own stream; None when not in training.
        power: p, where weights are |w|^p and ones go in to count paths: activations
            pass on what they get, averages weigh by (1/m)^p, a maximum becomes a sum.
        seen: inputs (M, N, in) and outputs (M, N, out) of each dense layer by name, put
            here by the layers; None where nobody wants them.
        updated: statistics after this passage, put here by layers in training.
    """

    tensors: Mapping[str, Tensor]
    draw: Callable[[tuple[int, ...]], Tensor] | None = None
    power: float | None = None
    seen: list[tuple[str, Tensor, Tensor]] | None = None
    updated: dict[str, Tensor] = field(default_factory=dict)

    @property
    def in_training(self) -> bool:
        """Whether dropout is on and statistics are those of the batch."""
        return self.draw is not None

    @property
    def counts_paths(self) -> bool:
        """Whether activations pass on what they get."""
        return self.power is not None


# From one passage and inputs (M or 1, N, ...) to outputs (M, N, C).
Forward = Callable[[Passage, Tensor], Tensor]


@dataclass(frozen=True)
class Layout:
    """Names and shapes of tensors, in the order of a flat vector."""

    names: tuple[str, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()

    @property
    def sizes(self) -> list[int]:
        """Number of entries of each tensor."""
        return [math.prod(shape) for shape in self.shapes]

    @property
    def size(self) -> int:
        """Number of entries of all tensors."""
        return sum(self.sizes)

    def unflatten(self, weights_MD: Tensor) -> list[Tensor]:
        """Return stacked vectors (M, D) cut into stacked tensors (M, *shape)."""
        pieces = torch.split(weights_MD, self.sizes, dim=1)
        return [
            piece.reshape(-1, *shape)
            for piece, shape in zip(pieces, self.shapes, strict=True)
        ]

    def named(self, weights_MD: Tensor) -> dict[str, Tensor]:
        """Return stacked vectors (M, D) as stacked tensors (M, *shape) by name."""
        return dict(zip(self.names, self.unflatten(weights_MD), strict=True))

    def flatten(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Return stacked tensors by name as stacked vectors (M, D)."""
        return torch.cat([tensors[name].flatten(1) for name in self.names], dim=1)

    def norms(self, weights_MD: Tensor) -> Tensor:
        """Return the Frobenius norm of each of the L tensors, (M, L)."""
        pieces = torch.split(weights_MD, self.sizes, dim=1)
        return torch.stack([piece.norm(dim=1) for piece in pieces], dim=1)


@dataclass(frozen=True)
class Network:
    """A parametric function, apart from its parameters.

    Weights are stored as one vector (D + S,): the parameters, which are trained, and
    the statistics that the network keeps of its data, which are not.

    Attributes:
        layout: of the D parameters.
        forward: the function.
        width: activations per sample, which sets the memory needed.
        own: the module's own initial parameters (D,) from a stream; None for zeros.
        statistics: of the S statistics, such as a batch norm's running means.
        begin: the statistics before training by the last part of their names.
        has_paths: whether outputs are sums over paths of products of weights, so that
            a path norm is defined.
    """

    layout: Layout
    forward: Forward
    width: int
    own: Callable[[torch.Generator], Tensor] | None = None
    statistics: Layout = field(default_factory=Layout)
    begin: Mapping[str, float] = field(default_factory=dict)
    has_paths: bool = True

    @property
    def num_parameters(self) -> int:
        """Number of parameters, D."""
        return self.layout.size

    def split(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return stored weights (..., D + S) as parameters and statistics."""
        parts = [self.layout.size, self.statistics.size]
        parameters, statistics = torch.split(weights, parts, dim=-1)
        return parameters, statistics

    def first_statistics(self) -> Tensor:
        """Return the statistics before training, (S,)."""
        layout = self.statistics
        values = [
            torch.full((size,), self.begin[name.rpartition(".")[2]])
            for name, size in zip(layout.names, layout.sizes, strict=True)
        ]
        return torch.cat([torch.zeros(0), *values]).double()

    def outputs(self, weights_MW: Tensor, inputs: Tensor) -> Tensor:
        """Return the outputs (M, N, C) of M trained networks.

        Args:
            weights_MW: parameters and statistics, (M, D + S).
            inputs: shape (M or 1, N, ...).

        Returns:
            What they compute when not in training: dropout off, statistics as kept.
        """
        parameters_MD, statistics_MS = self.split(weights_MW)
        return self.forward(self._passage(parameters_MD, statistics_MS), inputs)

    def outputs_seen(
        self, weights_MW: Tensor, inputs: Tensor
    ) -> tuple[Tensor, list[tuple[str, Tensor, Tensor]]]:
        """Return the outputs, as `outputs` does, and what dense layers see.

        Args:
            weights_MW: parameters and statistics, (M, D + S).
            inputs: shape (M or 1, N, ...).

        Returns:
            Outputs, and of each dense layer its name, inputs (M, N, in) and outputs
            (M, N, out), in the order passed.
        """
        passage = self._passage(*self.split(weights_MW))
        passage.seen = []
        return self.forward(passage, inputs), passage.seen

    def training_outputs(
        self,
        parameters_MD: Tensor,
        statistics_MS: Tensor,
        inputs: Tensor,
        draw: Callable[[tuple[int, ...]], Tensor],
    ) -> tuple[Tensor, Tensor]:
        """Return the outputs (M, N, C) in training, and the new statistics (M, S).

        Args:
            parameters_MD: parameters.
            statistics_MS: statistics so far.
            inputs: shape (M or 1, N, ...).
            draw: uniform numbers (M, *shape) of each model's own stream, for dropout.

        Returns:
            Outputs, which depend on the whole batch where there is a batch norm, and
            the statistics after it.
        """
        passage = self._passage(parameters_MD, statistics_MS, draw=draw)
        outputs_MNC = self.forward(passage, inputs)
        if not passage.updated:
            return outputs_MNC, statistics_MS
        return outputs_MNC, self.statistics.flatten(passage.updated).detach()

    def path_sums(
        self, powers_MD: Tensor, inputs_shape: tuple[int, ...], p: float
    ) -> Tensor:
        """Return the sum over all paths of the product of their weights' powers, (M,).

        Args:
            powers_MD: |w|^p for each parameter w.
            inputs_shape: of one sample.
            p: the power, which averaging's fixed weights are raised to.

        Returns:
            ||pi||_p^p of each model, the path norm to the p-th power.

        Reference:
            Neyshabur, Salakhutdinov and Srebro (2015), arXiv:1506.02617, section 4:
            one passage of ones through the network without its activations.
        """
        statistics_MS = self.first_statistics().to(powers_MD).expand(len(powers_MD), -1)
        passage = self._passage(powers_MD, statistics_MS, power=p)
        ones = powers_MD.new_ones(1, 1, *inputs_shape)
        return self.forward(passage, ones).flatten(1).sum(1)

    def _passage(
        self,
        parameters_MD: Tensor,
        statistics_MS: Tensor,
        *,
        draw: Callable[[tuple[int, ...]], Tensor] | None = None,
        power: float | None = None,
    ) -> Passage:
        tensors = self.layout.named(parameters_MD)
        if self.statistics.names:
            tensors |= self.statistics.named(statistics_MS)
        return Passage(tensors, draw, power)
