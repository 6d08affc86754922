"""Published image sets: MNIST, Fashion-MNIST, CIFAR-10 and CIFAR-100.

Reference:
    LeCun, Bottou, Bengio and Haffner (1998), doi:10.1109/5.726791; Xiao, Rasul and
    Vollgraf (2017), arXiv:1708.07747; Krizhevsky (2009), Learning multiple layers of
    features from tiny images.
"""

from __future__ import annotations

from collections.abc import Sequence

from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.datasets.images import images, member_bytes
from curvflow.tasks.registry import Machine, computes


@computes("data.mnist", member_bytes=member_bytes)
@computes("data.fashion_mnist", member_bytes=member_bytes)
@computes("data.cifar10", member_bytes=member_bytes)
@computes("data.cifar100", member_bytes=member_bytes)
def published_images(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Make data sets of published images, modified as the parameters say.

    Args:
        members: parameters, and the arrays of the published files.
        machine: not used.

    Returns:
        The data sets; inputs are (N, channels, height, width) unless flattened.
    """
    return images(members)
