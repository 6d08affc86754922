"""Partially adaptive Adam."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curvflow.schemas.rules._adaptive import PartiallyAdaptive


class Padam(PartiallyAdaptive):
    """Adam that divides by a lower power of the mean square."""

    rule: Literal["padam"] = "padam"
    amsgrad: bool = Field(
        True, description="take the largest mean square so far, not the present one"
    )
    weight_decay: float = Field(
        0.0, ge=0, description="added to g as weight_decay w, unless decoupled"
    )
    decoupled: bool = Field(
        False,
        description="multiply w by 1 - lr weight_decay instead of adding to g",
    )


RULE = Padam
