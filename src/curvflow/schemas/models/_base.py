"""What every model has."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curvflow.schemas.initial import Glorot, Init
from curvflow.schemas.params import Params

Activation = Literal["relu", "tanh", "gelu", "sigmoid", "identity"]


class Model(Params):
    """Base of the models; each narrows `kind` to a literal equal to its file's name."""

    kind: str
    init: Init | None = Field(
        Glorot(glorot=1.0), description="law of the initial weights"
    )
