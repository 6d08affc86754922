"""One passage of data through a batch of networks, in one of three ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

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
