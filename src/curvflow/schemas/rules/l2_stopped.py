"""Gradient descent with a decay of the weights that stops."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curvflow.schemas.rules._decay import Decay


class L2Stopped(Decay):
    """`l2` for the first epochs, then gradient descent alone."""

    rule: Literal["l2_stopped"] = "l2_stopped"
    tau: int = Field(ge=0, description="epochs with decay")


RULE = L2Stopped
