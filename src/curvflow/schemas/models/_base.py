"""What every model has."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt

from curvflow.schemas.initial import Glorot, Init
from curvflow.schemas.params import Params

Activation = Literal["relu", "tanh", "gelu", "sigmoid", "identity"]
Pooling = Literal["avg", "max"]
Widths = Annotated[tuple[PositiveInt, ...], Field(strict=False)]


class Model(Params):
    """Base of the models; each narrows `kind` to a literal equal to its file's name.

    Attributes:
        fits_values: whether it can be trained on values rather than labels.
    """

    fits_values: ClassVar[bool] = True

    kind: str
    init: Init | None = Field(
        Glorot(glorot=1.0), description="law of the initial weights"
    )
