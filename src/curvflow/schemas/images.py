"""What the kinds of published images have in common: parameters and variables."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from curvflow.schemas.datasets import OUTPUTS
from curvflow.schemas.kind import Kind
from curvflow.schemas.modifications import Modifications
from curvflow.schemas.modifications import known_samples as modified_samples
from curvflow.schemas.nodes import Data
from curvflow.schemas.originals import Original
from curvflow.schemas.params import Whereabouts
from curvflow.schemas.samples import Samples

# Half the room of float64, and exact enough for 256 levels.
IMAGE_OUTPUTS = tuple(
    replace(variable, dtype="float32") if "inputs" in variable.name else variable
    for variable in OUTPUTS
)


class ImageParams(Modifications):
    """Where the files may be, and what is done to the images.

    Attributes:
        original: what the files hold.
    """

    original: ClassVar[Original]

    folder: Annotated[str | None, Whereabouts()] = Field(
        None, description="folder of the files, relative to the study's folder"
    )
    download: Annotated[bool, Whereabouts()] = Field(
        False, description="fetch the files if they are nowhere; needs pooch"
    )
    normalise: Literal["unit", "standard", "none"] = Field(
        "unit",
        description="unit divides pixels by 255; standard subtracts the training "
        "images' mean and divides by their standard deviation, per channel; none "
        "leaves 0 to 255",
    )

    @model_validator(mode="after")
    def _fits_the_original(self) -> ImageParams:
        original = self.original
        for label in self.classes or ():
            if label >= original.num_classes:
                raise ValueError(
                    f"expected classes from 0 to {original.num_classes - 1}, got "
                    f"{label}"
                )
        train, test = original.counts(self.classes)
        for name, asked, left in (
            ("num_train", self.num_train, train),
            ("num_test", self.num_test, test),
        ):
            if (asked or 0) > left:
                raise ValueError(
                    f"expected {name} of at most the {left} there are, got {asked}. "
                    f"Lower {name}"
                )
        if (self.crop or 0) > original.shape[1]:
            raise ValueError(
                f"expected a crop of at most {original.shape[1]} pixels, got "
                f"{self.crop}. Lower crop"
            )
        return self


def known_samples(params: ImageParams, _: Samples) -> Samples:
    """Return the form of the samples."""
    original = params.original
    whole = Samples(original.shape, "labels", original.num_classes)
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
    )
