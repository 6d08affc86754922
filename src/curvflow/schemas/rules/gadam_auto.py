"""Averages of the weights of AdamW that begin and end by themselves."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curvflow.schemas.rules._adaptive import Adaptive
from curvflow.schemas.rules._averages import Every


class GadamAuto(Adaptive):
    """AdamW, then its average, then an end, as the validation loss stops improving."""

    rule: Literal["gadam_auto"] = "gadam_auto"
    patience: int = Field(
        10,
        ge=1,
        description="epochs without a lower validation loss before averaging begins, "
        "and again before it ends",
    )
    every: Every = "epoch"
    count_before: bool = Field(
        False, description="count the last weights before averaging begins as one more"
    )

    @property
    def watches(self) -> bool:
        """Whether the rule is told the validation loss after each epoch: it is."""
        return True

    @property
    def has_preconditioner(self) -> bool:
        """False: the weights that are kept are not those that steps are taken from."""
        return False


RULE = GadamAuto
