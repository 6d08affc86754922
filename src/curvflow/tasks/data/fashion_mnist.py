"""Fashion-MNIST.

Reference:
    Xiao, Rasul and Vollgraf (2017), arXiv:1708.07747.
"""

from __future__ import annotations

from collections.abc import Sequence

from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.datasets.images import images, member_bytes
from curvflow.tasks.registry import Machine, computes


@computes("data.fashion_mnist", member_bytes=member_bytes)
def fashion_mnist(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Make data sets of Fashion-MNIST, modified as asked.

    Args:
        members: parameters, and the arrays of the published files.
        machine: not used.

    Returns:
        The data sets; inputs are (N, channels, height, width) unless flattened.
    """
    return images(members)
