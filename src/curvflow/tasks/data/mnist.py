"""MNIST.

Reference:
    LeCun, Bottou, Bengio and Haffner (1998), doi:10.1109/5.726791.
"""

from __future__ import annotations

from curvflow.tasks.images import images, member_bytes
from curvflow.tasks.registry import computes

computes("data.mnist", member_bytes=member_bytes)(images)
