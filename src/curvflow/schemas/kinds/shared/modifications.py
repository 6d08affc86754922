"""Changes of a data set, in one fixed order, as parameters of its kind."""

from __future__ import annotations

from math import prod
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from curvflow.schemas.kind import Samples
from curvflow.schemas.params import Ints, Neutral, Params


class Modifications(Params):
    """Changes to a data set, made in the order of these fields.

    Each draws from a separate stream, made from the seed and its name, so that
    changing one leaves the draws of the others alone.
    """

    classes: Ints | None = Field(
        None,
        min_length=2,
        description="labels kept, renamed 0, 1, ... in this order; null keeps all",
    )
    relabel: Annotated[Literal["none", "parity"], Neutral("none")] = Field(
        "none",
        description="parity makes labels, as they are before classes renames them, 0 "
        "where even and 1 where odd",
    )
    num_train: int | None = Field(
        None, ge=2, description="training samples drawn; null keeps all"
    )
    num_test: int | None = Field(
        None, ge=0, description="test samples drawn; null keeps all"
    )
    stratified: bool = Field(
        False, description="draw from each class in proportion to its size"
    )
    crop: int | None = Field(
        None, ge=1, description="side of the square kept at the centre, pixels"
    )
    label_noise: float = Field(
        0.0,
        ge=0,
        le=1,
        description="share of the training labels replaced by another class",
    )
    permute_pixels: bool = Field(
        False, description="move the pixels of all images by one random permutation"
    )
    normalise: Literal["unit", "standard", "none"] = Field(
        "none",
        description="unit brings the training inputs to [0, 1]; standard subtracts "
        "their mean and divides by their standard deviation, per channel or column",
    )
    flatten: bool = Field(False, description="inputs as rows, (samples, features)")
    labels: Literal["index", "one_hot"] = Field(
        "index", description="targets as they are, or one column of 0 and 1 per class"
    )
    targets: Annotated[Literal["given", "inputs"], Neutral("given")] = Field(
        "given",
        description="those of the data, or the inputs themselves as rows of values",
    )
    seed: int = Field(0, ge=0, description="seed of all that is drawn")

    @field_validator("classes")
    @classmethod
    def _distinct(cls, classes: Ints | None) -> Ints | None:
        for label in classes or ():
            if label < 0 or (classes or ()).count(label) > 1:
                what = f"{label} twice" if label >= 0 else f"{label}"
                raise ValueError(
                    f"expected distinct labels from 0 on, got {what}. Correct them."
                )
        return classes

    @model_validator(mode="after")
    def _changes_no_target_that_is_not_kept(self) -> Self:
        if self.targets == "inputs":
            kept = ("relabel", "none"), ("label_noise", 0.0), ("labels", "index")
            for name, none in kept:
                if (value := getattr(self, name)) != none:
                    raise ValueError(
                        f"{name} {value} cannot be combined with targets: inputs, "
                        f"which keep no labels. Remove {name}."
                    )
        return self


def known_samples(params: Modifications, taken: Samples) -> Samples:
    """Return the form of the samples of the changed data set.

    Args:
        params: the changes.
        taken: the form of those of the data set that is changed.
    """
    shape, outputs = taken.shape, taken.outputs
    if params.crop is not None and shape is not None:
        shape = (*shape[:-2], params.crop, params.crop)
    if params.flatten and shape is not None:
        shape = (prod(shape),)
    if params.targets == "inputs":
        return Samples(shape, "values", None if shape is None else prod(shape))
    if params.classes is not None:
        outputs = len(params.classes)
    if params.relabel == "parity":
        outputs = 2
    targets = taken.targets if params.labels == "index" else "values"
    tokens = taken.tokens if targets == "labels" else None
    return Samples(shape, targets, outputs, tokens)
