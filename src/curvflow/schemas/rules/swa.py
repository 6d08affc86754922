"""Averages of the weights of stochastic gradient descent."""

from __future__ import annotations

from typing import Literal

from curvflow.schemas.rules._averages import Averaging
from curvflow.schemas.rules.sgd import Sgd


class Swa(Averaging, Sgd):
    """Gradient descent whose result is the average of its weights."""

    rule: Literal["swa"] = "swa"  # type: ignore[assignment] # a name of its own


RULE = Swa
