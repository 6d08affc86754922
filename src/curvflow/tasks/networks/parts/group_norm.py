"""Group normalisation for a batch of models."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from curvflow.tasks.networks.layers import note_scaling
from curvflow.tasks.networks.network import ForwardPass
from curvflow.tasks.networks.parts.batch_norm import EPS
from curvflow.tasks.networks.parts.part import BuiltPart, Part, Shape


def group_norm(name: str, groups: int) -> Part:
    """Make a normalisation of images over groups of channels, each sample by itself.

    Args:
        name: name of the layer.
        groups: number of groups, which divides that of the channels.

    Returns:
        The part; parameters `scale` and `shift`, each (C,).

    Reference:
        Wu and He (2018), arXiv:1803.08494, as in `torch.nn.GroupNorm`.
    """

    def apply(forward_pass: ForwardPass, x: Tensor) -> Tensor:
        scale, shift = (
            forward_pass.tensors[f"{name}.{part}"][:, None, :, None, None]
            for part in ("scale", "shift")
        )
        # A layer norm of each group: that of torch 2.13 for groups lacks a derivative
        # for several columns at once.
        rows = torch.unflatten(x, 2, (groups, -1)).flatten(3)
        x = F.layer_norm(rows, rows.shape[-1:], eps=EPS).reshape(x.shape)
        y = torch.addcmul(shift, x, scale)
        note_scaling(forward_pass, name, x, y, channel=2)
        return y

    def build(shape: Shape) -> BuiltPart:
        tensors = {f"{name}.scale": shape[:1], f"{name}.shift": shape[:1]}
        return BuiltPart(
            apply, shape, tensors, kept=2 * math.prod(shape), has_paths=False
        )

    return build
