"""Fashion-MNIST.

Reference:
    Xiao, Rasul and Vollgraf (2017), arXiv:1708.07747.
"""

from __future__ import annotations

from curvflow.tasks.images import images, member_bytes
from curvflow.tasks.registry import computes

computes("data.fashion_mnist", member_bytes=member_bytes)(images)
