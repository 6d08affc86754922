"""Networks as functions of stacked parameter vectors, for a batch of models."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from curvflow.schemas.networks import Glorot, Init, Normal

# From stacked parameter tensors (M, *shape) and inputs (M or 1, N, ...) to outputs
# (M, N, C).
Forward = Callable[[Sequence[Tensor], Tensor], Tensor]


@dataclass(frozen=True)
class Layout:
    """Names and shapes of the parameter tensors, in the order of the flat vector."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def sizes(self) -> list[int]:
        """Number of entries of each tensor."""
        return [math.prod(shape) for shape in self.shapes]

    def unflatten(self, weights_MD: Tensor) -> list[Tensor]:
        """Return stacked vectors (M, D) cut into stacked tensors (M, *shape)."""
        pieces = torch.split(weights_MD, self.sizes, dim=1)
        return [
            piece.reshape(-1, *shape)
            for piece, shape in zip(pieces, self.shapes, strict=True)
        ]

    def norms(self, weights_MD: Tensor) -> Tensor:
        """Return the Frobenius norm of each of the L tensors, (M, L)."""
        pieces = torch.split(weights_MD, self.sizes, dim=1)
        return torch.stack([piece.norm(dim=1) for piece in pieces], dim=1)


@dataclass(frozen=True)
class Network:
    """A parametric function, apart from its parameters.

    Attributes:
        layout: of the D parameters.
        forward: the function, of stacked tensors.
        width: activations per sample, which sets the memory needed.
        own: the module's own initial parameters (D,) from a stream; None for zeros.
    """

    layout: Layout
    forward: Forward
    width: int
    own: Callable[[torch.Generator], Tensor] | None = None

    @property
    def num_parameters(self) -> int:
        """Number of parameters, D."""
        return sum(self.layout.sizes)

    def outputs(self, weights_MD: Tensor, inputs: Tensor) -> Tensor:
        """Return the outputs (M, N, C) of M networks for inputs (M or 1, N, ...)."""
        return self.forward(self.layout.unflatten(weights_MD), inputs)

    def initial(self, generator: torch.Generator, init: Init | None) -> Tensor:
        """Draw initial parameters.

        Laws that differ in scale alone use the same draws, so that runs are paired.

        Args:
            generator: the member's stream.
            init: the law; None takes the module's own.

        Returns:
            Parameters (D,) in float64 on the CPU.
        """
        size = self.num_parameters
        base = torch.zeros(size, dtype=torch.float64)
        if self.own is not None:
            base = self.own(generator)
        if init is None:
            return base
        if isinstance(init, Normal):
            return init.normal * torch.randn(
                size, generator=generator, dtype=torch.float64
            )
        draws = 2 * torch.rand(size, generator=generator, dtype=torch.float64) - 1
        if isinstance(init, Glorot):
            bound = init.glorot * self._glorot_bounds()
            return torch.where(bound > 0, bound * draws, base)
        return init.uniform * draws

    def _glorot_bounds(self) -> Tensor:
        """Return sqrt(6 / (fan_in + fan_out)) per entry; 0 for biases and the like.

        Reference:
            Glorot and Bengio (2010), Proceedings of AISTATS, normalised initialisation.
        """
        bounds = []
        for shape, size in zip(self.layout.shapes, self.layout.sizes, strict=True):
            fans = (shape[0] + shape[1]) * math.prod(shape[2:]) if shape[1:] else 0
            bounds.append(torch.full((size,), math.sqrt(6 / fans) if fans else 0.0))
        return torch.cat(bounds).double()
