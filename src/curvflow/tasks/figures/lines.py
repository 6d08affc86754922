"""Curves of means with error bands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation, Transform

from curvflow.errors import InputError
from curvflow.schemas.kinds.figures.lines import LinesParams
from curvflow.schemas.nodes import Array, Label, Member, Outcome
from curvflow.tasks.drawing import canvas, captions, scales
from curvflow.tasks.drawing.captions import draw_no_values
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.statistics.descriptive import statistics
from curvflow.tasks.statistics.label_groups import (
    ValueGroup,
    are_numbers,
    selected,
    value_groups,
    x_labels,
)
from curvflow.tasks.statistics.measurements import (
    Measurement,
    doubts,
    find_measurement,
    without_doubtful,
)

WIDTH, HEIGHT = 88.0, 56.0  # mm; a journal's column
MAX_MARKED = 12  # points of a curve with single markers
FRAME = 16.0  # mm, approximate width around the panel
MARGIN = 0.05  # of the data on either side, Matplotlib's default
BESIDE = 5.0  # points between curves of a single x
MAX_LETTERS = 40  # letters of x labels that fit without rotation


@computes_each("figure.lines")
def figure_lines(member: Member, machine: Machine) -> Outcome:
    """Draw the mean of a variable against x, a curve and a band per label.

    Args:
        member: nodes of the stage that measures y; curves exclude diverged nodes, whose
            numbers legend and caption state.
        machine: not used.

    Returns:
        The files `png`, `svg` and `pdf`, the caption, and the drawn numbers.

    Raises:
        InputError: the stages lack y, x, label or a selected label, there are more
            labels than colours, or a logarithmic axis cannot show any value.
    """
    params = member.params
    assert isinstance(params, LinesParams)
    y = find_measurement("y", params.y, member.inputs["of"])
    y = selected(y, params.select)
    whole, groups, flags = (
        value_groups(measurement, label=params.label, x=params.x)
        for measurement in (y, without_doubtful(y, params.unconverged), doubts(y))
    )
    canvas.check_labels(len(groups))
    xs = x_labels(y, params.x, groups)
    numbers = _numbers(groups, xs, params.band) | {
        "unconverged": _num_unconverged(groups, flags, xs)
    }
    shown = _shown(numbers, params)
    limits = _limits(numbers, shown, params)
    caption = captions.with_absent(
        _caption(y, whole, numbers, shown, limits, params), member
    )
    with canvas.default_style():
        figure = canvas.new_figure(params.width or WIDTH, params.height or HEIGHT)
        axes = figure.add_subplot()
        _set_axes(axes, y, numbers, limits, params)
        if not are_numbers(xs):
            _name_ticks(axes, xs)
        _draw(axes, numbers, shown, params)
        canvas.compose(
            figure,
            title=params.title,
            handles=[_handle(n) for n in range(len(groups))] if params.label else [],
            labels=[captions.legend_label(group) for group in groups],
            label_name=params.label or "",
            caption=caption,
        )
        files = canvas.pictures(figure)
    return Outcome({**files, "caption": np.array(caption), **numbers})


def _numbers(
    groups: Sequence[ValueGroup], xs: Sequence[Label], band: str
) -> dict[str, Array]:
    rows = [statistics(group.matrix(xs)) for group in groups]
    ends = [s.ends(band) for s in rows]
    places = xs if are_numbers(xs) else range(len(xs))
    return {
        "curve": np.array([str(group.label) for group in groups]),
        "diverged": np.array([group.diverged for group in groups], dtype=np.int64),
        "x": np.array(places, dtype=np.float64),
        "x_label": np.array([str(x) for x in xs]),
        "mean": np.stack([s.mean for s in rows]),
        "low": np.stack([low for low, _ in ends]),
        "high": np.stack([high for _, high in ends]),
        "count": np.stack([s.count for s in rows]).astype(np.int64),
    }


def _num_unconverged(
    groups: Sequence[ValueGroup], flags: Sequence[ValueGroup], xs: Sequence[Label]
) -> Array:
    """Count the finite values that are not converged, shape (curve, x)."""
    return np.stack(
        [
            (np.isfinite(group.matrix(xs)) & (flag.matrix(xs) == 1)).sum(axis=0)
            for group, flag in zip(groups, flags, strict=True)
        ]
    ).astype(np.int64)


def _limits(
    numbers: Mapping[str, Array], shown: Array, params: LinesParams
) -> tuple[float, float] | None:
    """Return limits of y that unconverged points do not set; None if none would."""
    if params.unconverged != "mark":
        return None
    mean, low, high = (
        np.where(shown, numbers[name], np.nan) for name in ("mean", "low", "high")
    )
    doubtful = numbers["unconverged"] > 0
    return scales.limits(mean, low, high, doubtful, is_log=params.log_y)


def _shown(numbers: Mapping[str, Array], params: LinesParams) -> Array:
    """Return a mask of the points that the axes can show, shape (curve, x).

    Raises:
        InputError: there are values, but a logarithmic axis cannot show any.
    """
    known = np.isfinite(numbers["mean"])
    shown = known.copy()
    for field, is_log, values in (
        ("log_y", params.log_y, numbers["mean"]),
        ("log_x", params.log_x, numbers["x"]),
    ):
        if is_log:
            shown &= values > 0
            if known.any() and not shown.any():
                name = field.removeprefix("log_")
                raise InputError(
                    f"{field}: expected positive {name}, got none. Set it to false."
                )
    return shown


def _caption(
    y: Measurement,
    groups: Sequence[ValueGroup],
    numbers: Mapping[str, Array],
    shown: Array,
    limits: tuple[float, float] | None,
    params: LinesParams,
) -> str:
    counts = [int(most) for most in numbers["count"].max(axis=1) if most]
    text = captions.average_text(y, counts, (params.x, params.label))
    if np.isfinite(numbers["low"]).any():
        text += f"; band: {captions.SPREADS[params.band]}"
        if _alone(numbers, shown).any():
            text += ", a bar where one point alone has it"
    hidden = int((np.isfinite(numbers["mean"]) & ~shown).sum())
    notes = captions.left_out_sentences(groups)
    notes += captions.unconverged_sentences([y], params.unconverged)
    notes += scales.beyond_sentences([(numbers["mean"][shown], limits)])
    notes += captions.hold_sentences([y])
    notes += captions.off_scale_sentences(hidden, "point")
    if params.log_y and (numbers["low"][shown] <= 0).any():
        notes.append("Where the band reaches 0 it runs off the axis.")
    return " ".join([f"{text}.", *notes])


def _set_axes(
    axes: Axes,
    y: Measurement,
    numbers: Mapping[str, Array],
    limits: tuple[float, float] | None,
    params: LinesParams,
) -> None:
    axes.grid(visible=True, axis="y")
    axes.set_ylabel(captions.axis_label(y))
    axes.set_xlabel(canvas.escape_mathtext(params.x.replace("_", " ")))
    if params.log_x:
        axes.set_xscale("log")
        if len(numbers["x"]) <= MAX_MARKED:  # instead of powers of ten
            width = (params.width or WIDTH) - FRAME
            axes.set_xticks(numbers["x"], _fitting_labels(numbers, width))
            axes.set_xticks([], minor=True)
    elif (numbers["x"] % 1 == 0).all():
        axes.xaxis.set_major_locator(canvas.round_ticks("auto", whole=True))
    if params.log_y:
        axes.set_yscale("log")
        ends = (numbers[name] for name in ("mean", "low", "high"))
        axes.set_ylim(*(limits or canvas.log_limits(*ends)))
        canvas.set_log_ticks(axes.yaxis)
    elif limits:
        axes.set_ylim(*limits)


def _fitting_labels(numbers: Mapping[str, Array], width: float) -> list[str]:
    """Return labels of a logarithmic axis, empty where they would overlap.

    Every n-th label stays, counted from the last.

    Args:
        numbers: `x`, ascending, and `x_label`.
        width: width of the panel in mm.

    Returns:
        A label for each x.
    """
    names = [canvas.escape_mathtext(name) for name in numbers["x_label"]]
    shown = np.flatnonzero(numbers["x"] > 0)[::-1]
    places = np.log(numbers["x"][shown])
    span = float(np.ptp(places)) or 1.0
    at = places / span * width * canvas.MM / (1 + 2 * MARGIN)
    size = float(canvas.STYLE["xtick.labelsize"])
    half = np.array([canvas.text_width(names[n], size) / 2 for n in shown])
    for stride in range(1, len(shown) + 1):
        kept = slice(None, None, stride)
        gaps = -np.diff(at[kept]) - half[kept][:-1] - half[kept][1:]
        if (gaps >= size / 2 * canvas.POINT).all():
            return [name if n in shown[kept] else "" for n, name in enumerate(names)]
    return names


def _name_ticks(axes: Axes, xs: Sequence[Label]) -> None:
    names = [canvas.escape_mathtext(x) for x in xs]
    tilt: dict[str, Any] = {}
    if sum(map(len, names)) > MAX_LETTERS:
        tilt = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"}
    axes.set_xticks(range(len(names)), names, **tilt)


def _draw(
    axes: Axes, numbers: Mapping[str, Array], shown: Array, params: LinesParams
) -> None:
    if not shown.any():
        draw_no_values(axes)
    floor = axes.get_ylim()[0] if axes.get_yscale() == "log" else -np.inf
    alone = _alone(numbers, shown)
    for number, where in enumerate(shown):
        x, mean, low, high = (
            values[..., where]
            for values in (
                numbers["x"],
                *(numbers[name][number] for name in ("mean", "low", "high")),
            )
        )
        low, colour = np.maximum(low, floor), canvas.label_colour(number)
        axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
        bars, beside = alone[number, where], _beside(axes, number, shown)
        ends = x[bars], low[bars], high[bars]
        axes.vlines(*ends, color=colour, linewidth=0.8, transform=beside)
        line = _handle(number, marker="o" if where.sum() <= MAX_MARKED else "")
        line.set_data(x, mean)
        axes.add_line(line)  # the limits are those of the data
        line.set_transform(beside)
    axes.autoscale_view()
    if params.unconverged == "mark":
        _mark_doubtful(axes, numbers, shown)


def _alone(numbers: Mapping[str, Array], shown: Array) -> Array:
    """Return the points whose band has no width, by themselves, shape (curve, x)."""
    alone = np.zeros_like(shown)
    for number, where in enumerate(shown):
        around = np.pad(np.isfinite(numbers["low"][number, where]), 1)
        alone[number, where] = around[1:-1] & ~around[:-2] & ~around[2:]
    return alone


def _beside(axes: Axes, number: int, shown: Array) -> Transform:
    """Return the transform of a curve: of a single x, it stands apart from others."""
    curves, points = shown.shape
    if points > 1:
        return axes.transData
    right = (number - (curves - 1) / 2) * BESIDE * canvas.POINT
    return axes.transData + ScaledTranslation(right, 0, axes.figure.dpi_scale_trans)


def _mark_doubtful(axes: Axes, numbers: Mapping[str, Array], shown: Array) -> None:
    """Draw unconverged points hollow, those beyond the axis at its edge."""
    for number, where in enumerate(shown & (numbers["unconverged"] > 0)):
        x, mean = numbers["x"][where], numbers["mean"][number, where]
        inside = scales.beyond(mean, axes.get_ylim()) == 0
        line = _handle(number, marker="o")
        line.set(**scales.HOLLOW, zorder=3, transform=_beside(axes, number, shown))
        line.set_data(x[inside], mean[inside])
        axes.add_line(line)
    curves, points = np.nonzero(shown)
    colours = [canvas.label_colour(number) for number in curves.tolist()]
    drawn = numbers["x"][points], numbers["mean"][curves, points]
    scales.draw_at_edges(axes, *drawn, colours)


def _handle(number: int, marker: str = "") -> Line2D:
    return Line2D(
        [],
        [],
        color=canvas.label_colour(number),
        linestyle=canvas.label_dash(number),
        linewidth=1.2,
        marker=marker,
        markersize=2.5,
    )
