"""A minimum that chains leave: about it the loss rises, and further out it is level."""

import torch
from torch import Tensor, nn


class Crater(nn.Module):
    """Outputs whose sum of squares is r² / (1 + r²), r the length of the weights."""

    def __init__(self, size: int) -> None:
        """Begin at the bottom."""
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(size))

    def forward(self, inputs_NI: Tensor) -> Tensor:
        """Return the same outputs for every input, (N, size)."""
        outputs = self.weights / (1 + self.weights.square().sum()).sqrt()
        return outputs.expand(len(inputs_NI), -1)


def crater(inputs: int, outputs: int) -> nn.Module:
    """Return one of a weight for each output."""
    return Crater(outputs)
