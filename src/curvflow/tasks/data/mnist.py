"""MNIST.

Reference:
    LeCun, Bottou, Bengio and Haffner (1998), doi:10.1109/5.726791.
"""

from __future__ import annotations

from collections.abc import Sequence

from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.datasets.images import images, member_bytes
from curvflow.tasks.registry import Machine, computes


@computes("data.mnist", member_bytes=member_bytes)
def mnist(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Make data sets of MNIST, modified as asked.

    Args:
        members: parameters, and the arrays of the published files.
        machine: not used.

    Returns:
        The data sets; inputs are (N, channels, height, width) unless flattened.
    """
    return images(members)
