"""Declaration of `data.fashion_mnist`."""

from __future__ import annotations

from typing import ClassVar

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kinds.shared.images import (
    FASHION_MNIST,
    ImageParams,
    Original,
    image_kind,
)


class FashionMnistParams(ImageParams):
    """Where the files of Fashion-MNIST may be, and what is done to the images."""

    original: ClassVar[Original] = FASHION_MNIST


KIND = image_kind(FashionMnistParams, version=1)

EXPLANATION = Explanation(
    formula=(
        "x = pixels / 255 with normalise: unit; (pixels - mean) / sd of each "
        "channel over the training images with standard"
    ),
    source="Xiao, Rasul and Vollgraf (2017), arXiv:1708.07747",
    cost="none: the files are read once, and held to the MD5s published",
    example="""\
study: example
axes: {seed: 3}
stages:
  few: {use: data.fashion_mnist, num_train: 1000, stratified: true,
        seed: "${seed}"}
""",
    page="data.md#images",
)
