"""Averages of the weights of AdamW."""

from __future__ import annotations

from typing import Literal

from curvflow.schemas.rules._adaptive import Adaptive
from curvflow.schemas.rules._averages import Averaging


class Gadam(Averaging, Adaptive):
    """AdamW whose result is the average of its weights."""

    rule: Literal["gadam"] = "gadam"


RULE = Gadam
