"""Stem plot of Ritz values and their weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from curvflow.schemas.kinds.figures.stem import StemFigureParams
from curvflow.schemas.nodes import Array, Member, NodeData, Outcome
from curvflow.schemas.words import counted, short_number
from curvflow.tasks.drawing import canvas, captions
from curvflow.tasks.drawing.spectra import (
    WeightedPoints,
    matrix_points,
    nodes_with_equal_labels,
    ritz_points,
    runs_sentence,
)
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.statistics.label_groups import (
    NodeGroup,
    node_groups,
    selection_text,
)

WIDTHS = (110.0, 150.0, 180.0)  # mm, by number of columns
HEIGHT = 52.0  # mm, of a row of panels
COLOURS = {
    "ritz": canvas.PALETTE[0],
    "eigenvalues": "0.6",
    "diagonal": canvas.PALETTE[1],
}
NAMES = {"ritz": "Ritz values", "eigenvalues": "eigenvalues", "diagonal": "diagonal"}
STEM_STYLE: dict[str, Any] = {
    "color": COLOURS["ritz"],
    "linewidth": 0.8,
    "marker": "o",
    "markersize": 2.2,
}
# Marker of an end of the spectrum whose weight is below the axis.
FAINT_STYLE: dict[str, Any] = {
    "color": COLOURS["ritz"],
    "linestyle": "",
    "marker": "^",
    "markersize": 4.5,
    "markerfacecolor": "none",
    "markeredgewidth": 0.8,
    "clip_on": False,
}


@dataclass(frozen=True)
class Panel:
    """One panel of stems.

    Attributes:
        group: nodes of its label.
        points: stems or bins by source.
    """

    group: NodeGroup
    points: dict[str, WeightedPoints]


@computes_each("figure.stem")
def figure_stem(member: Member, machine: Machine) -> Outcome:
    """Draw the weight of each Ritz value, a panel for each label.

    Args:
        member: Ritz data in `of`; optionally `matrix` to compare with.
        machine: not used.

    Returns:
        The files `png`, `svg` and `pdf`, the caption, and the drawn numbers.

    Raises:
        InputError: no stage has the axis of `label`, or a matrix to compare with is not
            dense or too large.
    """
    params = member.params
    assert isinstance(params, StemFigureParams)
    nodes, matrices = member.inputs["of"], member.inputs.get("matrix", ())
    panels = [
        Panel(row, _points(row, matrices, params))
        for row in node_groups(nodes, params.label)
    ]
    caption = captions.with_absent(_caption(nodes, panels, params), member)
    with canvas.default_style():
        columns = min(len(panels), len(WIDTHS))
        rows = -(-len(panels) // columns)
        width = params.width or WIDTHS[columns - 1]
        figure = canvas.new_figure(width, params.height or HEIGHT * rows)
        for number, panel in enumerate(panels):
            axes = figure.add_subplot(rows, columns, number + 1)
            _draw(axes, panel, params, is_first=number % columns == 0)
        shown = [*params.compare, "ritz"] if params.compare else []
        canvas.compose(
            figure,
            title=params.title,
            caption=caption,
            handles=[_handle(source) for source in shown],
            labels=[NAMES[source] for source in shown],
        )
        files = canvas.pictures(figure)
    return Outcome({**files, "caption": np.array(caption), **_numbers(panels)})


def _points(
    row: NodeGroup, matrices: Sequence[NodeData], params: StemFigureParams
) -> dict[str, WeightedPoints]:
    if not row.ok:
        return {}
    compared: dict[str, WeightedPoints] = {
        comparison: matrix_points(node, comparison)
        for comparison in params.compare
        for node in nodes_with_equal_labels(row.ok[0], matrices)
    }
    ritz = ritz_points(row.ok)
    ends = [points.ends for points in (ritz, *compared.values())]
    bounds = min(low for low, _ in ends), max(high for _, high in ends)
    binned: dict[str, WeightedPoints] = {
        comparison: _binned(points, params.bins, bounds)
        for comparison, points in compared.items()
    }
    return {**binned, "ritz": ritz}


def _binned(
    points: WeightedPoints, bins: int, bounds: tuple[float, float]
) -> WeightedPoints:
    """Return the centres of bins between bounds, and the weight in each."""
    shares, edges = np.histogram(
        points.values, bins=bins, range=bounds, weights=points.weights
    )
    return WeightedPoints((edges[:-1] + edges[1:]) / 2, shares)


def _numbers(panels: Sequence[Panel]) -> dict[str, Array]:
    series = [
        (str(panel.group.label), source, points)
        for panel in panels
        for source, points in panel.points.items()
    ]
    counts = [len(points.values) for _, _, points in series]
    empty = np.zeros(0)
    return {
        "label": np.repeat(np.array([label for label, _, _ in series], str), counts),
        "source": np.repeat(np.array([source for _, source, _ in series], str), counts),
        "eigenvalue": np.concatenate([empty, *(p.values for _, _, p in series)]),
        "weight": np.concatenate([empty, *(p.weights for _, _, p in series)]),
    }


def _caption(
    nodes: Sequence[NodeData], panels: Sequence[Panel], params: StemFigureParams
) -> str:
    ok = [node for panel in panels for node in panel.group.ok]
    selection = selection_text(nodes, params.label)
    notes = [f"{runs_sentence(ok)}, and their weights{selection}."]
    if params.compare:
        notes.append(
            f"Histograms: shares in {params.bins} bins over the range of the panel."
        )
    drawn = [panel.points["ritz"] for panel in panels if panel.points]
    if params.log_y:
        notes += _below_sentences(drawn, params.floor)
    return " ".join([*notes, *captions.left_out_sentences([p.group for p in panels])])


def _below_sentences(drawn: Sequence[WeightedPoints], floor: float) -> list[str]:
    # The ends of a spectrum often have little weight, but matter most.
    low = sum(int((points.weights < floor).sum()) for points in drawn)
    if not low:
        return []
    word = counted(low, "weight")
    notes = [f"Below the axis: {word} of less than {short_number(floor)}."]
    if any(len(_faint_ends(points, floor)) for points in drawn):
        notes.append(
            "Open triangles: the least or greatest value, of a weight below the axis."
        )
    return notes


def _faint_ends(points: WeightedPoints, floor: float) -> Array:
    """Return the least and the greatest value if their weights are below the floor."""
    ends = [0, -1] if len(points.values) > 1 else [0]
    return np.array([points.values[at] for at in ends if points.weights[at] < floor])


def _draw(
    axes: Axes, panel: Panel, params: StemFigureParams, *, is_first: bool
) -> None:
    axes.grid(visible=True, axis="y")
    axes.set_xlabel("eigenvalue")
    if is_first:
        axes.set_ylabel("weight")
    if panel.group.label:
        axes.set_title(canvas.escape_mathtext(panel.group.title), size=7, pad=3)
    bottom = params.floor if params.log_y else 0.0
    if params.log_y:
        axes.set_yscale("log")
    if not panel.points:
        reason = captions.missing_reason(panel.group)
        axes.text(0.5, 0.5, reason, transform=axes.transAxes, ha="center", size=7)
    for source, points in panel.points.items():
        if source == "ritz":
            _draw_stems(axes, points, bottom)
            continue
        width = points.values[1] - points.values[0]
        axes.bar(
            points.values,
            np.maximum(points.weights - bottom, 0),
            width,
            bottom=bottom,
            color=COLOURS[source],
            alpha=0.5,
            linewidth=0,
        )
    axes.set_ylim(bottom, 2.0 if params.log_y else None)
    if params.log_y:
        canvas.set_log_ticks(axes.yaxis)


def _draw_stems(axes: Axes, points: WeightedPoints, bottom: float) -> None:
    shown = points.weights >= bottom
    at, weights = points.values[shown], points.weights[shown]
    axes.vlines(
        at,
        bottom,
        weights,
        color=STEM_STYLE["color"],
        linewidth=STEM_STYLE["linewidth"],
    )
    axes.plot(at, weights, **{**STEM_STYLE, "linestyle": ""})
    faint = _faint_ends(points, bottom)
    if len(faint):
        axes.plot(faint, np.full(len(faint), bottom), **FAINT_STYLE)


def _handle(source: str) -> Line2D | Patch:
    if source == "ritz":
        return Line2D([], [], **STEM_STYLE)
    return Patch(facecolor=COLOURS[source], alpha=0.5)
