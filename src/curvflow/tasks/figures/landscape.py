"""Losses along lines or in a plane, with the quadratic model drawn over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from curvflow.errors import InputError
from curvflow.schemas.kinds.figures.landscape import LandscapeFigureParams
from curvflow.schemas.nodes import Array, Member, NodeData, Outcome
from curvflow.schemas.words import counted
from curvflow.tasks.drawing import canvas, captions
from curvflow.tasks.drawing.contours import WIDTHS, panels, planes, quadratic
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.statistics.label_groups import (
    NodeGroup,
    node_groups,
    selection_text,
)

HEIGHT = 46.0  # mm, of a row of panels
SERIES: dict[str, dict[str, Any]] = {
    "training": {"color": canvas.PALETTE[0], "linewidth": 1.2},
    "test": {"color": canvas.PALETTE[1], "linewidth": 1.2, "linestyle": (0, (5, 1.5))},
    "quadratic model": {
        "color": "0.25",
        "linewidth": 1.0,
        "linestyle": (0, (1.2, 1.2)),
    },
}
ARRAYS = {"training": "train", "test": "test", "quadratic model": "model"}


@dataclass(frozen=True)
class Slice:
    """One node's line along one direction.

    Attributes:
        row: label of its row.
        node: what was measured.
        number: of the direction, from 0.
    """

    row: str
    node: NodeData
    number: int

    @property
    def along(self) -> str:
        """What the direction is, such as `eigenvector 1`."""
        return str(self.node["along"][self.number])

    def values(self, y: str) -> dict[str, Array]:
        """Return training and test values and the model, each (point,)."""
        n, node = self.number, self.node
        found = {name: node[f"{name}_{y}"][n] for name in ("train", "test")}
        model = quadratic(node, np.eye(len(node["slope"]))[n] * node["step"][:, None])
        return {**found, "model": model if y == "loss" else np.full(len(model), np.nan)}


@computes_each("figure.landscape")
def figure_landscape(member: Member, machine: Machine) -> Outcome:
    """Draw slices of the loss: a row for each label, a panel for each direction.

    Args:
        member: results of `probe.landscape`; of several in a row all are drawn.
        machine: not used.

    Returns:
        The files `png`, `svg` and `pdf`, the caption, and the numbers drawn.

    Raises:
        InputError: there is no such label, no plane was measured or several would be
            in one panel, or nothing can stand on a logarithmic axis.
    """
    params = member.params
    assert isinstance(params, LandscapeFigureParams)
    nodes = member.inputs["of"]
    rows = node_groups(nodes, params.label)
    slices = [
        Slice(str(row.label), node, number)
        for row in rows
        for node in row.ok
        for number in range(len(node["along"]))
    ]
    caption = _caption(nodes, rows, params)
    shown: list[str] = []
    with canvas.quiet_style():
        if params.show == "plane":
            figure = planes(params, rows)
        else:
            figure, shown = _lines(params, rows, slices)
        canvas.compose(
            figure,
            title=params.title,
            caption=caption,
            handles=[Line2D([], [], **SERIES[name]) for name in shown],
            labels=shown,
        )
        files = canvas.pictures(figure)
    numbers = _numbers(slices, params)
    return Outcome({**files, "caption": np.array(caption), **numbers})


def _numbers(
    slices: Sequence[Slice], params: LandscapeFigureParams
) -> dict[str, Array]:
    most = max((len(one.node["step"]) for one in slices), default=0)
    columns: dict[str, list[Array]] = {name: [] for name in ("step", *ARRAYS.values())}
    for one in slices:
        for name, values in {"step": one.node["step"], **one.values(params.y)}.items():
            padding = (0, most - len(values))
            columns[name].append(np.pad(values, padding, constant_values=np.nan))
    coords = [
        ", ".join(f"{a} = {v}" for a, v in one.node.coords.items()) for one in slices
    ]
    return {
        "row": np.array([one.row for one in slices], str),
        "along": np.array([one.along for one in slices], str),
        "node": np.array(coords, str),
        **{n: np.reshape(v, (len(slices), most)) for n, v in columns.items()},
    }


def _caption(
    nodes: Sequence[NodeData], rows: Sequence[NodeGroup], params: LandscapeFigureParams
) -> str:
    what = "Losses" if params.show == "plane" else params.y.capitalize()
    text = f"{what} at w + t d for steps t"
    text += selection_text(nodes, params.label)
    notes = [f"{text}.", *captions.left_out(rows)]
    drawn = [node for row in rows for node in row.ok]
    if params.quadratic and params.y == "loss" and drawn:
        how = "Broken lines" if params.show == "plane" else "Dotted"
        notes.append(f"{how}: quadratic model of the training loss at t = 0.")
    if params.show == "plane" and any(len(node["path"]) for node in drawn):
        notes.append("White points: checkpoints, projected.")
    if params.show == "plane" and drawn:
        notes.append("Cross: the weights w.")
    if lost := sum(int(node["num_nonfinite"]) for node in drawn):
        noun = "loss" if lost == 1 else "losses"
        notes.append(f"Not finite, not shown: {lost} {noun}.")
    if loose := sum(int((~node["converged"]).sum()) for node in drawn):
        noun = counted(loose, "eigenvector")
        notes.append(f"Not converged: {noun}.")
    return " ".join(notes)


def _lines(
    params: LandscapeFigureParams, rows: Sequence[NodeGroup], slices: Sequence[Slice]
) -> tuple[Figure, list[str]]:
    columns = max((one.number for one in slices), default=0) + 1
    wraps = len(rows) == 1 and columns > len(WIDTHS)
    across = len(WIDTHS) if wraps else columns
    figure = panels(params, -(-columns // across) * len(rows), across, HEIGHT)
    for axes in figure.axes[columns * len(rows) :]:
        axes.set_axis_off()
    shown = ["training"]
    if any(np.isfinite(one.node[f"test_{params.y}"]).any() for one in slices):
        shown.append("test")
    if params.quadratic and params.y == "loss":
        shown.append("quadratic model")
    places = [
        [one for one in slices if one.row == str(row.label) and one.number == number]
        for row in rows
        for number in range(columns)
    ]
    for axes, own, row in zip(
        figure.axes, places, _repeat(rows, columns), strict=False
    ):
        _draw_lines(axes, own, shown, params, row)
    if params.limits == "equal":
        _share(figure.axes[: len(places)])
    return figure, shown


def _repeat(rows: Sequence[NodeGroup], times: int) -> Iterator[NodeGroup]:
    for row in rows:
        yield from [row] * times


def _draw_lines(
    axes: Axes,
    own: Sequence[Slice],
    shown: Sequence[str],
    params: LandscapeFigureParams,
    row: NodeGroup,
) -> None:
    axes.grid(visible=True, axis="y")
    axes.set_xlabel("step")
    spec = axes.get_subplotspec()
    if spec is not None and spec.is_first_col():
        name = f"{canvas.literal(row.label)}\n" if params.label else ""
        axes.set_ylabel(f"{name}{params.y}")
    if not own:
        reason = captions.nothing(row)
        axes.text(0.5, 0.5, reason, transform=axes.transAxes, ha="center", size=7)
        return
    axes.set_title(_named(own), size=7, pad=3)
    for one in own:
        values = one.values(params.y)
        for name in shown:
            drawn = np.where(
                np.isfinite(values[ARRAYS[name]]), values[ARRAYS[name]], np.nan
            )
            axes.plot(one.node["step"], drawn, **SERIES[name])
    axes.set_xlim(*(f([f(one.node["step"]) for one in own]) for f in (min, max)))
    _set_limits(axes, own, shown, params)


def _named(own: Sequence[Slice]) -> str:
    """Return the direction, and the curvature along it if there is one node."""
    if len(own) > 1:
        return own[0].along
    one = own[0]
    return f"{one.along}, curvature {float(one.node['rayleigh'][one.number]):.3g}"


def _set_limits(
    axes: Axes,
    own: Sequence[Slice],
    shown: Sequence[str],
    params: LandscapeFigureParams,
) -> None:
    """Fit the axis to the values measured; the model may leave it."""
    names = [ARRAYS[name] for name in shown if name != "quadratic model"]
    values = np.concatenate(
        [one.values(params.y)[name] for one in own for name in names]
    )
    seen = values[np.isfinite(values)]
    if params.log_y:
        if not (seen > 0).any():
            raise InputError(
                f"log_y: expected positive {params.y}, got none. Set it to false."
            )
        axes.set_yscale("log")
        axes.set_ylim(*canvas.log_limits(seen, seen, seen))
        canvas.set_log_ticks(axes.yaxis)
    elif len(seen):
        margin = 0.05 * (float(np.ptp(seen)) or abs(float(seen[0])) or 1.0)
        axes.set_ylim(seen.min() - margin, seen.max() + margin)
        axes.yaxis.set_major_locator(canvas.tick_steps(5))


def _share(panels: Sequence[Axes]) -> None:
    ends = [axes.get_ylim() for axes in panels]
    for axes in panels:
        axes.set_ylim(min(low for low, _ in ends), max(high for _, high in ends))
