"""Scales of axes that unconverged points do not set, and marks of those beyond."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import offset_copy

from curvflow.schemas.nodes import Array
from curvflow.schemas.words import counted
from curvflow.tasks.drawing import canvas

MARGIN = 0.05  # of a scale on either side
TRIANGLE = 4.0  # points
MARKERS = {
    (x, y): ("v" if y < 0 else "^") if y else ("<" if x < 0 else ">")
    for x in (-1, 0, 1)
    for y in (-1, 0, 1)
}
HOLLOW: dict[str, Any] = {
    "linestyle": "",
    "markerfacecolor": "white",
    "markeredgewidth": 0.8,
}


def sets_scale(
    mean: Array, low: Array, high: Array, doubtful: Array, *, is_log: bool
) -> Array:
    """Return a mask of the points that set the scale of an axis.

    Doubtful points may stretch the span of the others, error bars included, by its own
    length on either side; points beyond do not count. Where fewer than two points are
    beyond doubt, or these span nothing, all count.

    Args:
        mean: of the points, any shape; NaN for those that are not drawn.
        low: lower ends of error bars; NaN where there is none.
        high: upper ends.
        doubtful: the points that are not converged.
        is_log: the axis is logarithmic, and means are positive.

    Returns:
        A mask of the same shape.
    """
    drawn = np.isfinite(mean)
    trusted = drawn & ~doubtful
    if is_log:
        with np.errstate(invalid="ignore", divide="ignore"):
            # A bar that reaches zero is cut a factor of ten below its mean.
            low, high = np.log10(np.fmax(low, mean / 10)), np.log10(high)
            mean = np.log10(mean)
    bottom, top = np.fmin(low, mean), np.fmax(high, mean)
    if trusted.sum() < 2:
        return drawn
    least, most = bottom[trusted].min(), top[trusted].max()
    span = most - least
    if span <= 0:
        return drawn
    near = (bottom >= least - span) & (top <= most + span)
    kept: Array = drawn & (trusted | near)
    return kept


def limits(
    mean: Array, low: Array, high: Array, doubtful: Array, *, is_log: bool
) -> tuple[float, float] | None:
    """Return limits of an axis that doubtful points do not set, see `sets_scale`.

    Args:
        mean: of the points, any shape; NaN for those that are not drawn.
        low: lower ends of error bars; NaN where there is none.
        high: upper ends.
        doubtful: the points that are not converged.
        is_log: the axis is logarithmic, and means are positive.

    Returns:
        Lower and upper limit; None where all points set the scale.
    """
    kept = sets_scale(mean, low, high, doubtful, is_log=is_log)
    if kept[np.isfinite(mean)].all():
        return None
    ends = mean[kept], low[kept], high[kept]
    if is_log:
        return canvas.log_limits(*ends)
    bottom = float(np.fmin(ends[1], ends[0]).min())
    top = float(np.fmax(ends[2], ends[0]).max())
    margin = MARGIN * (top - bottom)
    return bottom - margin, top + margin


def beyond(values: Array, limits: tuple[float, float]) -> Array:
    """Return for each value -1 below the limits, 1 above them, else 0.

    Args:
        values: any shape; NaN is not beyond.
        limits: lower and upper limit.

    Returns:
        Whole numbers in the shape of the values.
    """
    below, above = (values < limits[0]), (values > limits[1])
    return above.astype(np.int64) - below.astype(np.int64)


def draw_at_edges(axes: Axes, x: Array, y: Array, colours: Sequence[str]) -> None:
    """Mark points beyond the limits by hollow triangles at the edges.

    Triangles of several colours at one place stand in a row, from the edge inwards.

    Args:
        axes: the panel, with its limits set.
        x: of the points.
        y: of the points.
        colours: one for each point.
    """
    sheet = axes.figure
    assert isinstance(sheet, Figure)
    ends_x, ends_y = axes.get_xlim(), axes.get_ylim()
    sides_x, sides_y = beyond(x, ends_x).tolist(), beyond(y, ends_y).tolist()
    places = zip(
        np.clip(x, *ends_x).tolist(), np.clip(y, *ends_y).tolist(), strict=True
    )
    rows: dict[tuple[float, float], list[str]] = defaultdict(list)
    for place, side_x, side_y, colour in zip(
        places, sides_x, sides_y, colours, strict=True
    ):
        if (side_x or side_y) and colour not in rows[place]:
            inwards = TRIANGLE * len(rows[place])
            x_step, y_step = (0, -side_y) if side_y else (-side_x, 0)
            rows[place].append(colour)
            axes.plot(
                *([end] for end in place),
                marker=MARKERS[side_x, side_y],
                markersize=TRIANGLE,
                color=colour,
                transform=offset_copy(
                    axes.transData,
                    sheet,
                    x=x_step * inwards,
                    y=y_step * inwards,
                    units="points",
                ),
                clip_on=False,
                zorder=4,
                **HOLLOW,
            )


def beyond_sentences(
    axes: Sequence[tuple[Array, tuple[float, float] | None]],
) -> list[str]:
    """Return a sentence on points marked at the edges, if any.

    Args:
        axes: for each axis the drawn points, and its limits if points are beyond.

    Returns:
        A sentence; none if all points are inside.
    """
    outside = [beyond(values, ends) != 0 for values, ends in axes if ends]
    number = int(np.any(outside, axis=0).sum()) if outside else 0
    text = counted(number, "point")
    return [f"Beyond the axes, marked at their edge: {text}."] if number else []
