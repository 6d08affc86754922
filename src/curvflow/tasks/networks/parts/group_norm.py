"""Group normalisation for a batch of models."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

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
        y = F.group_norm(x.flatten(0, 1), groups, eps=EPS)
        return torch.addcmul(shift, torch.unflatten(y, 0, x.shape[:2]), scale)

    def build(shape: Shape) -> BuiltPart:
        tensors = {f"{name}.scale": shape[:1], f"{name}.shift": shape[:1]}
        return BuiltPart(
            apply, shape, tensors, kept=2 * math.prod(shape), has_paths=False
        )

    return build
