"""Checks that figures and checkpoints are of a number that can be drawn and kept."""

from __future__ import annotations

import math
from collections.abc import Mapping

from curvflow.schemas.nodes import Figure
from curvflow.schemas.study.axes import Axis
from curvflow.schemas.study.stage import Stage

MAX_DRAWN = 10_000
# Reduced without a part of the figure for each label: means, and points.
UNDRAWN = ("over", "each")


def check_drawn(stage: Stage, axes: Mapping[str, Axis]) -> None:
    """Refuse a figure of too many labels, and too many figures; StudyError."""
    if not issubclass(stage.kind.returns, Figure):
        return
    sizes = {name: len(axis.labels) for name, axis in axes.items()}
    number = math.prod(sizes[dim] for dim in stage.dims if dim in sizes)
    if number > MAX_DRAWN:
        message = f"expected at most {MAX_DRAWN:,} figures of a stage, got {number:,}"
        hint = f"Average over {max(stage.dims, key=lambda dim: sizes.get(dim, 0))}."
        raise stage.error((), message, hint)
    params = stage.params(next(stage.template.samples()))
    for name in stage.kind.reduces:
        value = None if name in UNDRAWN else getattr(params, name)
        for axis in [value] if isinstance(value, str) else value or ():
            if sizes.get(axis, 0) > MAX_DRAWN:
                message = (
                    f"expected an axis of at most {MAX_DRAWN:,} labels to draw, got "
                    f"'{axis}' of {sizes[axis]:,}"
                )
                raise stage.error((name,), message, "Average over it with 'over'.")
