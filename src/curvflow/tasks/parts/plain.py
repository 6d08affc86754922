"""Parts without tensors: activation, dropout, flattening."""

from __future__ import annotations

import math

from curvflow.tasks.layers import Activation, activate, dropout
from curvflow.tasks.parts.part import Part, Placed, Shape


def activation(function: Activation) -> Part:
    """Apply a function entry by entry, unless paths are counted."""
    return lambda shape: Placed(lambda p, x: activate(p, function, x), shape)


def dropout_part(rate: float) -> Part:
    """Put entries to zero at this rate in training."""
    return lambda shape: Placed(lambda p, x: dropout(p, rate, x), shape)


def flatten() -> Part:
    """Make one row of each sample."""

    def place(shape: Shape) -> Placed:
        return Placed(lambda _, x: x.flatten(2), (math.prod(shape),))

    return place
