"""Declaration of `data.cifar100`."""

from __future__ import annotations

from typing import ClassVar

from curvflow.schemas.images import ImageParams, image_kind
from curvflow.schemas.originals import CIFAR100, Original


class Cifar100Params(ImageParams):
    """Where the files of CIFAR-100 may be, and what is done to the images."""

    original: ClassVar[Original] = CIFAR100


KIND = image_kind(Cifar100Params, version=1)
