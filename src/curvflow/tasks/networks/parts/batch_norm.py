"""Batch normalisation for a batch of models, each over its own samples."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from curvflow.errors import InputError
from curvflow.tasks.networks.layers import MOMENTUM
from curvflow.tasks.networks.network import Passage
from curvflow.tasks.networks.parts.convolution import merged, parted
from curvflow.tasks.networks.parts.part import Part, Placed, Shape

# Added to variances.
EPS = 1e-5


def batch_norm(name: str) -> Part:
    """Make a batch normalisation of images.

    In training the moments are those of the batch, over samples and pixels; the running
    ones move towards them, the variance to the unbiased one. Otherwise they are the
    running ones, which is a fixed affine map.

    Args:
        name: of the layer.

    Returns:
        The part; parameters `scale` and `shift`, statistics `running_mean` and
        `running_var`, each (C,).

    Reference:
        Ioffe and Szegedy (2015), arXiv:1502.03167, as in `torch.nn.BatchNorm2d`.
    """

    def place(shape: Shape) -> Placed:
        channels = shape[:1]

        def apply(passage: Passage, x: Tensor) -> Tensor:
            if passage.in_training:
                return _by_batch(passage, name, x)
            return _by_running(passage, name, x)

        return Placed(
            apply,
            shape,
            {f"{name}.scale": channels, f"{name}.shift": channels},
            {f"{name}.running_mean": channels, f"{name}.running_var": channels},
            kept=math.prod(shape),
            has_paths=False,
        )

    return place


def _by_batch(passage: Passage, name: str, x: Tensor) -> Tensor:
    scale, shift = (passage.tensors[f"{name}.{p}"] for p in ("scale", "shift"))
    models, (_, count, _, *sides) = len(scale), x.shape
    if count * math.prod(sides) == 1:
        raise InputError(
            f"model: expected more than one sample in every batch at {name}, where "
            "images have one pixel, got 1. Set drop_last, or another batch_size."
        )
    # They are changed in place, and belong to the step before.
    running = {
        part: passage.tensors[f"{name}.{part}"].detach().flatten().clone()
        for part in ("running_mean", "running_var")
    }
    y = F.batch_norm(
        merged(x.expand(models, -1, -1, -1, -1)),
        **running,
        weight=scale.flatten(),
        bias=shift.flatten(),
        training=True,
        momentum=MOMENTUM,
        eps=EPS,
    )
    for part, value in running.items():
        passage.updated[f"{name}.{part}"] = value.reshape(models, -1)
    return parted(y, models)


def _by_running(passage: Passage, name: str, x: Tensor) -> Tensor:
    scale, shift, mean, variance = (
        passage.tensors[f"{name}.{part}"][:, None, :, None, None]
        for part in ("scale", "shift", "running_mean", "running_var")
    )
    return torch.addcmul(shift, x - mean, scale * (variance + EPS).rsqrt())
