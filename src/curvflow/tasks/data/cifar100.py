"""CIFAR-100.

Reference:
    Krizhevsky (2009), Learning multiple layers of features from tiny images.
"""

from __future__ import annotations

from collections.abc import Sequence

from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.datasets.images import images, member_bytes
from curvflow.tasks.registry import Machine, computes


@computes("data.cifar100", member_bytes=member_bytes)
def cifar100(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Make data sets of CIFAR-100, modified as asked.

    Args:
        members: parameters, and the arrays of the published files.
        machine: not used.

    Returns:
        The data sets; inputs are (N, channels, height, width) unless flattened.
    """
    return images(members)
