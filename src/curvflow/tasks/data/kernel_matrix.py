"""Kernel matrices of random points."""

from __future__ import annotations

import json
from typing import cast

import numpy as np
import torch

from curvflow.schemas.kinds.data.kernel_matrix import KernelMatrixParams
from curvflow.schemas.kinds.shared.datasets import matrix
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.numerics.operators.matrices import KernelMatrix
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.registry import Machine, computes_each


@computes_each("data.kernel_matrix")
def kernel_matrix(member: Member, machine: Machine) -> Outcome:
    """Draw points and hold the matrix k(x_i, x_j) + noise [i = j].

    Args:
        member: the parameters.
        machine: not used.

    Returns:
        The entries, or the points and the function.
    """
    params = cast("KernelMatrixParams", member.params)
    generator = stream(params.seed, "data.kernel_matrix")
    drawn = torch.empty(params.num_points, params.dimension, dtype=torch.float64)
    if params.points == "uniform":
        drawn.uniform_(generator=generator)
    else:
        drawn.normal_(generator=generator)
    if params.form == "dense":
        operator = KernelMatrix(drawn, params.kernel, params.length_scale, params.noise)
        entries = operator.dense().numpy()
        return Outcome(matrix("dense", params.num_points, dense=entries))
    function = {
        "kernel": params.kernel,
        "length_scale": params.length_scale,
        "noise": params.noise,
    }
    text = np.array(json.dumps(function, sort_keys=True))
    points = drawn.numpy()
    return Outcome(matrix("kernel", params.num_points, points=points, kernel=text))
