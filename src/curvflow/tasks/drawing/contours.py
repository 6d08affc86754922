"""Contours of a loss in planes, and the panel grid of loss slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from curvflow.errors import InputError
from curvflow.schemas.kinds.figures.landscape import LandscapeFigureParams
from curvflow.schemas.nodes import Array, NodeData
from curvflow.tasks.drawing import canvas, captions
from curvflow.tasks.statistics.label_groups import NodeGroup

WIDTHS = (88.0, 130.0, 180.0)  # mm, by number of columns
HEIGHT = 54.0  # mm, of a row of planes
LEVELS = 12  # approximate number of contours of a plane
COLOUR_MAP = "cividis"  # legible in grey
PATH_STYLE: dict[str, Any] = {
    "color": "white",
    "linewidth": 0.9,
    "marker": "o",
    "markersize": 1.5,
}
MODEL_STYLE: dict[str, Any] = {"colors": "white", "linewidths": 0.6, "linestyles": "--"}


def panel_grid(
    params: LandscapeFigureParams, rows: int, columns: int, height: float
) -> Figure:
    """Return a sheet with empty panels.

    Args:
        params: parameters of the figure.
        rows: number of rows.
        columns: number of columns.
        height: height of a row in mm, unless the figure's height is set.

    Returns:
        The sheet.
    """
    width = params.width or WIDTHS[min(columns, len(WIDTHS)) - 1]
    figure = canvas.new_figure(width, params.height or height * rows)
    for number in range(rows * columns):
        figure.add_subplot(rows, columns, number + 1)
    return figure


def quadratic_model(node: NodeData, steps: Array) -> Array:
    """Return L(0) + t.slope + t.curvature t / 2 at steps t of shape (..., K)."""
    curved = np.einsum("...i,ij,...j->...", steps, node["curvature"], steps)
    model: Array = node["centre_train_loss"] + steps @ node["slope"] + curved / 2
    return model


def draw_planes(params: LandscapeFigureParams, rows: Sequence[NodeGroup]) -> Figure:
    """Draw the planes of training and test loss, a row for each label.

    Args:
        params: scale of the contours and overlays.
        rows: label groups of one result each.

    Returns:
        The figure, without its caption.

    Raises:
        InputError: no plane was measured, or several would be in one panel.
    """
    nodes = {str(row.label): row.ok for row in rows}
    if any(len(group) > 1 for group in nodes.values()):
        raise InputError(
            "over: expected a single result for each plane, got several. Name their "
            "axis as `label`, or leave it out of `over`."
        )
    if any(
        not node["plane_train_loss"].size for group in nodes.values() for node in group
    ):
        raise InputError(
            "show: expected results with a plane, got lines only. Set plane: true in "
            "the probe."
        )
    sets = ["train"]
    if any(
        np.isfinite(node["plane_test_loss"]).any()
        for group in nodes.values()
        for node in group
    ):
        sets.append("test")
    figure = panel_grid(params, len(rows), len(sets), HEIGHT)
    for number, axes in enumerate(figure.axes):
        row, name = rows[number // len(sets)], sets[number % len(sets)]
        if not row.ok:
            axes.set_axis_off()
            axes.text(0.5, 0.5, captions.missing_reason(row), ha="center", size=7)
            continue
        drawn = _draw_plane(axes, row.ok[0], sets, name, params)
        if name == sets[-1]:
            _add_colorbar(axes, drawn)
        if params.label and name == "train":
            axes.set_ylabel(f"{canvas.escape_mathtext(row.label)}\n{axes.get_ylabel()}")
    return figure


def _draw_plane(
    axes: Axes,
    node: NodeData,
    sets: Sequence[str],
    name: str,
    params: LandscapeFigureParams,
) -> ContourSet:
    step = node["step"]
    losses = np.ma.masked_invalid(
        np.stack([node[f"plane_{name_of_set}_loss"] for name_of_set in sets])
    )
    if params.log_y:
        losses = np.ma.masked_less_equal(losses, 0)
    axes.set_facecolor("0.8")  # where losses are not finite
    norm, levels = _levels(losses, params)
    shown = losses[sets.index(name)].T
    drawn = axes.contourf(step, step, shown, levels, cmap=COLOUR_MAP, norm=norm)
    if name == "train" and params.quadratic:
        t = np.stack(np.meshgrid(step, step, indexing="ij"), axis=-1)
        steps = np.pad(t, ((0, 0), (0, 0), (0, len(node["slope"]) - 2)))
        model = quadratic_model(node, steps).T
        axes.contour(step, step, model, levels, **MODEL_STYLE)
    if len(node["path"]):
        axes.plot(node["path"][:, 0], node["path"][:, 1], **PATH_STYLE)
    axes.plot(0, 0, "+", color="white", markersize=5)
    axes.set(aspect="equal", xlabel=str(node["along"][0]), ylabel=str(node["along"][1]))
    axes.set(xlim=(step[0], step[-1]), ylim=(step[0], step[-1]))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(canvas.round_ticks(4))
    words = {"train": "training loss", "test": "test loss"}
    axes.set_title(words[name], size=7, pad=3)
    return drawn


def _add_colorbar(axes: Axes, drawn: ContourSet) -> None:
    place = axes.inset_axes((1.05, 0, 0.05, 1))
    figure = axes.get_figure()
    assert figure is not None
    bar = figure.colorbar(drawn, cax=place, format=FuncFormatter(_format_loss))
    levels = [*drawn.levels]
    bar.set_ticks(levels[:: max(1, len(levels) // 6)])
    bar.minorticks_off()
    place.tick_params(labelsize=6)


def _format_loss(value: float, place: int | None) -> str:
    return f"{value:.2g}"


def _levels(
    losses: Any, params: LandscapeFigureParams
) -> tuple[Normalize, Sequence[float]]:
    low, high = float(losses.min()), float(losses.max())
    if params.log_y:
        top = high if high > low else 2 * low
        return LogNorm(low, top), np.geomspace(low, top, LEVELS).tolist()
    levels = [*MaxNLocator(LEVELS, steps=[1, 2, 5, 10]).tick_values(low, high)]
    return Normalize(levels[0], levels[-1]), levels
