"""Products of powers of weights, the normal form of a singular loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from curvflow.schemas.models._base import Model, Some, SomeWidths


class NormalCrossing(Model):
    """Every output is a product of powers of weights of its own."""

    kind: Literal["normal_crossing"] = "normal_crossing"
    powers: Annotated[tuple[SomeWidths, ...], Field(strict=False), Some] = Field(
        description="k, for each output the powers of its weights; several outputs of "
        "one weight each are a separable loss"
    )


MODEL = NormalCrossing


def tensor_sizes(spec: NormalCrossing, inputs: int, outputs: int) -> Mapping[str, int]:
    """Return the sizes of the parameter tensors."""
    return {
        f"product{number}.weight": len(powers)
        for number, powers in enumerate(spec.powers, start=1)
    }
