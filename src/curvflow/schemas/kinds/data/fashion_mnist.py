"""Declaration of `data.fashion_mnist`."""

from __future__ import annotations

from typing import ClassVar

from curvflow.schemas.images import ImageParams, image_kind
from curvflow.schemas.originals import FASHION_MNIST, Original


class FashionMnistParams(ImageParams):
    """Where the files of Fashion-MNIST may be, and what is done to the images."""

    original: ClassVar[Original] = FASHION_MNIST


KIND = image_kind(FashionMnistParams, version=1)
