"""Scatter plot of two measured numbers, with line and rank correlation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from curvflow.errors import InputError
from curvflow.schemas.kinds.figures.scatter import ScatterParams
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.schemas.words import counted
from curvflow.tasks.drawing import canvas, captions, scales
from curvflow.tasks.drawing.captions import draw_no_values
from curvflow.tasks.drawing.scatter_data import (
    Series,
    find_series,
    point_columns,
    series_sentences,
    trend_columns,
    trend_sentences,
)
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.statistics.label_groups import ValueGroup
from curvflow.tasks.statistics.measurements import Measurement
from curvflow.tasks.statistics.pairs import Point, paired_points

WIDTH, HEIGHT = 88.0, 66.0  # mm; a journal's column
SHAPES = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
MANY_POINTS = 60  # points above which they are drawn smaller
BAR_COLUMNS = ("x", "x_low", "x_high", "y", "y_low", "y_high")


@computes_each("figure.scatter")
def figure_scatter(member: Member, machine: Machine) -> Outcome:
    """Draw one variable against another, a point per node or per mean.

    Args:
        member: nodes of the one or two stages that measure x and y, or of stages that
            each measure both; points exclude diverged nodes, whose numbers legend and
            caption state.
        machine: not used.

    Returns:
        The files `png`, `svg` and `pdf`, the caption, and the drawn numbers.

    Raises:
        InputError: the stages lack x, y, label, marker or each, there are more labels
            than colours or markers, or a logarithmic axis cannot show any value.
    """
    params = member.params
    assert isinstance(params, ScatterParams)
    all_series = find_series(params, member.inputs["of"])
    points = _points(all_series, params)
    colours, shapes = _groups(points, params.label), _groups(points, params.marker)
    _check_counts(len(colours), len(shapes), has_marker=params.marker is not None)
    numbers = point_columns(points, params)
    shown = _shown(numbers, params)
    trend = trend_columns(numbers["x"][shown], numbers["y"][shown], params)
    limits = _limits(numbers, shown, params)
    caption = captions.with_absent(
        _caption(
            all_series, [*colours.values()], numbers, shown, limits, trend, params
        ),
        member,
    )
    with canvas.default_style():
        figure = canvas.new_figure(params.width or WIDTH, params.height or HEIGHT)
        axes = figure.add_subplot()
        _set_axes(axes, all_series, numbers, shown, limits, params)
        _draw(axes, numbers, shown, _marker_styles(points, params))
        if params.line:
            _draw_line(axes, numbers["x"][shown], trend, params)
        handles, labels, name = _legend(colours, shapes, params)
        canvas.compose(
            figure,
            title=params.title,
            handles=handles,
            labels=labels,
            label_name=name,
            caption=caption,
        )
        files = canvas.pictures(figure)
    return Outcome({**files, "caption": np.array(caption), **numbers, **trend})


def _points(all_series: Sequence[Series], params: ScatterParams) -> list[Point]:
    """Return the points of all series, of converged nodes alone where that is asked."""
    points = [
        point
        for series in all_series
        for point in paired_points(series.x, series.y, params.parts)
    ]
    if params.unconverged == "exclude":
        return [point.converged_only() for point in points]
    return points


def _groups(points: Sequence[Point], axis: str | None) -> dict[str, ValueGroup]:
    """Return the values of each label of an axis, by the label's text."""
    groups: dict[str, ValueGroup] = {}
    for point in points:
        label = point.text(axis)
        group = groups.setdefault(label, ValueGroup(label))
        group.nodes += point.nodes
        group.diverged += point.diverged
        group.rows += [([], np.array(pair)) for pair in point.values]
    return groups


def _check_counts(colours: int, shapes: int, *, has_marker: bool) -> None:
    if not has_marker:
        canvas.check_labels(colours)
        return
    for role, count, most in (
        ("label", colours, len(canvas.PALETTE)),
        ("marker", shapes, len(SHAPES)),
    ):
        if count > most:
            raise InputError(
                f"{role}: expected at most {most} labels in a figure with label and "
                f"marker, got {count}. Exchange the two, or choose an axis with fewer."
            )


def _shown(numbers: Mapping[str, Array], params: ScatterParams) -> Array:
    """Return a mask of the points that the axes can show, shape (point,).

    Raises:
        InputError: there are values, but a logarithmic axis cannot show any.
    """
    known = np.isfinite(numbers["x"]) & np.isfinite(numbers["y"])
    shown = known.copy()
    for axis, is_log in (("x", params.log_x), ("y", params.log_y)):
        if is_log:
            shown &= numbers[axis] > 0
            if known.any() and not shown.any():
                raise InputError(
                    f"log_{axis}: expected positive {axis}, got none. Set it to false."
                )
    return shown


Limits = tuple[float, float] | None


def _limits(
    numbers: Mapping[str, Array], shown: Array, params: ScatterParams
) -> dict[str, Limits]:
    """Return limits of x and y that unconverged points do not set; None if none would.

    Args:
        numbers: columns of the points.
        shown: the points drawn.
        params: scales of the axes.

    Returns:
        Limits by axis.
    """
    if params.unconverged != "mark":
        return {"x": None, "y": None}
    doubtful = numbers["unconverged"] > 0
    is_log = {"x": params.log_x, "y": params.log_y}
    limits = {}
    for axis in "xy":
        mean, low, high = (
            np.where(shown, numbers[axis + side], np.nan)
            for side in ("", "_low", "_high")
        )
        limits[axis] = scales.limits(mean, low, high, doubtful, is_log=is_log[axis])
    return limits


def _caption(
    all_series: Sequence[Series],
    colours: Sequence[ValueGroup],
    numbers: Mapping[str, Array],
    shown: Array,
    limits: Mapping[str, Limits],
    trend: Mapping[str, Array],
    params: ScatterParams,
) -> str:
    counts = [int(n) for n in numbers["count"] if n]
    every = Measurement(
        all_series[0].y.variable,
        [node for series in all_series for node in series.y.nodes],
    )
    text = captions.average_text(every, counts, params.parts)
    text = f"{counted(int(shown.sum()), 'point')}; {text[0].lower()}{text[1:]}"
    if np.isfinite(numbers["x_low"][shown]).any():
        text += f"; bars: {captions.SPREADS[params.error]}"
    notes = [f"{text}.", *series_sentences(all_series, params)]
    if params.normalise == "max":
        within = f" of the same {', '.join(params.within)}" if params.within else ""
        notes.append(f"Largest: the largest magnitude among points{within}.")
    notes += trend_sentences(trend, int(shown.sum()), params)
    hidden = int((np.isfinite(numbers["x"] + numbers["y"]) & ~shown).sum())
    notes += captions.left_out_sentences(colours)
    drawn = [axis for series in all_series for axis in (series.x, series.y)]
    notes += captions.unconverged_sentences(drawn, params.unconverged)
    notes += scales.beyond_sentences([(numbers[a][shown], limits[a]) for a in "xy"])
    notes += captions.hold_sentences(drawn)
    notes += captions.off_scale_sentences(hidden, "point")
    if _has_bars_off_axis(numbers, shown, params):
        notes.append("Bars that reach 0 run off the axis.")
    return " ".join(notes)


def _has_bars_off_axis(
    numbers: Mapping[str, Array], shown: Array, params: ScatterParams
) -> bool:
    return any(
        getattr(params, f"log_{axis}") and (numbers[f"{axis}_low"][shown] <= 0).any()
        for axis in "xy"
    )


def _axis_label(all_series: Sequence[Series], role: str, params: ScatterParams) -> str:
    names = dict.fromkeys(series.axis_text(role, params) for series in all_series)
    return canvas.escape_lines([*names])


def _set_axes(
    axes: Axes,
    all_series: Sequence[Series],
    numbers: Mapping[str, Array],
    shown: Array,
    limits: Mapping[str, Limits],
    params: ScatterParams,
) -> None:
    axes.grid(visible=True)
    axes.margins(0.06)
    axes.set_xlabel(_axis_label(all_series, "x", params))
    axes.set_ylabel(_axis_label(all_series, "y", params))
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        if getattr(params, f"log_{name}"):
            mean, low, high = (
                numbers[name + side][shown] for side in ("", "_low", "_high")
            )
            # A point without an error bar needs no room for one.
            low = np.where(np.isnan(low), mean, low)
            ends = limits[name] or canvas.log_limits(mean, low, high)
            axes.set(**{f"{name}scale": "log", f"{name}lim": ends})
            canvas.set_log_ticks(axis)
        elif limits[name]:
            axes.set(**{f"{name}lim": limits[name]})


def _marker_styles(
    points: Sequence[Point], params: ScatterParams
) -> list[dict[str, Any]]:
    colours = list(dict.fromkeys(point.text(params.label) for point in points))
    shapes = list(dict.fromkeys(point.text(params.marker) for point in points))
    size = 3.2 if len(points) > MANY_POINTS else 4.4
    looks = []
    for point in points:
        colour = colours.index(point.text(params.label))
        shape = shapes.index(point.text(params.marker)) if params.marker else None
        look = _marker_style(colour, shape, size)
        if params.unconverged == "mark" and point.num_unconverged:
            look |= scales.HOLLOW | {"markeredgecolor": look["color"]}
        looks.append(look)
    return looks


def _marker_style(colour: int, shape: int | None, size: float = 4.4) -> dict[str, Any]:
    # Without a second axis the shape repeats the colour, for print in grey.
    number = colour if shape is None else shape
    return {
        "color": canvas.label_colour(colour),
        "marker": SHAPES[number % len(SHAPES)],
        "markersize": size,
        "markeredgecolor": "white",
        "markeredgewidth": 0.4,
        "linestyle": "",
    }


def _draw(
    axes: Axes,
    numbers: Mapping[str, Array],
    shown: Array,
    looks: Sequence[Mapping[str, Any]],
) -> None:
    if not shown.any():
        draw_no_values(axes)
    for number in np.flatnonzero(shown).tolist():
        point = {name: float(numbers[name][number]) for name in BAR_COLUMNS}
        thin = {"color": looks[number]["color"], "linewidth": 0.7, "zorder": 2}
        left, bottom = (
            np.fmax(point[f"{axis}_low"], limits[0] if is_log else -np.inf)
            for axis, limits, is_log in (
                ("x", axes.get_xlim(), axes.get_xscale() == "log"),
                ("y", axes.get_ylim(), axes.get_yscale() == "log"),
            )
        )
        axes.plot([left, point["x_high"]], [point["y"], point["y"]], **thin)
        axes.plot([point["x"], point["x"]], [bottom, point["y_high"]], **thin)
        axes.plot(point["x"], point["y"], zorder=3, **looks[number])
    scales.draw_at_edges(
        axes,
        numbers["x"][shown],
        numbers["y"][shown],
        [
            look["color"]
            for look, is_shown in zip(looks, shown, strict=True)
            if is_shown
        ],
    )


def _draw_line(
    axes: Axes, x_N: Array, trend: Mapping[str, Array], params: ScatterParams
) -> None:
    if np.isnan(trend["slope"]):
        return
    ends = np.array([x_N.min(), x_N.max()])
    y = trend["intercept"] + trend["slope"] * (np.log10(ends) if params.log_x else ends)
    # The line must not stretch the axes beyond the points.
    axes.autoscale(enable=False)
    axes.plot(ends, 10**y if params.log_y else y, color="0.35", linewidth=0.9, zorder=1)


def _legend(
    colours: Mapping[str, ValueGroup],
    shapes: Mapping[str, ValueGroup],
    params: ScatterParams,
) -> tuple[list[Line2D], list[str], str]:
    """Return handles and labels of the legend, and its title."""
    handles: list[Line2D] = []
    labels: list[str] = []
    if params.label:
        first = 0 if params.marker else None
        handles += [
            Line2D([], [], **_marker_style(n, first)) for n in range(len(colours))
        ]
        labels += [captions.legend_label(group) for group in colours.values()]
    if params.marker:
        grey = {"color": "0.45"}
        if params.label:  # a heading between the two
            handles.append(Line2D([], [], linestyle=""))
            labels.append(f"{params.marker}:")
        handles += [
            Line2D([], [], **(_marker_style(0, n) | grey)) for n in range(len(shapes))
        ]
        labels += [*shapes]
    return handles, labels, params.label or params.marker or ""
