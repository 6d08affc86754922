"""Two interleaved half circles."""

from __future__ import annotations

from typing import cast

import torch
from sklearn.datasets import make_moons

from curvflow.schemas.kinds.data.two_moons import TwoMoonsParams
from curvflow.schemas.kinds.shared.datasets import dataset, split
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.datasets.images import shuffled, single
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.registry import Machine, computes_each


@computes_each("data.two_moons")
def two_moons(member: Member, machine: Machine) -> Outcome:
    """Place points evenly on two half circles, add noise, and hold some out.

    Args:
        member: number of points, noise, share held out and seed.
        machine: not used.

    Returns:
        The data set; inputs have shape (N, 2), labels are 0 and 1.

    Reference:
        Pedregosa et al. (2011), Journal of Machine Learning Research 12: make_moons of
        scikit-learn; noise is drawn from a stream of the seed, and rounded to single
        precision.
    """
    params = cast("TwoMoonsParams", member.params)
    points, labels = make_moons(params.num_samples, shuffle=False, noise=None)
    generator = stream(params.seed, "data.two_moons")
    noise = torch.randn(points.shape, generator=generator, dtype=torch.float64)
    inputs = single(torch.as_tensor(points) + params.noise * noise)
    arrays = {"inputs": inputs, "targets": labels}
    order = shuffled(params.num_samples, params.seed)
    return Outcome(dataset(**split(arrays, order, params.num_test)))
