"""Averages of the weights of partially adaptive AdamW."""

from __future__ import annotations

from typing import Literal

from curvflow.schemas.rules._adaptive import PartiallyAdaptive
from curvflow.schemas.rules._averages import Averaging


class GadamX(Averaging, PartiallyAdaptive):
    """Partially adaptive AdamW whose result is the average of its weights."""

    rule: Literal["gadamx"] = "gadamx"


RULE = GadamX
