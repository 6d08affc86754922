"""Declarations of the published image sets: MNIST, Fashion-MNIST, CIFAR-10 and -100."""

from __future__ import annotations

from typing import ClassVar

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kinds.shared.images import (
    CIFAR10,
    CIFAR100,
    FASHION_MNIST,
    MNIST,
    ImageParams,
    Original,
    image_kind,
)


class MnistParams(ImageParams):
    """Places of the files of MNIST, and changes made to the images."""

    original: ClassVar[Original] = MNIST


class FashionMnistParams(ImageParams):
    """Places of the files of Fashion-MNIST, and changes made to the images."""

    original: ClassVar[Original] = FASHION_MNIST


class Cifar10Params(ImageParams):
    """Places of the files of CIFAR-10, and changes made to the images."""

    original: ClassVar[Original] = CIFAR10


class Cifar100Params(ImageParams):
    """Places of the files of CIFAR-100, and changes made to the images."""

    original: ClassVar[Original] = CIFAR100


KINDS = (
    image_kind(MnistParams, version=1),
    image_kind(FashionMnistParams, version=1),
    image_kind(Cifar10Params, version=1),
    image_kind(Cifar100Params, version=1),
)

_KRIZHEVSKY = "Krizhevsky (2009), Learning Multiple Layers of Features from Tiny Images"
_SOURCES = {
    "mnist": "LeCun, Bottou, Bengio and Haffner (1998), doi:10.1109/5.726791",
    "fashion_mnist": "Xiao, Rasul and Vollgraf (2017), arXiv:1708.07747",
    "cifar10": _KRIZHEVSKY,
    "cifar100": _KRIZHEVSKY,
}
EXPLANATIONS = tuple(
    Explanation(
        formula=(
            "x = pixels / 255 with normalise: unit; (pixels - mean) / sd of each "
            "channel over the training images with standard"
        ),
        source=source,
        cost="none: the files are read once, and held to the MD5s published",
        example=f"""\
study: example
axes: {{seed: 3}}
stages:
  few: {{use: data.{name}, num_train: 1000, stratified: true,
        seed: "${{seed}}"}}
""",
        page="data.md#images",
    )
    for name, source in _SOURCES.items()
)
