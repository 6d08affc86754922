"""CIFAR-10.

Reference:
    Krizhevsky (2009), Learning multiple layers of features from tiny images.
"""

from __future__ import annotations

from curvflow.tasks.images import images, member_bytes
from curvflow.tasks.registry import computes

computes("data.cifar10", member_bytes=member_bytes)(images)
