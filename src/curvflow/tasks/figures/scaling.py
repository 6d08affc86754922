"""Power laws fitted to points on logarithmic axes, with bands and crossovers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from curvflow.schemas.kinds.figures.scaling import ScalingFigureParams
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.schemas.words import counted, short_number
from curvflow.tasks.drawing import canvas, captions
from curvflow.tasks.drawing.captions import draw_no_values
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.statistics.label_groups import ValueGroup
from curvflow.tasks.statistics.measurements import Measurement
from curvflow.tasks.statistics.power_laws import UNBOUNDED
from curvflow.tasks.statistics.scaling_points import (
    FittedLaw,
    crossings,
    fit_laws,
    x_and_y,
)

WIDTH, HEIGHT = 88.0, 66.0  # mm; a journal's column
SHAPES = ("o", "s", "^", "D", "v", "P", "X")
MINUS = "\u2212"
MARGIN = 1.15  # factor beyond the first and the last x
MAX_CROSSINGS = 3  # crossovers; more cannot be distinguished
MAX_TICKS = 8  # x of an axis up to which each has a tick
MANY_POINTS = 200  # points above which they are drawn smaller


@computes_each("figure.scaling")
def figure_scaling(member: Member, machine: Machine) -> Outcome:
    """Draw points, the power law fitted to them with its band, and crossovers.

    Args:
        member: nodes of the stages that measure y, and x unless it is an axis; diverged
            nodes and values without a logarithm are excluded and counted in the
            caption.
        machine: not used.

    Returns:
        The files `png`, `svg` and `pdf`, the caption, and the drawn numbers.

    Raises:
        InputError: a variable is not a scalar of one stage, the labels of the axis are
            not numbers, or there are more labels than colours.
    """
    params = member.params
    assert isinstance(params, ScalingFigureParams)
    nodes = member.inputs["of"]
    x, y = x_and_y(params, nodes)
    laws = fit_laws(params, nodes)
    canvas.check_labels(len(laws))
    crossed = _crossings_inside(laws, params)
    caption = captions.with_absent(_caption(x, y, laws, crossed, params), member)
    with canvas.default_style():
        figure = canvas.new_figure(params.width or WIDTH, params.height or HEIGHT)
        axes = figure.add_subplot()
        _set_axes(axes, laws, x, y, params)
        for number, fitted in enumerate(laws):
            _draw(axes, fitted, number, params)
        for row in crossed if len(crossed) <= MAX_CROSSINGS else ():
            axes.axvline(row["crossover"], color="0.45", linewidth=0.8, linestyle=":")
        canvas.compose(
            figure,
            title=params.title,
            handles=[_handle(n) for n in range(len(laws))],
            labels=[_legend_text(fitted, params) for fitted in laws],
            label_name=params.label or "",
            caption=caption,
        )
        files = canvas.pictures(figure)
    return Outcome({**files, "caption": np.array(caption), **_numbers(laws, params)})


def _crossings_inside(
    laws: Sequence[FittedLaw], params: ScalingFigureParams
) -> list[Mapping[str, Any]]:
    if not params.crossovers:
        return []
    return [row for row in crossings(laws, params.confidence) if row["inside"]]


def _numbers(
    laws: Sequence[FittedLaw], params: ScalingFigureParams
) -> dict[str, Array]:
    ends = [fitted.law.limits(params.confidence) for fitted in laws]
    counts = ("diverged", "nonpositive", "nonfinite")
    labels = [str(fitted.series.label) for fitted in laws for _ in fitted.series.points]
    return {
        "law": np.array([str(fitted.series.label) for fitted in laws]),
        "exponent": np.array([fitted.law.exponent for fitted in laws]),
        "low": np.array([low for low, _ in ends]),
        "high": np.array([high for _, high in ends]),
        "prefactor": np.array([float(fitted.law.at(np.ones(1))[0]) for fitted in laws]),
        "count": np.array([len(fitted.series.points) for fitted in laws], np.int64),
        **{n: np.array([getattr(f.series, n) for f in laws], np.int64) for n in counts},
        "point_label": np.array(labels, str),
        "x": np.concatenate([fitted.series.x for fitted in laws]),
        "y": np.concatenate([fitted.series.y for fitted in laws]),
    }


def _legend_text(fitted: FittedLaw, params: ScalingFigureParams) -> str:
    """Return label, exponent and half its interval, such as `sgd: -0.50 ± 0.02`."""
    label = f"{fitted.series.label}: " if params.label else "exponent "
    if np.isnan(fitted.law.exponent):
        return f"{label}{_missing_reason(fitted)}"
    _, high = fitted.law.limits(params.confidence)
    half = high - fitted.law.exponent
    if not half > 0:
        return f"{label}{_with_minus(f'{fitted.law.exponent:.3g}')}"
    # Two digits of the error, and equal decimals of the exponent.
    decimals = max(0, 1 - math.floor(math.log10(half)))
    exponent = _with_minus(f"{fitted.law.exponent:.{decimals}f}")
    return f"{label}{exponent} \u00b1 {half:.{decimals}f}"


def _missing_reason(fitted: FittedLaw) -> str:
    series = fitted.series
    if series.diverged == series.nodes > 0:
        return f"all {series.nodes} diverged"
    return "fewer than two x"


def _with_minus(text: str) -> str:
    return text.replace("-", MINUS)


def _caption(
    x: Measurement | None,
    y: Measurement,
    laws: Sequence[FittedLaw],
    crossed: Sequence[Mapping[str, Any]],
    params: ScalingFigureParams,
) -> str:
    counts = [len(fitted.series.points) for fitted in laws if fitted.series.points]
    least, most = min(counts, default=0), max(counts, default=0)
    n = f"n = {most}" if least == most else f"n = {least} to {most}"
    level = f"{100 * params.confidence:g} %"
    notes = [
        f"Lines: least squares of log y on log x, {n}{_fixed_labels_text(y, params)}; "
        f"legend: exponent \u00b1 half of Student's {level} interval."
    ]
    if params.band:
        notes.append(f"Band: {level} interval of the line.")
    notes += _crossing_sentences(crossed, level)
    notes += captions.left_out_sentences(
        [ValueGroup(f.series.label, f.series.nodes, f.series.diverged) for f in laws]
    )
    for name, word in (("nonpositive", "At or below 0"), ("nonfinite", "Not finite")):
        if total := sum(getattr(fitted.series, name) for fitted in laws):
            notes.append(f"{word}, left out: {counted(total, 'point')}.")
    drawn = [y] if x is None else [x, y]
    notes += captions.unconverged_sentences(drawn) + captions.hold_sentences(drawn)
    return " ".join(notes)


def _fixed_labels_text(y: Measurement, params: ScalingFigureParams) -> str:
    parts = {params.along, params.label, *(params.over or ()), *params.each}
    fixed = [f"{a} = {x}" for a, x in y.nodes[0].coords.items() if a not in parts]
    return f", at {', '.join(fixed)}" if fixed else ""


def _crossing_sentences(
    crossed: Sequence[Mapping[str, Any]], level: str
) -> Iterator[str]:
    if len(crossed) > MAX_CROSSINGS:
        yield f"Inside the points {len(crossed)} pairs of lines cross."
        return
    for row in crossed:
        ends = row["crossover_low"], row["crossover_high"]
        if math.isnan(ends[0]):
            interval = "no interval"
        elif ends == UNBOUNDED:
            interval = f"{level} interval without end"
        else:
            low, high = (short_number(end, 3) for end in ends)
            interval = f"{level} interval {low} to {high}"
        at = short_number(row["crossover"], 3)
        yield f"Dotted: {row['crossing']} cross at {at}, {interval}."


def _set_axes(
    axes: Axes,
    laws: Sequence[FittedLaw],
    x: Measurement | None,
    y: Measurement,
    params: ScalingFigureParams,
) -> None:
    axes.grid(visible=True)
    axes.set_ylabel(captions.axis_label(y))
    words = canvas.escape_mathtext(str(params.along).replace("_", " "))
    axes.set_xlabel(captions.axis_label(x) if x else words)
    for axis, values in (
        ("x", np.concatenate([fitted.series.x for fitted in laws])),
        ("y", _drawn_y(laws, params)),
    ):
        axes.set(**{f"{axis}scale": "log"})
        low, high = (values.min(), values.max()) if len(values) else (1.0, 10.0)
        room = max(MARGIN, float(high / low) ** 0.05)
        axes.set(**{f"{axis}lim": (low / room, high * room)})
    _set_ticks(axes, laws, params)
    canvas.set_log_ticks(axes.yaxis)
    if not any(fitted.series.points for fitted in laws):
        draw_no_values(axes)


def _drawn_y(laws: Sequence[FittedLaw], params: ScalingFigureParams) -> Array:
    """Return the y of all points and of the ends of their lines and bands.

    A band from few points may be very wide, so it is cut a factor of ten from its line.
    """
    values = [np.zeros(0), *(fitted.series.y for fitted in laws)]
    for fitted in laws:
        if np.isnan(fitted.law.exponent):
            continue
        ends = np.array([fitted.series.x.min(), fitted.series.x.max()])
        line = fitted.law.at(ends)
        values.append(line)
        low, high = fitted.law.band(ends, params.confidence)
        if params.band and np.isfinite(low).all():
            values += [np.maximum(low, line / 10), np.minimum(high, 10 * line)]
    return np.concatenate(values)


def _set_ticks(
    axes: Axes, laws: Sequence[FittedLaw], params: ScalingFigureParams
) -> None:
    places = np.unique(np.concatenate([fitted.series.x for fitted in laws]))
    if params.along is None or not 0 < len(places) <= MAX_TICKS:
        canvas.set_log_ticks(axes.xaxis)
        return
    axes.set_xticks(places, [f"{place:g}" for place in places])
    axes.set_xticks([], minor=True)


def _draw(
    axes: Axes, fitted: FittedLaw, number: int, params: ScalingFigureParams
) -> None:
    series, law = fitted.series, fitted.law
    if not series.points:
        return
    tone = canvas.label_colour(number)
    small = len(series.points) > MANY_POINTS
    axes.plot(
        series.x,
        series.y,
        SHAPES[number % len(SHAPES)],
        color=tone,
        markersize=1.6 if small else 2.4,
        markeredgewidth=0,
        alpha=0.45,
    )
    if np.isnan(law.exponent):
        return
    x = np.geomspace(series.x.min(), series.x.max(), 60)
    axes.plot(
        x, law.at(x), color=tone, linewidth=1.2, linestyle=canvas.label_dash(number)
    )
    low, high = law.band(x, params.confidence)
    if params.band and np.isfinite(low).all():
        axes.fill_between(x, low, high, color=tone, alpha=0.18, linewidth=0)


def _handle(number: int) -> Line2D:
    return Line2D(
        [],
        [],
        color=canvas.label_colour(number),
        linestyle=canvas.label_dash(number),
        linewidth=1.2,
        marker=SHAPES[number % len(SHAPES)],
        markersize=3,
    )
