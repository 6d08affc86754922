"""Declaration of `data.mnist`."""

from __future__ import annotations

from typing import ClassVar

from curvflow.schemas.images import ImageParams, image_kind
from curvflow.schemas.originals import MNIST, Original


class MnistParams(ImageParams):
    """Where the files of MNIST may be, and what is done to the images."""

    original: ClassVar[Original] = MNIST


KIND = image_kind(MnistParams, version=1)
