"""Normalisation of images over a batch or groups of channels, for a batch of models."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from curvflow.errors import InputError
from curvflow.tasks.networks.layers import note_scaling
from curvflow.tasks.networks.network import MOMENTUM, ForwardPass
from curvflow.tasks.networks.parts.convolution import fold_models, unfold_models
from curvflow.tasks.networks.parts.part import BuiltPart, Part, Shape

# Added to variances.
EPS = 1e-5


def batch_norm(name: str) -> Part:
    """Make a batch normalisation of images.

    In training the moments are those of the batch, over samples and pixels; the running
    ones move towards them, the variance to the unbiased one. Otherwise they are the
    running ones, which is a fixed affine map.

    Args:
        name: name of the layer.

    Returns:
        The part; parameters `scale` and `shift`, statistics `running_mean` and
        `running_var`, each (C,).

    Reference:
        Ioffe and Szegedy (2015), arXiv:1502.03167, as in `torch.nn.BatchNorm2d`.
    """

    def build(shape: Shape) -> BuiltPart:
        channels = shape[:1]

        def apply(forward_pass: ForwardPass, x: Tensor) -> Tensor:
            if forward_pass.holds_statistics:
                return _by_held(forward_pass, name, x)
            if forward_pass.in_training:
                return _by_batch(forward_pass, name, x)
            return _by_running(forward_pass, name, x)

        return BuiltPart(
            apply,
            shape,
            {f"{name}.scale": channels, f"{name}.shift": channels},
            {f"{name}.running_mean": channels, f"{name}.running_var": channels},
            kept=math.prod(shape),
            has_paths=False,
        )

    return build


def _by_batch(forward_pass: ForwardPass, name: str, x: Tensor) -> Tensor:
    scale, shift = (forward_pass.tensors[f"{name}.{p}"] for p in ("scale", "shift"))
    models, (_, count, _, *sides) = len(scale), x.shape
    if count * math.prod(sides) == 1:
        raise InputError(
            f"model: expected more than one sample in every batch at {name}, where "
            "images have one pixel, got 1. Set drop_last, or another batch_size."
        )
    # Clones, as `batch_norm` updates them in place and the last step still holds them.
    running = {
        part: forward_pass.tensors[f"{name}.{part}"].detach().flatten().clone()
        for part in ("running_mean", "running_var")
    }
    y = F.batch_norm(
        fold_models(x.expand(models, -1, -1, -1, -1)),
        **running,
        weight=scale.flatten(),
        bias=shift.flatten(),
        training=True,
        momentum=MOMENTUM,
        eps=EPS,
    )
    for part, value in running.items():
        forward_pass.updated[f"{name}.{part}"] = value.reshape(models, -1)
    return unfold_models(y, models)


def _by_running(forward_pass: ForwardPass, name: str, x: Tensor) -> Tensor:
    moments = (
        forward_pass.tensors[f"{name}.{part}"][:, None, :, None, None]
        for part in ("running_mean", "running_var")
    )
    return _affine(forward_pass, name, x, *moments)


def _by_held(forward_pass: ForwardPass, name: str, x: Tensor) -> Tensor:
    """Normalise by the batch's moments, by which nothing is derived."""
    sides = (1, 3, 4)
    values = x.detach()
    mean = values.mean(sides, keepdim=True)
    variance = (values - mean).square().mean(sides, keepdim=True)
    return _affine(forward_pass, name, x, mean, variance)


def _affine(
    forward_pass: ForwardPass, name: str, x: Tensor, mean: Tensor, variance: Tensor
) -> Tensor:
    scale, shift = (
        forward_pass.tensors[f"{name}.{part}"][:, None, :, None, None]
        for part in ("scale", "shift")
    )
    centred, deviation = x - mean, (variance + EPS).rsqrt()
    y = torch.addcmul(shift, centred, scale * deviation)
    note_scaling(forward_pass, name, centred, y, channel=2, deviation=deviation)
    return y


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
