"""Declaration of `data.mnist`."""

from __future__ import annotations

from typing import ClassVar

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kinds.shared.images import (
    MNIST,
    ImageParams,
    Original,
    image_kind,
)


class MnistParams(ImageParams):
    """Where the files of MNIST may be, and what is done to the images."""

    original: ClassVar[Original] = MNIST


KIND = image_kind(MnistParams, version=1)

EXPLANATION = Explanation(
    formula=(
        "x = pixels / 255 with normalise: unit; (pixels - mean) / sd of each "
        "channel over the training images with standard"
    ),
    source="LeCun, Bottou, Bengio and Haffner (1998), doi:10.1109/5.726791",
    cost="none: the files are read once, and held to the MD5s published",
    example="""\
study: example
axes: {seed: 3}
stages:
  few: {use: data.mnist, num_train: 1000, stratified: true,
        seed: "${seed}"}
""",
    page="data.md#images",
)
