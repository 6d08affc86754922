"""Gradient descent with weights that decay at a rate of their own."""

from __future__ import annotations

from typing import Literal

from curvflow.schemas.rules._decay import Decay


class L2(Decay):
    """Gradient descent with a decay of all weights, apart from the learning rate."""

    rule: Literal["l2"] = "l2"


RULE = L2
