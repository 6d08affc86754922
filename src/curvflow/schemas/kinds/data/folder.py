"""Declaration of `data.folder`, and the check of its files while planning."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from curvflow.errors import InputError
from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Files, Kind, Samples, Variable
from curvflow.schemas.kinds.shared.images import IMAGE_OUTPUTS
from curvflow.schemas.kinds.shared.modifications import Modifications, known_samples
from curvflow.schemas.nodes import Data
from curvflow.schemas.params import SourceFolder

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")
PARTS = ("train", "test")
# A folder deeper than an image may be, so that it is seen and refused.
IMAGES = SourceFolder(suffixes=SUFFIXES, depth=3)
Size = PositiveInt | Annotated[tuple[PositiveInt, PositiveInt], Field(strict=False)]


class FolderParams(Modifications):
    """A folder of images, their size and colours, and changes made to them."""

    path: Annotated[str, IMAGES] = Field(
        description="folder with a folder of images for each class, or with such "
        "folders in train and test"
    )
    size: Size | None = Field(
        None,
        description="side, or height and width, that images are brought to; null "
        "takes images of one size as they are",
    )
    fit: Literal["crop", "stretch"] = Field(
        "crop",
        description="to another shape: crop keeps the largest part at the centre that "
        "has it, stretch all of the image",
    )
    colours: Literal["rgb", "grey"] = Field(
        "rgb", description="three channels, red, green and blue, or one"
    )
    test_fraction: float = Field(
        0.0, ge=0, lt=1, description="share held out where there is no folder test"
    )
    normalise: Literal["unit", "standard", "none"] = Field(
        "unit",
        description="unit divides pixels by 255; standard subtracts the training "
        "images' mean and divides by their standard deviation, per channel; none "
        "leaves 0 to 255",
    )

    @model_validator(mode="after")
    def _no_crop_beyond_the_image(self) -> FolderParams:
        if self.shape is not None and (self.crop or 0) > min(self.shape[1:]):
            raise ValueError(
                f"expected a crop of at most {min(self.shape[1:])} pixels, got "
                f"{self.crop}. Lower crop."
            )
        return self

    @property
    def channels(self) -> int:
        """Numbers of a pixel."""
        return 3 if self.colours == "rgb" else 1

    @property
    def shape(self) -> tuple[int, int, int] | None:
        """Channels, height and width of an image before crop; None if in files."""
        if self.size is None:
            return None
        height, width = self.size if isinstance(self.size, tuple) else (self.size,) * 2
        return self.channels, height, width


@dataclass(frozen=True)
class Listing:
    """The images of a folder.

    Attributes:
        classes: names of the folders, sorted.
        train: path and label of each training image.
        test: the same of the test images.
    """

    classes: list[str]
    train: list[tuple[str, int]]
    test: list[tuple[str, int]]


def listing(names: Iterable[str]) -> Listing:
    """Read classes and parts from the paths of images.

    Args:
        names: paths within the folder, `class/name` or `part/class/name`.

    Returns:
        The images in the order of their paths.

    Raises:
        InputError: images are elsewhere, or not of two classes or more.
    """
    paths = {name: name.split("/") for name in sorted(names)}
    if not paths:
        raise InputError(
            "path: expected images in a folder for each class, got none that end in "
            f"{', '.join(SUFFIXES)}. Name the folder that holds them."
        )
    in_part = {name for name, p in paths.items() if len(p) == 3 and p[0] in PARTS}
    has_parts = bool(in_part)
    for name, parts in paths.items():
        if name not in in_part and (has_parts or len(parts) != 2):
            raise InputError(
                "path: expected images as class/name or as train/class/name and "
                f"test/class/name, got {name}. Move it, or take it out of the folder."
            )
    labelled = {
        part: [(n, p[-2]) for n, p in paths.items() if not has_parts or p[0] == part]
        for part in PARTS
    }
    if not has_parts:
        labelled["test"] = []
    classes = sorted({name for _, name in labelled["train"]})
    if len(classes) < 2:
        raise InputError(
            f"path: expected folders of at least 2 classes, got {len(classes)} with "
            "images to train on. Put the images into a folder for each class."
        )
    for name, label in labelled["test"]:
        if label not in classes:
            raise InputError(
                f"path: expected classes of the folder train in test, got {name}. Add "
                "images to train on, or take it out of the folder."
            )
    numbers = {name: number for number, name in enumerate(classes)}
    train, test = ([(n, numbers[c]) for n, c in labelled[part]] for part in PARTS)
    return Listing(classes, train, test)


def check(params: FolderParams, files: Files) -> None:
    """Refuse a folder that is no data set, by the names in it.

    Args:
        params: changes made to the images.
        files: the files, under `path`, unread.

    Raises:
        InputError: images are elsewhere than in folders of classes, or too few.
    """
    images = listing(files["path"])
    if params.test_fraction and images.test:
        raise InputError(
            "test_fraction cannot be combined with a folder test. Remove one of them."
        )
    for label in params.classes or ():
        if label >= len(images.classes):
            raise InputError(
                f"classes: expected labels below {len(images.classes)}, got {label}. "
                "Remove that label."
            )
    held_out = round(params.test_fraction * len(images.train))
    if (left := len(images.train) - held_out) < 2:
        raise InputError(
            f"test_fraction: expected at least 2 images left for training, got {left} "
            f"of {len(images.train)}. Lower it."
        )


def samples_in_files(params: FolderParams, files: Files) -> Samples:
    """Return the form of the samples.

    Args:
        params: changes made to the images.
        files: the files, under `path`, unread.
    """
    classes = len(listing(files["path"]).classes)
    return known_samples(params, Samples(params.shape, "labels", classes))


KIND = Kind(
    name="data.folder",
    version=1,
    summary="Images in a folder for each class, brought to one size.",
    params=FolderParams,
    returns=Data,
    outputs=(
        *IMAGE_OUTPUTS,
        Variable(
            "class_names",
            "of labels, the folder of each class",
            ("class",),
            dtype="str",
            bulk=True,
            optional=True,
        ),
    ),
    varying=("seed",),
    check=check,
    samples_in_files=samples_in_files,
)

EXPLANATION = Explanation(
    formula=(
        "x = pixels / 255 with normalise: unit; (pixels - mean) / sd of each channel "
        "over the training images with standard; y, the number of the folder"
    ),
    source="none: the images are the user's",
    cost="none: the files are read once, and by their contents",
    example="""\
study: example
axes: {seed: 3}
stages:
  pets: {use: data.folder, path: pets, size: 8, test_fraction: 0.25,
         seed: "${seed}"}
""",
    page="how-to/own-data.md#a-folder-of-images",
    units={"size": "pixel"},
)
