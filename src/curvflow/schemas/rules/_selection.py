"""What the rules that decay only some of the weights have."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curvflow.schemas.rules._decay import Decay


class Selection(Decay):
    """Base of the rules that decay a parameter by the size of its entry of H w.

    The entry is held against omega times the largest of its parameter tensor.
    """

    omega: float = Field(
        ge=0, description="share of the largest entry of H w that sets the bound"
    )
    maximum: Literal["signed", "absolute"] = Field(
        "signed",
        description="the largest entry itself, or the largest magnitude; where the "
        "first is below 0, no entry is within the bound",
    )
    at_equality: Literal["regularised", "protected"] = Field(
        "regularised", description="what happens to an entry equal to the bound"
    )
    mask: Literal["insignificant", "inverted"] = Field(
        "insignificant",
        description="which entries decay: those within the bound, or those beyond",
    )
