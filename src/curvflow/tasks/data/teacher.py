"""Targets from a network drawn at random."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import cast

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn.functional import gelu

from curvflow.errors import InputError
from curvflow.schemas.kinds.data.teacher import TeacherParams
from curvflow.schemas.kinds.shared.datasets import dataset, split
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.datasets.images import single
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.registry import Machine, computes_each

# Not those of the models to be trained: a teacher's targets must stay what they are
# when the training of students changes.
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "gelu": gelu,
    "sigmoid": torch.sigmoid,
    "identity": lambda x: x,
}


@computes_each("data.teacher")
def teacher(member: Member, machine: Machine) -> Outcome:
    """Draw inputs and a teacher network, and let it name their targets.

    Args:
        member: the law of the inputs, the teacher and the noise.
        machine: not used.

    Returns:
        The data set; inputs have shape (N, dim), targets (N, C), or (N,) for classes.

    Raises:
        InputError: the teacher puts no training sample into one of its classes.
    """
    params = cast("TeacherParams", member.params)
    generator = stream(params.seed, "data.teacher.samples")
    count = params.num_train + params.num_test
    x_ND = torch.as_tensor(single(_inputs(params, count, generator)))
    y_NC = _outputs(params, x_ND)
    y_NC = y_NC + params.noise * _normal(y_NC.shape, generator)
    targets = single(y_NC) if params.labels == "values" else y_NC.argmax(1).numpy()
    arrays = {"inputs": x_ND.numpy(), "targets": targets}
    parts = split(arrays, np.arange(count), params.num_test)
    if params.labels == "class":
        _check_classes(parts["targets"], params.outputs)
    return Outcome(dataset(**parts))


def _normal(shape: tuple[int, ...], generator: Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _inputs(params: TeacherParams, count: int, generator: Generator) -> Tensor:
    shape = (count, params.dim)
    if params.inputs in ("normal", "sphere"):
        x_ND = _normal(shape, generator)
        if params.inputs == "normal":
            return x_ND
        norm_N1: Tensor = x_ND.norm(dim=1, keepdim=True)
        return math.sqrt(params.dim) * x_ND / norm_N1
    x_ND = 2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1
    if params.inputs == "uniform":
        return math.sqrt(3) * x_ND
    return torch.where(x_ND < 0, -1.0, 1.0).double()


def _outputs(params: TeacherParams, x: Tensor) -> Tensor:
    """Return the teacher's outputs (N, C) for inputs (N, dim)."""
    generator = stream(params.teacher_seed, "data.teacher.weights")
    widths = [params.dim, *params.hidden, params.outputs]
    for number, (before, after) in enumerate(pairwise(widths)):
        if number:
            x = _ACTIVATIONS[params.activation](x)
        weight = _normal((after, before), generator)
        bias = _normal((after,), generator)
        x = params.weight_scale / math.sqrt(before) * (x @ weight.T)
        x = x + params.bias_scale * bias
    return x


def _check_classes(labels: Array, num_classes: int) -> None:
    counts = np.bincount(labels, minlength=num_classes)
    if missing := np.flatnonzero(counts == 0).tolist():
        raise InputError(
            f"labels: expected samples of each of {num_classes} classes in training, "
            f"got none of class {', '.join(map(str, missing))} among {len(labels)}. "
            "Raise num_train, or take another teacher_seed."
        )
