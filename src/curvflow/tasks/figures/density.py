"""Spectral densities smoothed from Ritz values, with densities to compare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from curvflow.schemas.kinds.figures.density import DensityFigureParams
from curvflow.schemas.kinds.shared.figures import Law
from curvflow.schemas.nodes import Array, Member, NodeData, Outcome
from curvflow.schemas.words import short_number
from curvflow.tasks.drawing import canvas, captions
from curvflow.tasks.drawing.captions import draw_no_values
from curvflow.tasks.drawing.spectra import (
    DENSE,
    WeightedPoints,
    atom_heights,
    atom_points,
    law_atom,
    law_density,
    law_name,
    law_support,
    matrix_points,
    nodes_with_equal_labels,
    rest_share,
    ritz_points,
    runs_sentence,
    smoothed_density,
)
from curvflow.tasks.numerics.krylov.densities import density as density_of_runs
from curvflow.tasks.numerics.krylov.lanczos import RitzData
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.statistics.label_groups import (
    NodeGroup,
    node_groups,
    selection_text,
)

WIDTH, HEIGHT = 120.0, 66.0  # mm
KAPPA = 0.01
REACH_WIDTHS = 5.0  # widths of the kernel drawn beyond the last point
NEAR_WIDTHS = 2.0  # widths that still belong to the last Ritz value
GRID_POINTS = (1001, 20001)  # least and greatest number of points of a curve
PER_WIDTH = 10  # points within a width of the kernel
CHECKED_POINTS = 32  # where the error of the quadrature is looked at
SMALL = 0.05  # part of the greatest density that the quadrature may silently be off
STYLES: dict[str, dict[str, Any]] = {
    "ritz": {"linewidth": 1.1},
    "density": {"linewidth": 1.1, "linestyle": (0, (4, 1.5))},
    "eigenvalues": {"linewidth": 2.4, "alpha": 0.35},
    "diagonal": {"linewidth": 1.1, "linestyle": (0, (1.2, 1.2))},
    "atoms": {"linewidth": 1.1, "marker": "o", "markersize": 3.0},
    "law": {"linewidth": 1.0, "linestyle": (0, (6, 2)), "color": "0.2"},
}


@dataclass(frozen=True)
class Curve:
    """One density.

    Attributes:
        label: text in the legend.
        source: key of `STYLES`.
        number: number of the colour.
        width: width of the kernel; 0 without a kernel.
        x: eigenvalues, ascending.
        y: density.
        quadrature: the most that it may be off for the rule alone, relative to the
            greatest density; NaN where no rule is known.
    """

    label: str
    source: str
    number: int
    width: float
    x: Array
    y: Array
    quadrature: float = np.nan

    @property
    def style(self) -> dict[str, Any]:
        """Line style of the curve."""
        return {"color": canvas.label_colour(self.number), **STYLES[self.source]}


@computes_each("figure.density")
def figure_density(member: Member, machine: Machine) -> Outcome:
    """Draw a density for each label, and the densities to compare with.

    Args:
        member: Ritz data in `of`; optionally `density` and `matrix` to compare with.
        machine: not used.

    Returns:
        The files `png`, `svg` and `pdf`, the caption, and the drawn numbers.

    Raises:
        InputError: no stage has the axis of `label`, there are more labels than
            colours, or a matrix to compare with is not dense or too large.
    """
    params = member.params
    assert isinstance(params, DensityFigureParams)
    of, densities = member.inputs["of"], member.inputs.get("density", ())
    rows = _grouped(of, params.label, beside=densities)
    curves = [*_curves(member, rows, params)]
    canvas.check_labels(len(curves))
    caption = captions.with_absent(_caption(of, rows, curves, params), member)
    with canvas.default_style():
        figure = canvas.new_figure(params.width or WIDTH, params.height or HEIGHT)
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
    """Yield curves from back to front: eigenvalues, Ritz values, compared densities."""
    widest = 0.0
    rows_drawn = [row for row in rows if row.ok]
    numbers = {row.label: number for number, row in enumerate(rows_drawn)}
    with_atoms = {
        row.label for row in rows_drawn if any("atom_counts" in n for n in row.ok)
    }
    for number, row in enumerate(rows_drawn):
        points = ritz_points(row.ok)
        width = kernel_width(points, params)
        widest = max(widest, width)
        name = str(row.label)
        for comparison in params.compare:
            for node in nodes_with_equal_labels(row.ok[0], member.inputs["matrix"]):
                label = f"{name}, {comparison}".removeprefix(", ")
                yield _smooth(
                    label, comparison, number, matrix_points(node, comparison), width
                )
        curve = _smooth(name or "Ritz values", "ritz", number, points, width)
        yield replace(curve, quadrature=_quadrature_error(row.ok, curve))
        yield from _atoms(name, number, row.ok, width)
    densities = member.inputs.get("density", ())
    for row in _grouped(densities, params.label, beside=member.inputs["of"]):
        number = numbers.setdefault(row.label, len(numbers))
        for node in row.ok:
            label = f"{row.label}, {node.stage}".removeprefix(", ")
            density = node["density"] * rest_share(node)
            yield Curve(label, "density", number, 0.0, node["grid"], density)
            if row.label not in with_atoms:
                yield from _atoms(label, number, [node], widest)
    if params.overlay:
        yield _law(params.overlay, widest)


def _atoms(
    name: str, number: int, nodes: Sequence[NodeData], width: float
) -> Iterator[Curve]:
    points = atom_points(nodes)
    if len(points.values):
        label = f"{name}, atoms".removeprefix(", ")
        heights = atom_heights(points, width)
        yield Curve(label, "atoms", number, width, points.values, heights)


def _grouped(
    nodes: Sequence[NodeData], label: str | None, *, beside: Sequence[NodeData]
) -> list[NodeGroup]:
    """Group nodes by label, an axis that those beside them alone may have."""
    axes, others = (
        {axis for n in group for axis in n.coords} for group in (nodes, beside)
    )
    known = label if label in axes or label not in others else None
    return node_groups(nodes, known) if nodes else []


def kernel_width(points: WeightedPoints, params: DensityFigureParams) -> float:
    """Return the width of the smoothing kernel for Ritz values."""
    if params.sigma is not None:
        return params.sigma
    low, high = points.ends
    spread = (high - low) or max(abs(low), abs(high)) or 1.0
    return (params.kappa or KAPPA) * spread


def _smooth(
    label: str, source: str, number: int, points: WeightedPoints, width: float
) -> Curve:
    low, high = points.ends
    low, high = low - REACH_WIDTHS * width, high + REACH_WIDTHS * width
    count = int(np.clip(PER_WIDTH * (high - low) / width, *GRID_POINTS))
    grid = np.linspace(low, high, count)
    return Curve(
        label, source, number, width, grid, smoothed_density(points, grid, width)
    )


def _quadrature_error(nodes: Sequence[NodeData], curve: Curve) -> float:
    """Return the most that a curve of Ritz values may be off, relative to its peak.

    It is looked at along the curve and where that is greatest. All eigenvalues have
    no error.
    """
    near = REACH_WIDTHS * curve.width
    grid = np.linspace(curve.x[0] + near, curve.x[-1] - near, CHECKED_POINTS)
    grid_G = torch.from_numpy(np.append(grid, curve.x[curve.y.argmax()]))
    runs = sum(len(node["ritz_values"]) for node in nodes)
    error_G = torch.zeros(len(grid_G), dtype=torch.float64)
    for node in nodes:
        if node.kind != DENSE:
            values, weights, residuals = (
                torch.from_numpy(np.array(node[f"ritz_{name}"]))[None]
                for name in ("values", "weights", "residuals")
            )
            steps, share = values.isfinite().sum(2), rest_share(node)
            size = round(share * int(node["size"]))
            ritz = RitzData(values, weights, residuals, steps, size)
            smoothed = density_of_runs(ritz, grid_G, sigma=curve.width).found
            error_G += share * smoothed.rule_error[0] * len(values[0]) / runs
    return float(error_G.max()) / float(curve.y.max())


def _law(law: Law, width: float) -> Curve:
    """Return a law's density with its atom smoothed."""
    low, high = law_support(law)
    grid, mass = np.linspace(low, high, GRID_POINTS[0]), law_atom(law)
    if mass:
        near = np.linspace(-REACH_WIDTHS * width, REACH_WIDTHS * width, GRID_POINTS[0])
        grid = np.unique(np.concatenate([grid, near]))
    density = law_density(law, grid)
    if mass:
        here = WeightedPoints(np.zeros(1), np.full(1, mass))
        density = density + smoothed_density(here, grid, width)
    return Curve(law_name(law), "law", 0, width if mass else 0.0, grid, density)


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
        "quadrature": np.array([curve.quadrature for curve in curves], np.float64),
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
    if params.overlay and law_atom(params.overlay):
        notes.append("What the law has at 0 is smoothed by the same Gaussian.")
    if any(curve.source == "atoms" for curve in curves):
        known = "Stems are eigenvalues known exactly, as high as the kernel would make"
        notes.append(f"{known} them.")
    notes += _unresolved_sentence(curves)
    notes += _outside_sentence(curves)
    if params.log_y and curves:
        notes.append(f"Not shown: below {short_number(params.floor)} of the greatest.")
    return " ".join([*notes, *captions.left_out_sentences(rows)])


def _unresolved_sentence(curves: Sequence[Curve]) -> list[str]:
    errors = [c.quadrature for c in curves if c.quadrature > SMALL]
    if not errors:
        return []
    percent = min(100, round(100 * max(errors)))
    return [
        f"The kernel is narrower than the steps resolve: the quadrature may be off by "
        f"{percent} % of the greatest density."
    ]


def _outside_sentence(curves: Sequence[Curve]) -> list[str]:
    # A density from a few moments may rise at the ends of its support to a peak that is
    # high on a logarithmic axis but holds hardly any weight.
    shown = [curve for curve in curves if curve.source == "ritz"]
    grids = [curve for curve in curves if curve.source == "density"]
    if not shown or not grids:
        return []
    inwards = REACH_WIDTHS - NEAR_WIDTHS
    low = min(curve.x[0] + inwards * curve.width for curve in shown)
    high = max(curve.x[-1] - inwards * curve.width for curve in shown)
    shares = [
        np.trapezoid(np.where((c.x < low) | (c.x > high), c.y, 0), c.x)
        / np.trapezoid(c.y, c.x)
        for c in grids
    ]
    share = short_number(max(shares), 1)
    at_most = "at most " if len(grids) > 1 else ""
    densities = "each density on a grid" if len(grids) > 1 else "the density on a grid"
    return [
        f"Beyond the Ritz values by {NEAR_WIDTHS:g} widths: {at_most}{share} of "
        f"{densities}."
    ]


def _draw(axes: Axes, curves: Sequence[Curve], params: DensityFigureParams) -> None:
    axes.grid(visible=True, axis="y")
    axes.set_xlabel("eigenvalue")
    axes.set_ylabel("density")
    if not curves:
        draw_no_values(axes)
        return
    for curve in curves:
        if curve.source == "atoms":
            _draw_stems(axes, curve)
        else:
            axes.plot(curve.x, curve.y, **curve.style)
    beyond = [REACH_WIDTHS * c.width if c.source == "atoms" else 0.0 for c in curves]
    ends = params.limits or (
        min(c.x[0] - b for c, b in zip(curves, beyond, strict=True)),
        max(c.x[-1] + b for c, b in zip(curves, beyond, strict=True)),
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


def _draw_stems(axes: Axes, curve: Curve) -> None:
    style = curve.style
    color, width = style["color"], style["linewidth"]
    # From 0, which lies below a logarithmic axis.
    axes.vlines(curve.x, 0, curve.y, color=color, linewidth=width)
    axes.plot(curve.x, curve.y, **style | {"linestyle": "none"})
