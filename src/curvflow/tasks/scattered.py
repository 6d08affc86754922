"""The numbers that a scatter plot draws."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from curvflow.schemas.counted import counted
from curvflow.schemas.kind import STAGE
from curvflow.schemas.kinds.figures.scatter import ScatterParams
from curvflow.schemas.nodes import Array, Label
from curvflow.tasks.pairs import Point
from curvflow.tasks.statistics import statistics
from curvflow.tasks.trends import line, spearman

MINUS = "\u2212"


def scattered(found: Sequence[Point], params: ScatterParams) -> dict[str, Array]:
    """Return the means and error bars of points, normalised as asked.

    Args:
        found: the points.
        params: which error bars, and by what x and y are divided.

    Returns:
        The variables of `figure.scatter` that have the dimension `point`.
    """
    every = [statistics(point.finite) for point in found]
    ends = [one.ends(params.error) for one in every]
    sides = {
        "": [one.mean for one in every],
        "_low": [low for low, _ in ends],
        "_high": [high for _, high in ends],
    }
    numbers = {
        f"{axis}{side}": np.array([pair[place] for pair in pairs], dtype=np.float64)
        for place, axis in enumerate("xy")
        for side, pairs in sides.items()
    }
    if params.normalise == "max":
        numbers = _normalised(numbers, found, params)
    names = [", ".join(f"{a} = {v}" for a, v in one.labels.items()) for one in found]
    return {
        "point": np.array(names),
        "label": np.array([one.text(params.label) for one in found]),
        "shape": np.array([one.text(params.marker) for one in found]),
        **numbers,
        "count": np.array([len(one.finite) for one in found], dtype=np.int64),
        "diverged": np.array([one.diverged for one in found], dtype=np.int64),
    }


def _normalised(
    numbers: Mapping[str, Array], found: Sequence[Point], params: ScatterParams
) -> dict[str, Array]:
    keys = [tuple(one.labels[axis] for axis in params.within or ()) for one in found]
    scaled = {}
    for axis in "xy":
        largest = dict.fromkeys(keys, 0.0)
        for key, mean in zip(keys, numbers[axis], strict=True):
            largest[key] = max(largest[key], np.nan_to_num(abs(mean)))
        scale = np.array([largest[key] or 1.0 for key in keys])
        for name in (axis, f"{axis}_low", f"{axis}_high"):
            scaled[name] = numbers[name] / scale
    turned = np.array([is_turned(one.labels.get(STAGE, ""), params) for one in found])
    y, low, high = scaled["y"], scaled["y_low"], scaled["y_high"]
    return scaled | {
        "y": np.where(turned, 1 - y, y),
        "y_low": np.where(turned, 1 - high, low),
        "y_high": np.where(turned, 1 - low, high),
    }


def is_turned(stage: Label, params: ScatterParams) -> bool:
    """Return whether y of a stage is an error, drawn as 1 - y / max|y|."""
    lower = params.lower_is_better
    return lower if isinstance(lower, bool) else stage in lower


def trend(x_N: Array, y_N: Array, params: ScatterParams) -> dict[str, Array]:
    """Return line and rank correlation of the points drawn.

    Args:
        x_N: finite numbers, positive on a logarithmic axis.
        y_N: likewise.
        params: which axes are logarithmic; the line is straight as drawn.

    Returns:
        The variables of `figure.scatter` without dimensions.
    """
    slope, intercept = line(
        np.log10(x_N) if params.log_x else x_N, np.log10(y_N) if params.log_y else y_N
    )
    r, (low, high) = spearman(x_N, y_N)
    found = {
        "slope": slope,
        "intercept": intercept,
        "spearman": r,
        "spearman_low": low,
        "spearman_high": high,
    }
    return {name: np.array(value, dtype=np.float64) for name, value in found.items()}


def trend_sentences(
    told: Mapping[str, Array], num_points: int, params: ScatterParams
) -> Iterator[str]:
    """Say what a caption says of line and correlation.

    Args:
        told: what `trend` returns.
        num_points: points drawn.
        params: which of the two are asked for.

    Yields:
        Sentences; none if neither is asked for.
    """
    value = {
        name: f"{float(one):.2f}".replace("-", MINUS) for name, one in told.items()
    }
    if params.line and np.isfinite(told["slope"]):
        slope = f"{float(told['slope']):.3g}".replace("-", MINUS)
        yield f"Line: least squares, slope {slope}{_on_logarithms(params)}."
    if params.correlation and np.isnan(told["spearman"]):
        yield "No rank correlation: it takes points that differ in x and in y."
    elif params.correlation:
        interval = f"95 % interval {value['spearman_low']} to {value['spearman_high']}"
        if np.isnan(told["spearman_low"]):
            why = "perfect order" if num_points > 3 else "fewer than 4 points"
            interval = f"no interval ({why})"
        yield (
            f"Spearman's rank correlation {value['spearman']}, {interval}, n = "
            f"{counted(num_points, 'point')}."
        )


def _on_logarithms(params: ScatterParams) -> str:
    of = " of log10 y" if params.log_y else ""
    return of + (" on log10 x" if params.log_x else "")
