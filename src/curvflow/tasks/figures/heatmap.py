"""Heat map of means over two axes, a panel per label."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from curvflow.errors import InputError
from curvflow.schemas.kinds.figures.heatmap import HeatmapParams
from curvflow.schemas.nodes import Array, Label, Member, Outcome
from curvflow.schemas.words import counted, short_number
from curvflow.tasks.drawing import canvas, captions
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.statistics.cells import (
    Labels,
    cells,
    exclusion_counts,
    finite_values,
)
from curvflow.tasks.statistics.descriptive import statistics
from curvflow.tasks.statistics.label_groups import are_numbers
from curvflow.tasks.statistics.measurements import (
    Measurement,
    find_measurement,
    values_along,
    without_doubtful,
)

WIDTHS = (88.0, 150.0, 180.0)  # mm, by number of columns
FRAME, CELL = 16.0, 8.0  # mm: a panel's axis, and each of its rows
LABELS_WIDTH = 22.0  # mm, approximate width of the scale and margins
MAX_LABELS = 60  # rows or columns; more cannot be distinguished
SIZES = (7.0, 6.0, 5.0)  # points, of the means in cells
TILTED, UPRIGHT = 30, 90  # degrees, of long labels below and of many of them
LINE = 1.2  # height of a line of text over its size
COLOUR_MAP = "cividis"  # legible in grey
HATCH = "////"
NO_NODE_COLOUR = "0.88"
MINUS = "\u2212"
MAX_Z, MIN_Z = 1e300, 1e-280  # ends of a scale, beyond which ticks overflow
HATCH_STYLE: dict[str, Any] = {"facecolor": "none", "edgecolor": "0.45", "hatch": HATCH}


@computes_each("figure.heatmap")
def figure_heatmap(member: Member, machine: Machine) -> Outcome:
    """Draw the mean of a variable over two axes, a panel per label.

    Args:
        member: nodes of the stage that measures z; means exclude diverged nodes, and
            their cells are hatched.
        machine: not used.

    Returns:
        The files `png`, `svg` and `pdf`, the caption, and the drawn numbers.

    Raises:
        InputError: the stage lacks z, x, y or label, there are too many labels, or no
            value is positive on a logarithmic scale.
    """
    params = member.params
    assert isinstance(params, HeatmapParams)
    z = _unrolled(find_measurement("z", params.z, member.inputs["of"]))
    numbers = _numbers(without_doubtful(z, params.unconverged), params)
    if params.order == "distance":
        numbers = _by_distance(numbers)
    norm = _norm(numbers["mean"], params)
    caption = captions.with_absent(_caption(z, numbers, params), member)
    with canvas.default_style():
        figure = _new_figure(numbers, params)
        for number, axes in enumerate(figure.axes):
            part = {name: numbers[name][number] for name in COUNTS}
            _draw_panel(axes, part, norm)
            _name_axes(axes, numbers, number, params)
        bar = figure.colorbar(
            mpl.cm.ScalarMappable(norm, COLOUR_MAP), ax=figure.axes, pad=0.02, aspect=25
        )
        bar.set_label(captions.axis_label(z))
        if params.log_z:
            bar.minorticks_off()
            canvas.set_log_ticks(bar.ax.yaxis)
        handles, labels = _legend(numbers)
        canvas.compose(
            figure, title=params.title, caption=caption, handles=handles, labels=labels
        )
        if params.numbers:
            figure.draw_without_rendering()  # places the panels, so that room is known
            _print_means(figure, numbers, norm)
        files = canvas.pictures(figure)
    return Outcome({**files, "caption": np.array(caption), **numbers})


COUNTS = ("mean", "count", "diverged", "nonfinite", "nodes")


def _unrolled(z: Measurement) -> Measurement:
    """Return a variable with dimensions as a number of a node for each of its labels.

    Of diverged nodes, which do not hold it, there are no labels.
    """
    name, dims = z.variable.name, z.variable.dims
    if not dims:
        return z
    nodes = []
    for node in z.ok:
        labels, values = values_along(node, z.variable, dims)
        for place, at in zip(np.ndindex(values.shape), product(*labels), strict=True):
            coords = {**node.coords, **dict(zip(dims, at, strict=True))}
            nodes.append(replace(node, coords=coords, arrays={name: values[place]}))
    return Measurement(replace(z.variable, dims=()), nodes or z.nodes)


def _by_distance(numbers: Mapping[str, Array]) -> dict[str, Array]:
    """Order the labels of both axes by a tree of means of the distances."""
    names, mean = numbers["y"], numbers["mean"].mean(0)
    if sorted(names) != sorted(numbers["x"]) or not np.isfinite(mean).all():
        raise InputError(
            "order: expected a distance of every label of one axis from every label "
            "of the other, got other labels or none. Remove it."
        )
    columns = [numbers["x"].tolist().index(name) for name in names]
    square = mean[:, columns]
    if (np.diag(square) != 0).any() or (square < 0).any():
        raise InputError(
            f"order: expected distances, which are 0 of each label from itself, got "
            f"{square.min():g} to {square.max():g}. Remove it."
        )
    if len(names) < 3:
        return dict(numbers)
    condensed = squareform((square + square.T) / 2, checks=False)
    leaves = leaves_list(linkage(condensed, "average", optimal_ordering=True))
    right = [columns[leaf] for leaf in leaves]
    return {
        **numbers,
        "y": names[leaves],
        "x": numbers["x"][right],
        **{name: numbers[name][:, leaves][:, :, right] for name in COUNTS},
    }


def _numbers(z: Measurement, params: HeatmapParams) -> dict[str, Array]:
    label = [params.label] if params.label else []
    axes = (*label, params.y, params.x)
    rest = [axis for axis in z.nodes[0].coords if axis not in axes]
    grid = cells(z, axes, rest)
    panels = list(dict.fromkeys(place[:-2] for place in grid))
    ys, xs = (_labels(grid, number) for number in (-2, -1))
    shape = len(panels), len(ys), len(xs)
    table = {name: np.zeros(shape, np.int64) for name in COUNTS[1:]}
    table["mean"] = np.full(shape, np.nan)
    for place, row in grid.items():
        cell = panels.index(place[:-2]), ys.index(place[-2]), xs.index(place[-1])
        values = finite_values(row)
        table["mean"][cell] = statistics(values).mean
        counts = {
            "count": len(values),
            "nodes": len(row),
            **exclusion_counts(row, len(row)),
        }
        for name in COUNTS[1:]:
            table[name][cell] = counts[name]
    return {
        "panel": np.array([str(panel[0]) if panel else "" for panel in panels]),
        "x": np.array([str(x) for x in xs]),
        "y": np.array([str(y) for y in ys]),
        **table,
    }


def _labels(grid: Mapping[Labels, object], number: int) -> list[Label]:
    labels = list(dict.fromkeys(place[number] for place in grid))
    if len(labels) > MAX_LABELS:
        role = "x" if number == -1 else "y"
        raise InputError(
            f"{role}: expected at most {MAX_LABELS} labels, got {len(labels)}. Choose "
            "an "
            "axis with fewer."
        )
    if not are_numbers(labels):
        return labels
    # The first row is drawn on top, and numbers increase upwards.
    return sorted(labels, key=float, reverse=number == -2)


def _norm(mean: Array, params: HeatmapParams) -> Normalize:
    shown = mean[np.isfinite(mean)]
    if params.log_z:
        if len(shown) and not (shown > 0).any():
            raise InputError("log_z: expected positive z, got none. Set it to false.")
        shown = shown[shown > 0]
    low, high = (shown.min(), shown.max()) if len(shown) else (1.0, 10.0)
    least = MIN_Z if params.log_z else -MAX_Z
    low, high = np.clip([low, high], least, MAX_Z)
    if low == high:
        low, high = (low / 2, 2 * low) if params.log_z else (low - 0.5, high + 0.5)
    return (LogNorm if params.log_z else Normalize)(float(low), float(high))


def _caption(
    z: Measurement, numbers: Mapping[str, Array], params: HeatmapParams
) -> str:
    counts = [int(n) for n in numbers["count"].flat if n]
    parts = (params.x, params.y, params.label)
    notes = [f"{captions.average_text(z, counts, parts)}."]
    if total := int(numbers["diverged"].sum()):
        whole = int(((numbers["diverged"] > 0) & (numbers["count"] == 0)).sum())
        num_cells = int((numbers["diverged"] > 0).sum())
        text = f"Diverged, left out: {counted(total, 'node')} in {num_cells} of "
        text += counted(numbers["mean"].size, "cell")
        notes.append(f"{text}; {whole} without any value." if whole else f"{text}.")
    if total := _num_nonfinite(z):
        notes.append(f"Not finite, left out: {counted(total, 'value')}.")
    notes += [
        *captions.unconverged_sentences([z], params.unconverged),
        *captions.hold_sentences([z]),
    ]
    if params.log_z:
        hidden = int((numbers["mean"] <= 0).sum())
        notes += captions.off_scale_sentences(hidden, "mean")
    return " ".join(notes)


def _num_nonfinite(z: Measurement) -> int:
    return sum(not np.isfinite(node[z.variable.name]) for node in z.ok)


def _new_figure(numbers: Mapping[str, Array], params: HeatmapParams) -> Figure:
    panels, rows, _ = numbers["mean"].shape
    columns = min(panels, len(WIDTHS))
    lines = -(-panels // columns)
    height = lines * (FRAME + CELL * max(rows, 3))
    figure = canvas.new_figure(
        params.width or WIDTHS[columns - 1], params.height or height
    )
    for number in range(panels):
        figure.add_subplot(lines, columns, number + 1)
    return figure


def _draw_panel(axes: Axes, part: Mapping[str, Array], norm: Normalize) -> None:
    mean = part["mean"]
    is_hidden = ~np.isfinite(mean)
    if isinstance(norm, LogNorm):
        is_hidden |= mean <= 0
    shown = np.ma.masked_array(np.clip(mean, norm.vmin, norm.vmax), is_hidden)
    axes.set_facecolor("white")
    axes.pcolormesh(
        shown, cmap=COLOUR_MAP, norm=norm, edgecolors="white", linewidth=0.8
    )
    rows, columns = part["mean"].shape
    for y, x in np.ndindex(rows, columns):
        if not part["nodes"][y, x]:
            axes.add_patch(
                Rectangle((x, y), 1, 1, facecolor=NO_NODE_COLOUR, edgecolor="white")
            )
        elif part["diverged"][y, x] or part["nonfinite"][y, x]:
            hatched = (
                {**HATCH_STYLE, "edgecolor": "white"}
                if part["count"][y, x]
                else HATCH_STYLE
            )
            axes.add_patch(Rectangle((x, y), 1, 1, linewidth=0, **hatched))
    axes.set(xlim=(0, columns), ylim=(rows, 0))


def _name_axes(
    axes: Axes, numbers: Mapping[str, Array], number: int, params: HeatmapParams
) -> None:
    spec = axes.get_subplotspec()
    is_first = spec is None or spec.is_first_col()
    for role, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        names = [canvas.escape_mathtext(name) for name in numbers[role]]
        axis.set_ticks(np.arange(len(names)) + 0.5, names)
        axis.set_tick_params(length=0)
    if degrees := _tilt(numbers, params):
        axes.set_xticks(
            axes.get_xticks(),
            [label.get_text() for label in axes.get_xticklabels()],
            rotation=degrees,
            va="center" if degrees == UPRIGHT else "top",
            ha="right",
            rotation_mode="anchor",
        )
    axes.spines[:].set_visible(False)
    axes.set_xlabel(canvas.escape_mathtext(params.x.replace("_", " ")))
    if is_first:
        axes.set_ylabel(canvas.escape_mathtext(params.y.replace("_", " ")))
    else:
        axes.tick_params(axis="y", labelleft=False)
    if params.label:
        title = f"{params.label} = {numbers['panel'][number]}"
        axes.set_title(canvas.escape_mathtext(title), size=7, pad=3)


def _tilt(numbers: Mapping[str, Array], params: HeatmapParams) -> int:
    """Return by how many degrees labels below are turned, so that none meet."""
    size = float(canvas.STYLE["xtick.labelsize"])
    y_width, widest = (
        max(
            canvas.text_width(canvas.escape_mathtext(name), size)
            for name in numbers[role]
        )
        for role in ("y", "x")
    )
    side = min(len(numbers["panel"]), len(WIDTHS))
    width = (params.width or WIDTHS[side - 1]) - LABELS_WIDTH
    room = (width * canvas.MM - y_width) / side / len(numbers["x"])
    if widest <= 0.9 * room:
        return 0
    # Lines of turned labels are apart by a part of the width of a cell.
    return TILTED if room * np.sin(np.radians(TILTED)) > LINE * size / 72 else UPRIGHT


def _print_means(figure: Figure, numbers: Mapping[str, Array], norm: Normalize) -> None:
    """Print the means in the cells if all of them fit at one size."""
    mean = numbers["mean"]
    texts = _mean_texts(mean)
    size = _text_size(figure.axes[0], texts, mean.shape)
    if not size:
        return
    is_incomplete = numbers["diverged"] + numbers["nonfinite"] > 0
    for at, text in texts.items():
        panel, y, x = at
        # Values without a logarithm have no colour and stand on white.
        has_colour = not (isinstance(norm, LogNorm) and mean[at] <= 0)
        share = float(norm(mean[at])) if has_colour else 1.0
        ground = mpl.colormaps[COLOUR_MAP](share) if has_colour else "white"
        figure.axes[panel].text(
            x + 0.5,
            y + 0.5,
            text,
            size=size,
            ha="center",
            va="center_baseline",
            color="white" if share < 0.5 else "black",
            bbox={"facecolor": ground, "linewidth": 0, "pad": 1}
            if is_incomplete[at]
            else None,
        )


def _text_size(
    axes: Axes, texts: Mapping[tuple[int, ...], str], shape: tuple[int, ...]
) -> float:
    """Return the largest size at which all texts fit; 0 if there is none."""
    _, rows, columns = shape
    panel = axes.get_window_extent()
    width, height = panel.width / canvas.DPI, panel.height / canvas.DPI
    for size in SIZES:
        widest = max((canvas.text_width(t, size) for t in texts.values()), default=0)
        tall = 1.2 * size * canvas.POINT
        if widest < 0.86 * width / columns and tall < height / rows:
            return size
    return 0


def _mean_texts(mean: Array) -> dict[tuple[int, ...], str]:
    """Return means in three digits, with equal decimals if they are of similar size."""
    values = {at: float(mean[at]) for at in np.ndindex(*mean.shape)}
    values = {at: value for at, value in values.items() if np.isfinite(value)}
    sizes = [abs(value) for value in values.values() if value]
    top, bottom = max(sizes, default=1.0), min(sizes, default=1.0)
    if 1e-3 <= top < 1e4 and top < 1e3 * bottom:
        decimals = max(0, 2 - math.floor(math.log10(top)))
        texts = {at: f"{value:.{decimals}f}" for at, value in values.items()}
    else:
        texts = {at: short_number(v, 3) for at, v in values.items()}
    return {at: text.replace("-", MINUS) for at, text in texts.items()}


def _legend(numbers: Mapping[str, Array]) -> tuple[list[Patch], list[str]]:
    """Return the handles and texts of hatched and grey cells, if there are any."""
    is_incomplete = (numbers["diverged"] + numbers["nonfinite"]) > 0
    partly, entirely = (
        is_incomplete & (numbers["count"] > 0),
        is_incomplete & (numbers["count"] == 0),
    )
    word = "diverged" if not numbers["nonfinite"].any() else "diverged or not finite"
    shaded = {
        **HATCH_STYLE,
        "facecolor": mpl.colormaps[COLOUR_MAP](0.4),
        "edgecolor": "white",
    }
    entries: Sequence[tuple[Array, Patch, str]] = (
        (partly, Patch(linewidth=0, **shaded), f"some {word}"),
        (entirely, Patch(linewidth=0, **HATCH_STYLE), f"all {word}"),
        (numbers["nodes"] == 0, Patch(facecolor=NO_NODE_COLOUR), "no node"),
    )
    kept = [(patch, text) for where, patch, text in entries if where.any()]
    return [patch for patch, _ in kept], [text for _, text in kept]
