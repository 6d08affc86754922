"""Spectral densities, smoothed from Ritz values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from curvflow.schemas.kinds.figures.density import DensityFigureParams
from curvflow.schemas.kinds.shared.figures import Law, Semicircle
from curvflow.schemas.nodes import Array, Member, NodeData, Outcome
from curvflow.tasks.drawing import canvas, captions
from curvflow.tasks.drawing.captions import say_no_values
from curvflow.tasks.drawing.spectra import (
    Points,
    agreeing,
    atom,
    law_density,
    matrix_points,
    ritz_points,
    runs_sentence,
    smooth,
    support,
)
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.statistics.label_groups import (
    NodeGroup,
    node_groups,
    selection_text,
)

WIDTH, HEIGHT = 120.0, 66.0  # mm
KAPPA = 0.01
REACH = 5.0  # widths of the kernel beyond the last point
NEAR = 2.0  # widths within which a density may be that of the last Ritz value
GRID = (1001, 20001)  # points of a curve: at least, and at most
PER_WIDTH = 10  # points wanted within a width of the kernel
STYLES: dict[str, dict[str, Any]] = {
    "ritz": {"linewidth": 1.1},
    "density": {"linewidth": 1.1, "linestyle": (0, (4, 1.5))},
    "eigenvalues": {"linewidth": 2.4, "alpha": 0.35},
    "diagonal": {"linewidth": 1.1, "linestyle": (0, (1.2, 1.2))},
    "law": {"linewidth": 1.0, "linestyle": (0, (6, 2)), "color": "0.2"},
}


@dataclass(frozen=True)
class Curve:
    """One density.

    Attributes:
        label: what the legend says.
        source: a key of `STYLES`.
        number: of its colour.
        width: of the kernel; 0 without one.
        x: eigenvalues, ascending.
        y: density.
    """

    label: str
    source: str
    number: int
    width: float
    x: Array
    y: Array

    @property
    def style(self) -> dict[str, Any]:
        """How it is drawn."""
        return {"color": canvas.colour(self.number), **STYLES[self.source]}


@computes_each("figure.density")
def figure_density(member: Member, machine: Machine) -> Outcome:
    """Draw a density for each label, and those that it is compared with.

    Args:
        member: Ritz data in `of`, and perhaps `density` and `matrix`.
        machine: not used.

    Returns:
        The files `png`, `svg` and `pdf`, the caption, and the numbers drawn.

    Raises:
        InputError: there is no such label, there are more than can be told apart, or a
            matrix to compare with is not dense or too large.
    """
    params = member.params
    assert isinstance(params, DensityFigureParams)
    rows = node_groups(member.inputs["of"], params.label)
    curves = [*_curves(member, rows, params)]
    canvas.check_labels(len(curves))
    caption = _caption(member.inputs["of"], rows, curves, params)
    with canvas.quiet_style():
        figure = canvas.sheet(params.width or WIDTH, params.height or HEIGHT)
        axes = figure.add_subplot()
        _draw(axes, curves, params)
        canvas.compose(
            figure,
            title=params.title,
            caption=caption,
            handles=[Line2D([], [], **curve.style) for curve in curves],
            labels=[curve.label for curve in curves],
            label_name=params.label or "",
        )
        files = canvas.pictures(figure)
    return Outcome({**files, "caption": np.array(caption), **_numbers(curves)})


def _curves(
    member: Member, rows: Sequence[NodeGroup], params: DensityFigureParams
) -> Iterator[Curve]:
    """Yield what lies behind first: all eigenvalues, Ritz values, what is compared."""
    widest = 0.0
    own = [row for row in rows if row.ok]
    numbers = {row.label: number for number, row in enumerate(own)}
    for number, row in enumerate(own):
        points = ritz_points(row.ok)
        width = kernel_width(points, params)
        widest = max(widest, width)
        name = str(row.label)
        for what in params.compare:
            for node in agreeing(row.ok[0], member.inputs["matrix"]):
                label = f"{name}, {what}".removeprefix(", ")
                yield _smooth(label, what, number, matrix_points(node, what), width)
        yield _smooth(name or "Ritz values", "ritz", number, points, width)
    for row in _beside(member.inputs.get("density", ()), params.label):
        number = numbers.setdefault(row.label, len(numbers))
        for node in row.ok:
            label = f"{row.label}, {node.stage}".removeprefix(", ")
            yield Curve(label, "density", number, 0.0, node["grid"], node["density"])
    if params.overlay:
        yield _law(params.overlay, widest)


def _beside(nodes: Sequence[NodeData], label: str | None) -> list[NodeGroup]:
    """Sort what is compared, which need not have the axis that is told apart."""
    has_axis = any(label in node.coords for node in nodes)
    return node_groups(nodes, label if has_axis else None) if nodes else []


def kernel_width(points: Points, params: DensityFigureParams) -> float:
    """Return the width of the kernel for some Ritz values."""
    if params.sigma is not None:
        return params.sigma
    low, high = points.ends
    spread = (high - low) or max(abs(low), abs(high)) or 1.0
    return (params.kappa or KAPPA) * spread


def _smooth(
    label: str, source: str, number: int, points: Points, width: float
) -> Curve:
    low, high = points.ends
    low, high = low - REACH * width, high + REACH * width
    count = int(np.clip(PER_WIDTH * (high - low) / width, *GRID))
    grid = np.linspace(low, high, count)
    return Curve(label, source, number, width, grid, smooth(points, grid, width))


def _law(law: Law, width: float) -> Curve:
    """Return a law's density; its atom, which has none, is smoothed."""
    low, high = support(law)
    grid, mass = np.linspace(low, high, GRID[0]), atom(law)
    if mass:
        near = np.linspace(-REACH * width, REACH * width, GRID[0])
        grid = np.unique(np.concatenate([grid, near]))
    density = law_density(law, grid)
    if mass:
        here = Points(np.zeros(1), np.full(1, mass))
        density = density + smooth(here, grid, width)
    name = "semicircle"
    if not isinstance(law, Semicircle):
        name = f"Marchenko-Pastur, q = {law.ratio:g}"
    return Curve(name, "law", 0, width if mass else 0.0, grid, density)


def _numbers(curves: Sequence[Curve]) -> dict[str, Array]:
    most = max((len(curve.x) for curve in curves), default=0)

    def padded(arrays: Sequence[Array]) -> Array:
        rows = np.full((len(curves), most), np.nan)
        for row, array in zip(rows, arrays, strict=True):
            row[: len(array)] = array
        return rows

    return {
        "curve": np.array([curve.label for curve in curves], str),
        "source": np.array([curve.source for curve in curves], str),
        "width": np.array([curve.width for curve in curves], np.float64),
        "eigenvalue": padded([curve.x for curve in curves]),
        "density": padded([curve.y for curve in curves]),
    }


def _caption(
    nodes: Sequence[NodeData],
    rows: Sequence[NodeGroup],
    curves: Sequence[Curve],
    params: DensityFigureParams,
) -> str:
    ok = [node for row in rows for node in row.ok]
    kernel = f"width {params.kappa or KAPPA:g} of their range"
    if params.sigma is not None:
        kernel = f"width {params.sigma:g}"
    text = f"{runs_sentence(ok)}, smoothed by Gaussians of {kernel}"
    notes = [f"{text}{selection_text(nodes, params.label)}."]
    if params.overlay and atom(params.overlay):
        notes.append("What the law has at 0 is smoothed by the same Gaussian.")
    notes += _beyond(curves)
    if params.log_y and curves:
        notes.append(
            f"Not shown: below {captions.short(params.floor)} of the greatest."
        )
    return " ".join([*notes, *captions.left_out(rows)])


def _beyond(curves: Sequence[Curve]) -> list[str]:
    # Of a few moments a density may rise steeply at the ends of its support, to a peak
    # that is high on a logarithmic axis and next to empty.
    shown = [curve for curve in curves if curve.source == "ritz"]
    grids = [curve for curve in curves if curve.source == "density"]
    if not shown or not grids:
        return []
    inwards = REACH - NEAR
    low = min(curve.x[0] + inwards * curve.width for curve in shown)
    high = max(curve.x[-1] - inwards * curve.width for curve in shown)
    shares = [
        np.trapezoid(np.where((c.x < low) | (c.x > high), c.y, 0), c.x)
        / np.trapezoid(c.y, c.x)
        for c in grids
    ]
    share = captions.short(float(f"{max(shares):.1g}"))
    of = "at most " if len(grids) > 1 else ""
    what = "each density on a grid" if len(grids) > 1 else "the density on a grid"
    return [f"Beyond the Ritz values by {NEAR:g} widths: {of}{share} of {what}."]


def _draw(axes: Axes, curves: Sequence[Curve], params: DensityFigureParams) -> None:
    axes.grid(visible=True, axis="y")
    axes.set_xlabel("eigenvalue")
    axes.set_ylabel("density")
    if not curves:
        say_no_values(axes)
        return
    for curve in curves:
        axes.plot(curve.x, curve.y, **curve.style)
    ends = params.limits or (
        min(curve.x[0] for curve in curves),
        max(curve.x[-1] for curve in curves),
    )
    axes.set_xlim(*ends)
    seen = [c.y[(c.x >= ends[0]) & (c.x <= ends[1])] for c in curves]
    top = max((float(y.max()) for y in seen if len(y)), default=0.0) or 1.0
    if params.log_y:
        axes.set_yscale("log")
        axes.set_ylim(params.floor * top, 2 * top)
        canvas.set_log_ticks(axes.yaxis)
    else:
        axes.set_ylim(0, 1.05 * top)
