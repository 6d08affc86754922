"""Quadratic wells."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from curvflow.schemas.models.quadratic_well import QuadraticWell
from curvflow.tasks.networks.checks import check_single_input
from curvflow.tasks.networks.layers import dense
from curvflow.tasks.networks.network import ForwardPass, Layout, Network


def build(spec: QuadraticWell, input_shape: Sequence[int], num_outputs: int) -> Network:
    """Build f(x)_i = sqrt(h_i / 2) w_i x.

    Args:
        spec: the eigenvalues h.
        input_shape: of one sample; one number.
        num_outputs: as many as eigenvalues.

    Returns:
        The network. For x = 1 and targets 0 the sse of a sample is 1/2 sum h_i w_i^2.

    Raises:
        InputError: the data have more than one input, or not an output per eigenvalue.
    """
    size = len(spec.eigenvalues)
    check_single_input("quadratic_well", input_shape, num_outputs, size)
    scales = [math.sqrt(h / 2) for h in spec.eigenvalues]

    def forward(forward_pass: ForwardPass, inputs: Tensor) -> Tensor:
        outputs = dense(forward_pass, "well", inputs.flatten(2))
        return outputs * torch.tensor(
            scales, dtype=outputs.dtype, device=outputs.device
        )

    return Network(
        Layout(("well.weight",), ((size, 1),)), forward, size + 1, has_paths=False
    )
