"""Series, points, trend line and sentences of a scatter plot."""

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


def point_columns(points: Sequence[Point], params: ScatterParams) -> dict[str, Array]:
    """Return the means and error bars of points, normalised if requested.

    Args:
        points: the points.
        params: kind of error bars, and normalisation of x and y.

    Returns:
        The variables of `figure.scatter` that have the dimension `point`.
    """
    statistics_of = [statistics(point.finite) for point in points]
    ends = [s.ends(params.error) for s in statistics_of]
    sides = {
        "": [s.mean for s in statistics_of],
        "_low": [low for low, _ in ends],
        "_high": [high for _, high in ends],
    }
    numbers = {
        f"{axis}{side}": np.array([pair[place] for pair in pairs], dtype=np.float64)
        for place, axis in enumerate("xy")
        for side, pairs in sides.items()
    }
    if params.normalise == "max":
        numbers = _normalised(numbers, points, params)
    names = [
        ", ".join(f"{a} = {v}" for a, v in point.labels.items()) for point in points
    ]
    return {
        "point": np.array(names),
        "label": np.array([point.text(params.label) for point in points]),
        "shape": np.array([point.text(params.marker) for point in points]),
        **numbers,
        "count": np.array([len(point.finite) for point in points], dtype=np.int64),
        "unconverged": np.array([p.num_unconverged for p in points], dtype=np.int64),
        "diverged": np.array([point.diverged for point in points], dtype=np.int64),
    }


def _normalised(
    numbers: Mapping[str, Array], points: Sequence[Point], params: ScatterParams
) -> dict[str, Array]:
    keys = [
        tuple(point.labels[axis] for axis in params.within or ()) for point in points
    ]
    scaled = {}
    for axis in "xy":
        largest = dict.fromkeys(keys, 0.0)
        for key, mean in zip(keys, numbers[axis], strict=True):
            largest[key] = max(largest[key], np.nan_to_num(abs(mean)))
        scale = np.array([largest[key] or 1.0 for key in keys])
        for name in (axis, f"{axis}_low", f"{axis}_high"):
            scaled[name] = numbers[name] / scale
    inverted = np.array(
        [is_inverted(point.labels.get(STAGE, ""), params) for point in points]
    )
    y, low, high = scaled["y"], scaled["y_low"], scaled["y_high"]
    return scaled | {
        "y": np.where(inverted, 1 - y, y),
        "y_low": np.where(inverted, 1 - high, low),
        "y_high": np.where(inverted, 1 - low, high),
    }


def is_inverted(stage: Label, params: ScatterParams) -> bool:
    """Return whether y of a stage is drawn as 1 - y / max|y|, as an error is."""
    lower = params.lower_is_better
    return lower if isinstance(lower, bool) else stage in lower


def trend_columns(x_N: Array, y_N: Array, params: ScatterParams) -> dict[str, Array]:
    """Return the line and rank correlation of the drawn points.

    Args:
        x_N: finite numbers, positive on a logarithmic axis.
        y_N: finite numbers, positive on a logarithmic axis.
        params: scales of the axes; the line is straight as drawn.

    Returns:
        The variables of `figure.scatter` without dimensions.
    """
    slope, intercept = fit_line(
        np.log10(x_N) if params.log_x else x_N, np.log10(y_N) if params.log_y else y_N
    )
    r, (low, high) = spearman(x_N, y_N)
    values = {
        "slope": slope,
        "intercept": intercept,
        "spearman": r,
        "spearman_low": low,
        "spearman_high": high,
    }
    return {name: np.array(value, dtype=np.float64) for name, value in values.items()}


def trend_sentences(
    trend: Mapping[str, Array], num_points: int, params: ScatterParams
) -> Iterator[str]:
    """Yield the sentences of a caption on line and correlation.

    Args:
        trend: columns that `trend_columns` returned.
        num_points: number of drawn points.
        params: whether line and correlation are requested.

    Yields:
        Sentences; none if neither is requested.
    """
    text = {
        name: f"{float(number):.2f}".replace("-", MINUS)
        for name, number in trend.items()
    }
    if params.line and np.isfinite(trend["slope"]):
        slope = f"{float(trend['slope']):.3g}".replace("-", MINUS)
        yield f"Line: least squares, slope {slope}{_on_logarithms(params)}."
    if params.correlation and np.isnan(trend["spearman"]):
        yield "No rank correlation: it takes points that differ in x and in y."
    elif params.correlation:
        interval = f"95 % interval {text['spearman_low']} to {text['spearman_high']}"
        if np.isnan(trend["spearman_low"]):
            why = "perfect order" if num_points > 3 else "fewer than 4 points"
            interval = f"no interval ({why})"
        yield (
            f"Spearman's rank correlation {text['spearman']}, {interval}, n = "
            f"{counted(num_points, 'point')}."
        )


def _on_logarithms(params: ScatterParams) -> str:
    of = " of log10 y" if params.log_y else ""
    return of + (" on log10 x" if params.log_x else "")


@dataclass(frozen=True)
class Series:
    """One variable against another.

    Attributes:
        x: horizontal variable.
        y: vertical variable.
    """

    x: Measurement
    y: Measurement

    def axis_text(self, role: str, params: ScatterParams) -> str:
        """Return the text of an axis for this series.

        Args:
            role: `x` or `y`.
            params: normalisation of x and y.

        Returns:
            Such as `norm l2 (parameter)`, or `1 - test loss / largest`.
        """
        measurement = self.x if role == "x" else self.y
        if params.normalise == "none":
            return captions.axis_label(measurement)
        words = f"{captions.quantity_text(measurement)[0]} / largest"
        turned = role == "y" and is_inverted(self.y.stage, params)
        return f"1 {MINUS} {words}" if turned else words


def find_series(params: ScatterParams, nodes: Sequence[NodeData]) -> list[Series]:
    """Find x and y among the results of stages.

    Args:
        params: the variables, and the axes that distinguish points.
        nodes: results of one or several stages.

    Returns:
        One series; where stages are distinguished, one for each of them.

    Raises:
        InputError: a variable is not measured, or by several stages of one series.
    """
    if STAGE not in params.parts:
        return [_series(params, nodes, "")]
    stages: dict[str, list[NodeData]] = {}
    for node in nodes:
        stages.setdefault(node.stage, []).append(node)
    return [
        _series(params, stage_nodes, stage) for stage, stage_nodes in stages.items()
    ]


def _series(params: ScatterParams, nodes: Iterable[NodeData], stage: str) -> Series:
    names = {"x": params.x, "y": params.y}
    chosen = {r: n if isinstance(n, str) else n[stage] for r, n in names.items()}
    of = [*nodes]
    return Series(*(find_measurement(role, name, of) for role, name in chosen.items()))


def series_sentences(all_series: Sequence[Series], params: ScatterParams) -> list[str]:
    """Return sentences on the variables of each stage, where stages differ.

    Args:
        all_series: the series.
        params: normalisation of x and y.

    Returns:
        A sentence for each axis on which stages differ.
    """
    sentences = []
    for role in ("x", "y"):
        stages: dict[str, list[str]] = {}
        for series in all_series:
            stages.setdefault(series.axis_text(role, params), []).append(series.y.stage)
        if len(stages) > 1:
            sentences.append(f"{role}: {_join_stages(stages)}.")
    return sentences


def _join_stages(stages: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(
        f"{words} of {', '.join(names)}" for words, names in stages.items()
    )
