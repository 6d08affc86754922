"""What rules that average the weights have."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from curvflow.schemas.params import Params
from curvflow.schemas.rules._base import Rule

Every = Annotated[
    Literal["epoch"] | PositiveInt,
    Field(
        description="which weights are averaged: those at the end of each epoch, or "
        "after each so many steps, counted from the first of training"
    ),
]


class Slow(Params):
    """Lookahead before the averaging begins."""

    k: int = Field(5, ge=1, description="steps between two moves of the slow weights")
    alpha: float = Field(
        0.5, gt=0, le=1, description="share of the way to the fast weights"
    )


class Averaging(Rule):
    """Base of rules whose result is an average of the weights they step through."""

    start: int = Field(
        ge=0, description="epochs completed when the first weights are averaged"
    )
    every: Every = "epoch"
    count_before: bool = Field(
        False, description="count the last weights before averaging begins as one more"
    )
    lookahead: Slow | None = Field(
        None, description="Lookahead until averaging begins; null for none"
    )

    @property
    def has_preconditioner(self) -> bool:
        """False: the weights that are kept are not those that steps are taken from."""
        return False
