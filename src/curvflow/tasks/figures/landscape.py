"""Loss landscape along lines or in a plane, with its quadratic model."""

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
from curvflow.schemas.kinds.probes.landscape import ABOUT_ZERO
from curvflow.schemas.nodes import Array, Member, NodeData, Outcome
from curvflow.schemas.words import counted
from curvflow.tasks.drawing import canvas, captions
from curvflow.tasks.drawing.contours import (
    WIDTHS,
    draw_planes,
    panel_grid,
    quadratic_model,
)
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
        node: result of the node.
        number: number of the direction, from 0.
    """

    row: str
    node: NodeData
    number: int

    @property
    def along(self) -> str:
        """Name of the direction, such as `eigenvector 1`."""
        return str(self.node["along"][self.number])

    def values(self, y: str) -> dict[str, Array]:
        """Return training and test values and the model, each (point,)."""
        n, node = self.number, self.node
        losses = {name: node[f"{name}_{y}"][n] for name in ("train", "test")}
        model = quadratic_model(
            node, np.eye(len(node["slope"]))[n] * node["step"][:, None]
        )
        return {
            **losses,
            "model": model if y == "loss" else np.full(len(model), np.nan),
        }


@computes_each("figure.landscape")
def figure_landscape(member: Member, machine: Machine) -> Outcome:
    """Draw slices of the loss: a row for each label, a panel for each direction.

    Args:
        member: results of `probe.landscape`; a row shows all its results.
        machine: not used.

    Returns:
        The files `png`, `svg` and `pdf`, the caption, and the drawn numbers.

    Raises:
        InputError: no stage has the axis of `label`, no plane was measured or a panel
            has several, or a logarithmic axis cannot show any value.
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
    caption = captions.with_absent(_caption(nodes, rows, params), member)
    shown: list[str] = []
    with canvas.default_style():
        if params.show == "plane":
            figure = draw_planes(params, rows)
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
    most = max((len(slice_.node["step"]) for slice_ in slices), default=0)
    columns: dict[str, list[Array]] = {name: [] for name in ("step", *ARRAYS.values())}
    for slice_ in slices:
        for name, values in {
            "step": slice_.node["step"],
            **slice_.values(params.y),
        }.items():
            padding = (0, most - len(values))
            columns[name].append(np.pad(values, padding, constant_values=np.nan))
    coords = [
        ", ".join(f"{a} = {v}" for a, v in slice_.node.coords.items())
        for slice_ in slices
    ]
    return {
        "row": np.array([slice_.row for slice_ in slices], str),
        "along": np.array([slice_.along for slice_ in slices], str),
        "node": np.array(coords, str),
        **{n: np.reshape(v, (len(slices), most)) for n, v in columns.items()},
    }


def _caption(
    nodes: Sequence[NodeData], rows: Sequence[NodeGroup], params: LandscapeFigureParams
) -> str:
    quantity = "Losses" if params.show == "plane" else params.y.capitalize()
    text = f"{quantity} at w + t d for steps t"
    text += selection_text(nodes, params.label)
    notes = [f"{text}.", *captions.left_out_sentences(rows)]
    drawn = [node for row in rows for node in row.ok]
    if params.quadratic and params.y == "loss" and drawn:
        line_style = "Broken lines" if params.show == "plane" else "Dotted"
        notes.append(f"{line_style}: quadratic model of the training loss at t = 0.")
    if params.show == "plane" and any(len(node["path"]) for node in drawn):
        notes.append("White points: checkpoints, projected.")
    if params.show == "plane" and drawn:
        about_zero = any(
            str(name).endswith(ABOUT_ZERO) for node in drawn for name in node["along"]
        )
        where = ", but zero in the layers moved" if about_zero else ""
        notes.append(f"Cross: the weights w{where}.")
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
    columns = max((slice_.number for slice_ in slices), default=0) + 1
    wraps = len(rows) == 1 and columns > len(WIDTHS)
    across = len(WIDTHS) if wraps else columns
    figure = panel_grid(params, -(-columns // across) * len(rows), across, HEIGHT)
    for axes in figure.axes[columns * len(rows) :]:
        axes.set_axis_off()
    shown = ["training"]
    if any(np.isfinite(slice_.node[f"test_{params.y}"]).any() for slice_ in slices):
        shown.append("test")
    if params.quadratic and params.y == "loss":
        shown.append("quadratic model")
    panel_slices = [
        [
            slice_
            for slice_ in slices
            if slice_.row == str(row.label) and slice_.number == number
        ]
        for row in rows
        for number in range(columns)
    ]
    for axes, slices_drawn, row in zip(
        figure.axes, panel_slices, _repeat(rows, columns), strict=False
    ):
        _draw_lines(axes, slices_drawn, shown, params, row)
    if params.limits == "equal":
        _share_limits(figure.axes[: len(panel_slices)])
    return figure, shown


def _repeat(rows: Sequence[NodeGroup], times: int) -> Iterator[NodeGroup]:
    for row in rows:
        yield from [row] * times


def _draw_lines(
    axes: Axes,
    slices: Sequence[Slice],
    shown: Sequence[str],
    params: LandscapeFigureParams,
    row: NodeGroup,
) -> None:
    axes.grid(visible=True, axis="y")
    axes.set_xlabel("step")
    spec = axes.get_subplotspec()
    if spec is not None and spec.is_first_col():
        name = f"{canvas.escape_mathtext(row.label)}\n" if params.label else ""
        axes.set_ylabel(f"{name}{params.y}")
    if not slices:
        reason = captions.missing_reason(row)
        axes.text(0.5, 0.5, reason, transform=axes.transAxes, ha="center", size=7)
        return
    axes.set_title(_panel_title(slices), size=7, pad=3)
    for slice_ in slices:
        values = slice_.values(params.y)
        for name in shown:
            drawn = np.where(
                np.isfinite(values[ARRAYS[name]]), values[ARRAYS[name]], np.nan
            )
            axes.plot(slice_.node["step"], drawn, **SERIES[name])
    axes.set_xlim(
        *(f([f(slice_.node["step"]) for slice_ in slices]) for f in (min, max))
    )
    _set_limits(axes, slices, shown, params)


def _panel_title(slices: Sequence[Slice]) -> str:
    """Return the direction, and the curvature along it if there is a single node."""
    if len(slices) > 1:
        return slices[0].along
    slice_ = slices[0]
    return (
        f"{slice_.along}, curvature {float(slice_.node['rayleigh'][slice_.number]):.3g}"
    )


def _set_limits(
    axes: Axes,
    slices: Sequence[Slice],
    shown: Sequence[str],
    params: LandscapeFigureParams,
) -> None:
    """Fit the axis to the measured values; the model may leave it."""
    names = [ARRAYS[name] for name in shown if name != "quadratic model"]
    values = np.concatenate(
        [slice_.values(params.y)[name] for slice_ in slices for name in names]
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
        axes.yaxis.set_major_locator(canvas.round_ticks(5))


def _share_limits(panels: Sequence[Axes]) -> None:
    ends = [axes.get_ylim() for axes in panels]
    for axes in panels:
        axes.set_ylim(min(low for low, _ in ends), max(high for _, high in ends))
