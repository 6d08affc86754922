"""Horizontal bars of means with error bars, a panel per variable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from curvflow.errors import InputError
from curvflow.schemas.kinds.figures.bars import BarsParams
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.drawing import canvas, captions
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.statistics.descriptive import statistics
from curvflow.tasks.statistics.label_groups import ValueGroup, selected, value_groups
from curvflow.tasks.statistics.measurements import (
    Measurement,
    find_measurement,
    without_doubtful,
)

WIDTHS = (88.0, 130.0, 180.0)  # mm, by number of columns
FRAME, BAR = 15.0, 7.0  # mm: a panel's axis, and each of its bars
SPREAD = 0.3  # half width over which single values are spread across a bar
ERROR_BAR: dict[str, Any] = {
    "color": "0.1",
    "linewidth": 0.9,
    "marker": "|",
    "markersize": 4,
}
BAR_EDGE = [withStroke(linewidth=1.7, foreground="white")]  # of error bars
DARK = "#000000"  # colour of bars whose error bars are white
CIRCLE_STYLE: dict[str, Any] = {
    "linestyle": "",
    "marker": "o",
    "markersize": 2.6,
    "markerfacecolor": "white",
    "markeredgecolor": "0.25",
    "markeredgewidth": 0.5,
}


@computes_each("figure.bars")
def figure_bars(member: Member, machine: Machine) -> Outcome:
    """Draw the means of variables with error bars, a panel each, a bar per label.

    Bars are horizontal, so that labels of any length can be read. On a logarithmic
    axis, which has no zero for bars to start from, a dot stands for the mean.

    Args:
        member: nodes of the stages that measure y; means exclude diverged nodes, whose
            numbers labels and caption state.
        machine: not used.

    Returns:
        The files `png`, `svg` and `pdf`, the caption, and the drawn numbers.

    Raises:
        InputError: the stages lack y, label or a selected label, there are more labels
            than colours, or a logarithmic axis cannot show any value.
    """
    params = member.params
    assert isinstance(params, BarsParams)
    panels = [
        selected(find_measurement("y", name, member.inputs["of"]), params.select)
        for name in params.y
    ]
    whole = _grid(panels, params.label)
    grid = _grid(
        [without_doubtful(panel, params.unconverged) for panel in panels], params.label
    )
    canvas.check_labels(len(grid[0]))
    numbers = _numbers(panels, grid, params.error)
    caption = captions.with_absent(_caption(panels, whole, numbers, params), member)
    with canvas.default_style():
        figure = _new_figure(params, len(panels), len(grid[0]))
        for number, (measurement, groups) in enumerate(zip(panels, grid, strict=True)):
            part = {name: numbers[name][number] for name in ("mean", "low", "high")}
            _draw_panel(figure.axes[number], measurement, groups, part, params)
        canvas.compose(figure, title=params.title, caption=caption)
        files = canvas.pictures(figure)
    return Outcome({**files, "caption": np.array(caption), **numbers})


def _grid(panels: Sequence[Measurement], label: str | None) -> list[list[ValueGroup]]:
    """Return the label groups of each panel, with the same labels in all panels."""
    tables = [
        {g.label: g for g in value_groups(measurement, label=label)}
        for measurement in panels
    ]
    labels = list(dict.fromkeys(name for table in tables for name in table))
    return [[table.get(name, ValueGroup(name)) for name in labels] for table in tables]


def _numbers(
    panels: Sequence[Measurement], grid: Sequence[Sequence[ValueGroup]], error: str
) -> dict[str, Array]:
    rows = [[statistics(g.matrix([""])[:, 0]) for g in groups] for groups in grid]
    ends = [[s.ends(error) for s in row] for row in rows]
    return {
        "quantity": np.array([s.variable.name for s in panels]),
        "label": np.array([str(group.label) for group in grid[0]]),
        "mean": np.array([[s.mean for s in row] for row in rows]),
        "low": np.array([[low for low, _ in row] for row in ends]),
        "high": np.array([[high for _, high in row] for row in ends]),
        "count": np.array([[s.count for s in row] for row in rows], np.int64),
        "diverged": np.array(
            [[g.diverged for g in groups] for groups in grid], np.int64
        ),
    }


def _caption(
    panels: Sequence[Measurement],
    grid: Sequence[Sequence[ValueGroup]],
    numbers: Mapping[str, Array],
    params: BarsParams,
) -> str:
    counts = [int(n) for n in numbers["count"].flat if n]
    text = captions.average_text(panels[0], counts, (params.label,))
    if np.isfinite(numbers["low"]).any():
        text += f"; bars: {captions.SPREADS[params.error]}"
    if params.points:
        text += "; circles: single values"
    notes = dict.fromkeys(
        note for groups in grid for note in captions.left_out_sentences(groups)
    )
    notes.update(
        dict.fromkeys(captions.unconverged_sentences(panels, params.unconverged))
    )
    notes.update(dict.fromkeys(captions.hold_sentences(panels)))
    hidden = int((numbers["mean"] <= 0).sum()) if params.log_y else 0
    notes.update(dict.fromkeys(captions.off_scale_sentences(hidden, "mean")))
    if params.log_y and (numbers["low"][numbers["mean"] > 0] <= 0).any():
        notes["Bars that reach 0 run off the axis."] = None
    return " ".join([f"{text}.", *notes])


def _new_figure(params: BarsParams, panels: int, labels: int) -> Figure:
    columns = min(panels, len(WIDTHS))
    rows = -(-panels // columns)
    height = rows * (FRAME + BAR * labels)
    figure = canvas.new_figure(
        params.width or WIDTHS[columns - 1], params.height or height
    )
    for number in range(panels):
        first = figure.axes[number - number % columns] if number % columns else None
        figure.add_subplot(rows, columns, number + 1, sharey=first)
    return figure


def _draw_panel(
    axes: Axes,
    measurement: Measurement,
    groups: Sequence[ValueGroup],
    numbers: Mapping[str, Array],
    params: BarsParams,
) -> None:
    axes.grid(visible=True, axis="x")
    axes.set_xlabel(captions.axis_label(measurement, break_line=True))
    axes.set_ylim(len(groups) - 0.5, -0.5)
    _name_bars(axes, groups, params.label)
    values = [group.matrix([""])[:, 0] for group in groups]
    if params.log_y:
        _set_log(
            axes,
            measurement,
            numbers,
            np.concatenate(values) if params.points else None,
        )
    else:
        axes.xaxis.set_major_locator(canvas.round_ticks(4))
        axes.axvline(0, color="0.3", linewidth=0.6)
    for place in range(len(groups)):
        bar = {name: float(column[place]) for name, column in numbers.items()}
        _draw_bar(axes, place, bar)
        if params.points:
            _draw_points(axes, place, values[place])
    _draw_reasons(axes, groups, numbers["mean"])


def _set_log(
    axes: Axes,
    measurement: Measurement,
    numbers: Mapping[str, Array],
    values: Array | None,
) -> None:
    mean, low, high = (numbers[name] for name in ("mean", "low", "high"))
    if np.isfinite(mean).any() and not (mean > 0).any():
        raise InputError(
            f"log_y: expected positive values of {measurement.variable.name}, got "
            "none. "
            "Set it to false."
        )
    axes.set_xscale("log")
    left, right = canvas.log_limits(mean, low, high)
    if values is not None and (values > 0).any():
        left = min(left, 0.8 * values[values > 0].min())
        right = max(right, 1.25 * values[values > 0].max())
    axes.set_xlim(left, right)
    canvas.set_log_ticks(axes.xaxis)


def _draw_reasons(axes: Axes, groups: Sequence[ValueGroup], means: Array) -> None:
    """Write the reason for a missing bar in its place, next to the line of zero.

    It comes last, since the drawn bars decide the position of zero.
    """
    is_log = axes.get_xscale() == "log"
    left, right = axes.get_xlim()
    zero = 0.0 if is_log else min(max(-left / (right - left), 0.0), 1.0)
    side = 1 if zero < 0.5 else -1
    for place, (group, mean) in enumerate(zip(groups, means, strict=True)):
        if np.isnan(mean) or (is_log and mean <= 0):
            axes.text(
                zero + 0.03 * side,
                place,
                captions.missing_reason(group) if np.isnan(mean) else "not positive",
                transform=axes.get_yaxis_transform(),
                ha="left" if side > 0 else "right",
                va="center",
                size=7,
                color="0.35",
            )


def _draw_bar(axes: Axes, place: int, bar: Mapping[str, float]) -> None:
    is_log = axes.get_xscale() == "log"
    if np.isnan(bar["mean"]) or (is_log and bar["mean"] <= 0):
        return
    tone = canvas.label_colour(place)
    if is_log:
        axes.plot(bar["mean"], place, "o", color=tone, markersize=5)
    else:
        (body,) = axes.barh(place, bar["mean"], height=0.62, color=tone)
    if not np.isfinite(bar["low"]):
        return
    low = max(bar["low"], axes.get_xlim()[0]) if is_log else bar["low"]
    ends, edge = [low, bar["high"]], [] if is_log and tone != DARK else BAR_EDGE
    axes.plot(ends, [place, place], path_effects=edge, **ERROR_BAR)
    if tone == DARK and not is_log:
        within = {**ERROR_BAR, "color": "white"}
        (line,) = axes.plot(ends, [place, place], **within)
        line.set_clip_path(body)


def _draw_points(axes: Axes, place: int, values: Array) -> None:
    if axes.get_xscale() == "log":  # below the dot, which they would cover
        lanes = np.full(len(values), SPREAD)
    else:
        lanes = np.linspace(-SPREAD, SPREAD, len(values) + 2)[1:-1]
    axes.plot(values, place + lanes, **CIRCLE_STYLE)


def _name_bars(axes: Axes, groups: Sequence[ValueGroup], label: str | None) -> None:
    spec = axes.get_subplotspec()
    is_first = spec is not None and spec.is_first_col()
    names = [canvas.escape_mathtext(group.label) for group in groups]
    axes.set_yticks(range(len(groups)), names)
    axes.tick_params(axis="y", length=0, labelleft=is_first)
    if label is not None and is_first:
        axes.set_ylabel(canvas.escape_mathtext(label))
