"""Declaration of `data.cifar10`."""

from __future__ import annotations

from typing import ClassVar

from curvflow.schemas.images import ImageParams, image_kind
from curvflow.schemas.originals import CIFAR10, Original


class Cifar10Params(ImageParams):
    """Where the files of CIFAR-10 may be, and what is done to the images."""

    original: ClassVar[Original] = CIFAR10


KIND = image_kind(Cifar10Params, version=1)
