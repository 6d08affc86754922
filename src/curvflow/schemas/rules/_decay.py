"""What the rules that decay weights beside the gradient step have."""

from __future__ import annotations

from pydantic import Field

from curvflow.schemas.rules._base import Rule


class Decay(Rule):
    """Base of the rules that take decay_factor * rate * w off the weights.

    Unlike a weight decay within the gradient, the rate is not multiplied by `lr`.
    """

    lr: float = Field(gt=0, description="learning rate, of the gradient alone")
    rate: float = Field(ge=0, description="rate of the decay, by itself")
    decay_factor: float = Field(
        2.0,
        gt=0,
        description="factor on the rate: 2 is the gradient of rate * |w|^2, 1 that of "
        "half of it",
    )
