"""Power laws through points on logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from curvflow.schemas.kinds.figures.scaling import ScalingFigureParams
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.schemas.words import counted
from curvflow.tasks.drawing import canvas, captions
from curvflow.tasks.drawing.captions import say_no_values
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
MARGIN = 1.15  # of the x beyond the first and the last
MOST = 3  # crossings that can still be told apart
FEW = 8  # x of an axis that are ticks themselves
MANY = 200  # points from which on they are drawn smaller


@computes_each("figure.scaling")
def figure_scaling(member: Member, machine: Machine) -> Outcome:
    """Draw points, the power law through them with its band, and crossings.

    Args:
        member: the nodes of the stages that measure y, and perhaps x; what diverged or
            has no logarithm is no point, and the caption says how many there are.
        machine: not used.

    Returns:
        The files `png`, `svg` and `pdf`, the caption, and the numbers drawn.

    Raises:
        InputError: a variable is no single number of one stage, the labels of the axis
            are no numbers, or there are more labels than can be told apart.
    """
    params = member.params
    assert isinstance(params, ScalingFigureParams)
    nodes = member.inputs["of"]
    x, y = x_and_y(params, nodes)
    of = fit_laws(params, nodes)
    canvas.check_labels(len(of))
    crossed = _crossed(of, params)
    caption = _caption(x, y, of, crossed, params)
    with canvas.quiet_style():
        figure = canvas.sheet(params.width or WIDTH, params.height or HEIGHT)
        axes = figure.add_subplot()
        _set_axes(axes, of, x, y, params)
        for number, one in enumerate(of):
            _draw(axes, one, number, params)
        for row in crossed if len(crossed) <= MOST else ():
            axes.axvline(row["crossover"], color="0.45", linewidth=0.8, linestyle=":")
        canvas.compose(
            figure,
            title=params.title,
            handles=[_handle(n) for n in range(len(of))],
            labels=[_told(one, params) for one in of],
            label_name=params.label or "",
            caption=caption,
        )
        files = canvas.pictures(figure)
    return Outcome({**files, "caption": np.array(caption), **_numbers(of, params)})


def _crossed(
    of: Sequence[FittedLaw], params: ScalingFigureParams
) -> list[Mapping[str, Any]]:
    if not params.crossovers:
        return []
    return [row for row in crossings(of, params.confidence) if row["inside"]]


def _numbers(of: Sequence[FittedLaw], params: ScalingFigureParams) -> dict[str, Array]:
    ends = [one.law.limits(params.confidence) for one in of]
    counts = ("diverged", "nonpositive", "nonfinite")
    labels = [str(one.series.label) for one in of for _ in one.series.points]
    return {
        "law": np.array([str(one.series.label) for one in of]),
        "exponent": np.array([one.law.exponent for one in of]),
        "low": np.array([low for low, _ in ends]),
        "high": np.array([high for _, high in ends]),
        "prefactor": np.array([float(one.law.at(np.ones(1))[0]) for one in of]),
        "count": np.array([len(one.series.points) for one in of], np.int64),
        **{n: np.array([getattr(f.series, n) for f in of], np.int64) for n in counts},
        "point_label": np.array(labels, str),
        "x": np.concatenate([one.series.x for one in of]),
        "y": np.concatenate([one.series.y for one in of]),
    }


def _told(one: FittedLaw, params: ScalingFigureParams) -> str:
    """Return label, exponent and half its interval, such as `sgd: -0.50 ± 0.02`."""
    label = f"{one.series.label}: " if params.label else "exponent "
    if np.isnan(one.law.exponent):
        return f"{label}{_nothing(one)}"
    _, high = one.law.limits(params.confidence)
    half = high - one.law.exponent
    if not half > 0:
        return f"{label}{_signed(f'{one.law.exponent:.3g}')}"
    # Two digits of the error, as many decimals of the exponent.
    decimals = max(0, 1 - math.floor(math.log10(half)))
    exponent = _signed(f"{one.law.exponent:.{decimals}f}")
    return f"{label}{exponent} \u00b1 {half:.{decimals}f}"


def _nothing(one: FittedLaw) -> str:
    series = one.series
    if series.diverged == series.nodes > 0:
        return f"all {series.nodes} diverged"
    return "fewer than two x"


def _signed(text: str) -> str:
    return text.replace("-", MINUS)


def _caption(
    x: Measurement | None,
    y: Measurement,
    of: Sequence[FittedLaw],
    crossed: Sequence[Mapping[str, Any]],
    params: ScalingFigureParams,
) -> str:
    counts = [len(one.series.points) for one in of if one.series.points]
    least, most = min(counts, default=0), max(counts, default=0)
    n = f"n = {most}" if least == most else f"n = {least} to {most}"
    level = f"{100 * params.confidence:g} %"
    notes = [
        f"Lines: least squares of log y on log x, {n}{_held(y, params)}; "
        f"legend: exponent \u00b1 half of Student's {level} interval."
    ]
    if params.band:
        notes.append(f"Band: {level} interval of the line.")
    notes += _crossing_sentences(crossed, level)
    notes += captions.left_out(
        [ValueGroup(f.series.label, f.series.nodes, f.series.diverged) for f in of]
    )
    for name, word in (("nonpositive", "At or below 0"), ("nonfinite", "Not finite")):
        if total := sum(getattr(one.series, name) for one in of):
            notes.append(f"{word}, left out: {counted(total, 'point')}.")
    notes += captions.unconverged([y] if x is None else [x, y])
    return " ".join(notes)


def _held(y: Measurement, params: ScalingFigureParams) -> str:
    parts = {params.along, params.label, *(params.over or ()), *params.each}
    held = [f"{a} = {x}" for a, x in y.nodes[0].coords.items() if a not in parts]
    return f", at {', '.join(held)}" if held else ""


def _crossing_sentences(
    crossed: Sequence[Mapping[str, Any]], level: str
) -> Iterator[str]:
    if len(crossed) > MOST:
        yield f"Inside the points {len(crossed)} pairs of lines cross."
        return
    for row in crossed:
        ends = row["crossover_low"], row["crossover_high"]
        if math.isnan(ends[0]):
            interval = "no interval"
        elif ends == UNBOUNDED:
            interval = f"{level} interval without end"
        else:
            low, high = map(_short, ends)
            interval = f"{level} interval {low} to {high}"
        at = _short(row["crossover"])
        yield f"Dotted: {row['crossing']} cross at {at}, {interval}."


def _short(value: float) -> str:
    rounded = float(f"{value:.2e}")
    if 1e-3 <= value < 1e5:
        return np.format_float_positional(rounded, trim="-")
    return captions.short(rounded)


def _set_axes(
    axes: Axes,
    of: Sequence[FittedLaw],
    x: Measurement | None,
    y: Measurement,
    params: ScalingFigureParams,
) -> None:
    axes.grid(visible=True)
    axes.set_ylabel(captions.axis_label(y))
    words = canvas.literal(str(params.along).replace("_", " "))
    axes.set_xlabel(captions.axis_label(x) if x else words)
    for axis, values in (
        ("x", np.concatenate([one.series.x for one in of])),
        ("y", _heights(of, params)),
    ):
        axes.set(**{f"{axis}scale": "log"})
        low, high = (values.min(), values.max()) if len(values) else (1.0, 10.0)
        room = max(MARGIN, float(high / low) ** 0.05)
        axes.set(**{f"{axis}lim": (low / room, high * room)})
    _set_ticks(axes, of, params)
    canvas.set_log_ticks(axes.yaxis)
    if not any(one.series.points for one in of):
        say_no_values(axes)


def _heights(of: Sequence[FittedLaw], params: ScalingFigureParams) -> Array:
    """Return the y of all points and of the ends of what is drawn through them.

    A band of few points may have next to no end, so it is cut a factor of ten beyond
    its line.
    """
    found = [np.zeros(0), *(one.series.y for one in of)]
    for one in of:
        if np.isnan(one.law.exponent):
            continue
        ends = np.array([one.series.x.min(), one.series.x.max()])
        line = one.law.at(ends)
        found.append(line)
        low, high = one.law.band(ends, params.confidence)
        if params.band and np.isfinite(low).all():
            found += [np.maximum(low, line / 10), np.minimum(high, 10 * line)]
    return np.concatenate(found)


def _set_ticks(
    axes: Axes, of: Sequence[FittedLaw], params: ScalingFigureParams
) -> None:
    places = np.unique(np.concatenate([one.series.x for one in of]))
    if params.along is None or not 0 < len(places) <= FEW:
        canvas.set_log_ticks(axes.xaxis)
        return
    axes.set_xticks(places, [f"{place:g}" for place in places])
    axes.set_xticks([], minor=True)


def _draw(axes: Axes, one: FittedLaw, number: int, params: ScalingFigureParams) -> None:
    series, law = one.series, one.law
    if not series.points:
        return
    tone = canvas.colour(number)
    small = len(series.points) > MANY
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
    axes.plot(x, law.at(x), color=tone, linewidth=1.2, linestyle=canvas.dash(number))
    low, high = law.band(x, params.confidence)
    if params.band and np.isfinite(low).all():
        axes.fill_between(x, low, high, color=tone, alpha=0.18, linewidth=0)


def _handle(number: int) -> Line2D:
    return Line2D(
        [],
        [],
        color=canvas.colour(number),
        linestyle=canvas.dash(number),
        linewidth=1.2,
        marker=SHAPES[number % len(SHAPES)],
        markersize=3,
    )
