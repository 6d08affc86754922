"""A linear function and the sine of another, with noise."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor

from curvflow.schemas.kinds.data.sinusoid import SinusoidParams
from curvflow.schemas.kinds.shared.datasets import dataset, split
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.datasets.images import single
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.registry import Machine, computes_each


@computes_each("data.sinusoid")
def sinusoid(member: Member, machine: Machine) -> Outcome:
    """Draw samples of y = a sin(X W) + a X B + eps, and hold the first of them out.

    X is uniform on (0, b), W and B on (0, c), entry by entry, and eps Gaussian. The
    samples are independent, so the first are as good as any. For a = c = 1, b = 2 and
    noise 1 in 256 dimensions y varies by 29.94 = 256 / 9 + 1 / 2 + 1 on average over
    W and B: the sum of the linear term, of the sine and of the noise.

    Args:
        member: the constants.
        machine: not used.

    Returns:
        The data set; inputs have shape (N, dim), targets (N, 1).

    Reference:
        Jarvis (2021), Generalizing Regularization of Neural Networks to Correlated
        Parameter Spaces, whose text has N and dim the other way round and calls the
        noise uniform; its printed variances belong to 2000 samples in 256 dimensions
        and Gaussian noise.
    """
    params = cast("SinusoidParams", member.params)
    generator = stream(params.seed, "data.sinusoid")

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, dtype=torch.float64)

    X = params.b * uniform(params.num_samples, params.dim)
    W, B = params.c * uniform(params.dim), params.c * uniform(params.dim)
    y = params.a * (torch.sin(X @ W) + X @ B)
    y += params.noise * torch.randn(len(y), generator=generator, dtype=torch.float64)
    if params.centre != "none":
        y -= y.mean()
    if params.centre == "both":
        X -= X.mean(dim=0)
    arrays = {"inputs": single(X), "targets": single(y)}
    order = np.arange(params.num_samples)
    return Outcome(dataset(**split(arrays, order, params.num_test)))
