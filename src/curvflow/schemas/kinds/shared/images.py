"""Published image data sets: parameters, variables and files."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from curvflow.schemas.kind import Kind, Samples
from curvflow.schemas.kinds.shared.datasets import OUTPUTS
from curvflow.schemas.kinds.shared.modifications import Modifications
from curvflow.schemas.kinds.shared.modifications import (
    known_samples as modified_samples,
)
from curvflow.schemas.nodes import Data
from curvflow.schemas.params import NotInKey


@dataclass(frozen=True)
class Original:
    """One published data set of images.

    Attributes:
        name: that of its kind, without `data.`.
        title: as people call it.
        shape: of one image: channels, height, width.
        train_counts: training images per class.
        test_counts: test images per class.
    """

    name: str
    title: str
    shape: tuple[int, int, int]
    train_counts: tuple[int, ...]
    test_counts: tuple[int, ...]

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.train_counts)

    def counts(self, classes: Collection[int] | None) -> tuple[int, int]:
        """Return how many training and test images some classes have, or all."""
        kept = range(self.num_classes) if classes is None else classes
        train = sum(self.train_counts[label] for label in kept)
        return train, sum(self.test_counts[label] for label in kept)


MNIST = Original(
    name="mnist",
    title="MNIST",
    shape=(1, 28, 28),
    train_counts=(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
    test_counts=(980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
)
FASHION_MNIST = Original(
    name="fashion_mnist",
    title="Fashion-MNIST",
    shape=(1, 28, 28),
    train_counts=(6000,) * 10,
    test_counts=(1000,) * 10,
)
CIFAR10 = Original(
    name="cifar10",
    title="CIFAR-10",
    shape=(3, 32, 32),
    train_counts=(5000,) * 10,
    test_counts=(1000,) * 10,
)
CIFAR100 = Original(
    name="cifar100",
    title="CIFAR-100",
    shape=(3, 32, 32),
    train_counts=(500,) * 100,
    test_counts=(100,) * 100,
)
FACES = Original(
    name="faces",
    title="ORL faces",
    shape=(1, 112, 92),
    train_counts=(10,) * 40,
    test_counts=(0,) * 40,
)


# Half the room of float64, and exact enough for 256 levels.
IMAGE_OUTPUTS = tuple(
    replace(variable, dtype="float32") if "inputs" in variable.name else variable
    for variable in OUTPUTS
)


class ImageParams(Modifications):
    """Places of the files, and changes of the images.

    Attributes:
        original: what the files hold.
    """

    original: ClassVar[Original]

    folder: Annotated[str | None, NotInKey()] = Field(
        None, description="folder of the files, relative to the study's folder"
    )
    download: Annotated[bool, NotInKey()] = Field(
        False, description="fetch the files if they are not found; needs pooch"
    )
    normalise: Literal["unit", "standard", "none"] = Field(
        "unit",
        description="unit divides pixels by 255; standard subtracts the training "
        "images' mean and divides by their standard deviation, per channel; none "
        "leaves 0 to 255",
    )

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image before it is changed."""
        return self.original.shape

    @property
    def num_labels(self) -> int:
        """Number of classes before any is left out."""
        return self.original.num_classes

    @property
    def counts(self) -> tuple[int, int]:
        """Training and test images of the classes kept, before any are drawn."""
        return self.original.counts(self.classes)

    @model_validator(mode="after")
    def _fits_the_original(self) -> Self:
        for label in self.classes or ():
            if label >= self.num_labels:
                raise ValueError(
                    f"expected classes from 0 to {self.num_labels - 1}, got {label}. "
                    f"Remove {label}."
                )
        train, test = self.counts
        for name, asked, left in (
            ("num_train", self.num_train, train),
            ("num_test", self.num_test, test),
        ):
            if (asked or 0) > left:
                raise ValueError(
                    f"expected {name} of at most the {left} there are, got {asked}. "
                    f"Lower {name}"
                )
        if (self.crop or 0) > self.shape[1]:
            raise ValueError(
                f"expected a crop of at most {self.shape[1]} pixels, got {self.crop}. "
                "Lower crop."
            )
        return self


def known_samples(params: ImageParams, _: Samples) -> Samples:
    """Return the form of the samples."""
    whole = Samples(params.shape, "labels", params.num_labels)
    return modified_samples(params, whole)


def image_kind(params: type[ImageParams], version: int) -> Kind:
    """Declare the kind of one published set of images.

    Args:
        params: of the kind; they name the original.
        version: of the kind.

    Returns:
        The declaration.
    """
    original = params.original
    channels, height, width = original.shape
    colours = "grey" if channels == 1 else "coloured"
    return Kind(
        name=f"data.{original.name}",
        version=version,
        summary=f"{original.title}: {colours} images of {height}x{width} pixels in "
        f"{original.num_classes} classes.",
        params=params,
        returns=Data,
        outputs=IMAGE_OUTPUTS,
        varying=("seed",),
        known_samples=known_samples,
    )
