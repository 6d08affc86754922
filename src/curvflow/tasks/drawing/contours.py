"""Planes of a loss as contours, and the panels that slices are drawn in."""

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

WIDTHS = (88.0, 130.0, 180.0)  # mm, by panels side by side
HEIGHT = 54.0  # mm, of a row of planes
LEVELS = 12  # contours of a plane, about
MAP = "cividis"  # reads the same without colours
PATH: dict[str, Any] = {
    "color": "white",
    "linewidth": 0.9,
    "marker": "o",
    "markersize": 1.5,
}
MODEL: dict[str, Any] = {"colors": "white", "linewidths": 0.6, "linestyles": "--"}


def panels(
    params: LandscapeFigureParams, rows: int, columns: int, height: float
) -> Figure:
    """Return a sheet with empty panels.

    Args:
        params: of the figure.
        rows: of panels.
        columns: of panels.
        height: of a row in mm, unless the figure's is given.

    Returns:
        The sheet.
    """
    width = params.width or WIDTHS[min(columns, len(WIDTHS)) - 1]
    figure = canvas.sheet(width, params.height or height * rows)
    for number in range(rows * columns):
        figure.add_subplot(rows, columns, number + 1)
    return figure


def quadratic(node: NodeData, steps: Array) -> Array:
    """Return L(0) + t.slope + t.curvature t / 2 at steps t of shape (..., K)."""
    curved = np.einsum("...i,ij,...j->...", steps, node["curvature"], steps)
    model: Array = node["centre_train_loss"] + steps @ node["slope"] + curved / 2
    return model


def planes(params: LandscapeFigureParams, rows: Sequence[NodeGroup]) -> Figure:
    """Draw the planes of training and test loss, a row for each label.

    Args:
        params: whether contours are logarithmic, and what is drawn over them.
        rows: with one result each.

    Returns:
        The figure, without its caption.

    Raises:
        InputError: no plane was measured, or several would be in one panel.
    """
    nodes = {str(row.label): row.ok for row in rows}
    if any(len(own) > 1 for own in nodes.values()):
        raise InputError(
            "over: expected one result for each plane, got several. Name their axis "
            "as `label`, or leave it out of `over`."
        )
    if any(not node["plane_train_loss"].size for own in nodes.values() for node in own):
        raise InputError(
            "show: expected results with a plane, got lines alone. Set plane: true in "
            "the probe."
        )
    sets = ["train"]
    if any(
        np.isfinite(node["plane_test_loss"]).any()
        for own in nodes.values()
        for node in own
    ):
        sets.append("test")
    figure = panels(params, len(rows), len(sets), HEIGHT)
    for number, axes in enumerate(figure.axes):
        row, name = rows[number // len(sets)], sets[number % len(sets)]
        if not row.ok:
            axes.set_axis_off()
            axes.text(0.5, 0.5, captions.nothing(row), ha="center", size=7)
            continue
        drawn = _draw_plane(axes, row.ok[0], sets, name, params)
        if name == sets[-1]:
            _add_bar(axes, drawn)
        if params.label and name == "train":
            axes.set_ylabel(f"{canvas.literal(row.label)}\n{axes.get_ylabel()}")
    return figure


def _draw_plane(
    axes: Axes,
    node: NodeData,
    sets: Sequence[str],
    name: str,
    params: LandscapeFigureParams,
) -> ContourSet:
    step = node["step"]
    every = np.ma.masked_invalid(np.stack([node[f"plane_{one}_loss"] for one in sets]))
    if params.log_y:
        every = np.ma.masked_less_equal(every, 0)
    axes.set_facecolor("0.8")  # where losses are not finite
    norm, levels = _levels(every, params)
    shown = every[sets.index(name)].T
    drawn = axes.contourf(step, step, shown, levels, cmap=MAP, norm=norm)
    if name == "train" and params.quadratic:
        t = np.stack(np.meshgrid(step, step, indexing="ij"), axis=-1)
        steps = np.pad(t, ((0, 0), (0, 0), (0, len(node["slope"]) - 2)))
        model = quadratic(node, steps).T
        axes.contour(step, step, model, levels, **MODEL)
    if len(node["path"]):
        axes.plot(node["path"][:, 0], node["path"][:, 1], **PATH)
    axes.plot(0, 0, "+", color="white", markersize=5)
    axes.set(aspect="equal", xlabel=str(node["along"][0]), ylabel=str(node["along"][1]))
    axes.set(xlim=(step[0], step[-1]), ylim=(step[0], step[-1]))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(canvas.tick_steps(4))
    words = {"train": "training loss", "test": "test loss"}
    axes.set_title(words[name], size=7, pad=3)
    return drawn


def _add_bar(axes: Axes, drawn: ContourSet) -> None:
    place = axes.inset_axes((1.05, 0, 0.05, 1))
    figure = axes.get_figure()
    assert figure is not None
    bar = figure.colorbar(drawn, cax=place, format=FuncFormatter(_short))
    levels = [*drawn.levels]
    bar.set_ticks(levels[:: max(1, len(levels) // 6)])
    bar.minorticks_off()
    place.tick_params(labelsize=6)


def _short(value: float, place: int | None) -> str:
    return f"{value:.2g}"


def _levels(
    every: Any, params: LandscapeFigureParams
) -> tuple[Normalize, Sequence[float]]:
    low, high = float(every.min()), float(every.max())
    if params.log_y:
        top = high if high > low else 2 * low
        return LogNorm(low, top), np.geomspace(low, top, LEVELS).tolist()
    levels = [*MaxNLocator(LEVELS, steps=[1, 2, 5, 10]).tick_values(low, high)]
    return Normalize(levels[0], levels[-1]), levels
