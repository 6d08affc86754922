"""The series and numbers of a scatter plot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from curvflow.schemas.kind import STAGE
from curvflow.schemas.kinds.figures.scatter import ScatterParams
from curvflow.schemas.nodes import Array, Label, NodeData
from curvflow.schemas.words import counted
from curvflow.tasks.drawing import captions
from curvflow.tasks.statistics.correlations import fit_line, spearman
from curvflow.tasks.statistics.descriptive import statistics
from curvflow.tasks.statistics.measurements import Measurement, find_measurement
from curvflow.tasks.statistics.pairs import Point

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
    slope, intercept = fit_line(
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


@dataclass(frozen=True)
class Series:
    """One variable against another.

    Attributes:
        x: drawn to the right.
        y: drawn upwards.
    """

    x: Measurement
    y: Measurement

    def named(self, role: str, params: ScatterParams) -> str:
        """Return what an axis says of this series.

        Args:
            role: `x` or `y`.
            params: whether both are normalised.

        Returns:
            Such as `norm l2 (parameter)`, or `1 - test loss / largest`.
        """
        one = self.x if role == "x" else self.y
        if params.normalise == "none":
            return captions.axis_label(one)
        words = f"{captions.quantity(one)[0]} / largest"
        turned = role == "y" and is_turned(self.y.stage, params)
        return f"1 {MINUS} {words}" if turned else words


def find_series(params: ScatterParams, nodes: Sequence[NodeData]) -> list[Series]:
    """Find x and y among the results of stages.

    Args:
        params: the variables, and whether stages are told apart.
        nodes: results of one or several stages.

    Returns:
        One series; where stages are told apart, one for each of them.

    Raises:
        InputError: a variable is not measured, or by several stages of one series.
    """
    if STAGE not in params.parts:
        return [_series(params, nodes, "")]
    stages: dict[str, list[NodeData]] = {}
    for node in nodes:
        stages.setdefault(node.stage, []).append(node)
    return [_series(params, own, stage) for stage, own in stages.items()]


def _series(params: ScatterParams, nodes: Iterable[NodeData], stage: str) -> Series:
    names = {"x": params.x, "y": params.y}
    chosen = {r: n if isinstance(n, str) else n[stage] for r, n in names.items()}
    of = [*nodes]
    return Series(*(find_measurement(role, name, of) for role, name in chosen.items()))


def series_sentences(of: Sequence[Series], params: ScatterParams) -> list[str]:
    """Say which stage is drawn as what, where they differ.

    Args:
        of: the series.
        params: how they are drawn.

    Returns:
        A sentence for each axis on which stages differ.
    """
    found = []
    for role in ("x", "y"):
        stages: dict[str, list[str]] = {}
        for one in of:
            stages.setdefault(one.named(role, params), []).append(one.y.stage)
        if len(stages) > 1:
            found.append(f"{role}: {_listed(stages)}.")
    return found


def _listed(stages: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{words} of {', '.join(own)}" for words, own in stages.items())
