"""Declaration of `data.cifar100`."""

from __future__ import annotations

from typing import ClassVar

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kinds.shared.images import (
    CIFAR100,
    ImageParams,
    Original,
    image_kind,
)


class Cifar100Params(ImageParams):
    """Where the files of CIFAR-100 may be, and what is done to the images."""

    original: ClassVar[Original] = CIFAR100


KIND = image_kind(Cifar100Params, version=1)

EXPLANATION = Explanation(
    formula=(
        "x = pixels / 255 with normalise: unit; (pixels - mean) / sd of each "
        "channel over the training images with standard"
    ),
    source="Krizhevsky (2009), Learning Multiple Layers of Features from Tiny Images",
    cost="none: the files are read once, and held to the MD5s published",
    example="""\
study: example
axes: {seed: 3}
stages:
  few: {use: data.cifar100, num_train: 1000, stratified: true,
        seed: "${seed}"}
""",
    page="data.md#images",
)
