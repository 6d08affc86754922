"""Deep linear network."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curvflow.schemas.models._base import Model, Widths


class DeepLinear(Model):
    """Dense layers without activations or biases: a product of matrices."""

    kind: Literal["deep_linear"] = "deep_linear"
    hidden: Widths = Field(
        description="widths of the hidden layers, first to last; one is reduced-rank "
        "regression"
    )


MODEL = DeepLinear
