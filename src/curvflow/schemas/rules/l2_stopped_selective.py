"""Gradient descent with a decay of all weights, then of those that matter least."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curvflow.schemas.rules._selection import Selection


class L2StoppedSelective(Selection):
    """`l2` for the first epochs, then `selective_l2`."""

    rule: Literal["l2_stopped_selective"] = "l2_stopped_selective"
    tau: int = Field(ge=0, description="epochs in which all weights decay")
    selective_rate: float = Field(
        ge=0, description="rate of the selective decay after these epochs, by itself"
    )

    def product_from(self) -> int:
        """Return tau: the epochs before decay all weights alike."""
        return self.tau


RULE = L2StoppedSelective
