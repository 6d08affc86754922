"""Exclusive or."""

from __future__ import annotations

from typing import cast

import numpy as np

from curvflow.schemas.kinds.data.xor import XorParams
from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.registry import Machine, computes_each


@computes_each("data.xor")
def xor(member: Member, machine: Machine) -> Outcome:
    """Return the four points (+-1, +-1) and whether their signs differ.

    Args:
        member: how the classes are written.
        machine: not used.

    Returns:
        The data set, without test samples.
    """
    params = cast("XorParams", member.params)
    inputs = np.array([[-1, -1], [-1, 1], [1, -1], [1, 1]], dtype=np.float64)
    differ = np.array([0, 1, 1, 0])
    return Outcome(
        dataset(inputs, differ if params.labels == "index" else 2.0 * differ - 1)
    )
