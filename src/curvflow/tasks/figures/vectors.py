"""Arrows of the weights of units with two inputs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from matplotlib.ticker import FixedLocator

from curvflow.errors import InputError, nearest
from curvflow.schemas.kinds.figures.vectors import VectorsParams
from curvflow.schemas.nodes import Array, Label, Member, NodeData, Outcome
from curvflow.tasks.drawing import canvas, captions
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.statistics.label_groups import ValueGroup


def planar_rows(node: NodeData, tensor: str) -> list[tuple[str, Array]]:
    """Return the rows of two entries of a network's parameter tensors.

    PyTorch is not needed: the names and shapes are stored with the weights.

    Args:
        node: `weights` (D,) and `network`.
        tensor: name of a tensor, or a prefix of several names.

    Returns:
        The tensor's name, with the row's number if it has rows, and the two entries of
        each row.

    Raises:
        InputError: no tensor of that name has rows of two entries.
    """
    parts = dict(_tensors(node))
    names = [tensor] if tensor in parts else [n for n in parts if n.startswith(tensor)]
    rows = [row for name in names for row in _rows(name, parts[name])]
    if not rows:
        planar = [name for name, part in parts.items() if _rows(name, part)]
        shapes = ", ".join(f"{name} {parts[name].shape}" for name in names)
        raise InputError(
            f"tensor: expected the name of a tensor whose rows have two entries, got "
            f"{shapes or repr(tensor)}. {nearest(tensor, planar) or 'There is none.'}"
        )
    return rows


def _tensors(node: NodeData) -> Iterator[tuple[str, Array]]:
    start = 0
    for name, shape in json.loads(str(node["network"]))["parameters"]:
        stop = start + math.prod(shape)
        yield name, node["weights"][start:stop].reshape(shape)
        start = stop


def _rows(name: str, part: Array) -> list[tuple[str, Array]]:
    if part.shape == (2,):
        return [(name, part)]
    # A filter over one channel has the shape (1, 2).
    if part.shape[-1:] != (2,) or math.prod(part.shape[1:]) != 2:
        return []
    return [(f"{name}[{n}]", row) for n, row in enumerate(part.reshape(-1, 2))]


WIDTHS = (60.0, 88.0, 130.0, 180.0)  # mm, by number of columns
FRAME = 12.0  # mm: an axis with its labels
GAP = 3.0  # mm, between panels
LINE = 3.5  # mm, of a title
MIN_SIDE = 8.0  # mm, of a panel
TITLE_SIZE = 7.0
ARROW_HEAD = 6.0  # points: head of an arrow that is long enough
INNER_FRACTION = 0.88  # of a panel's half width, where labels of ticks fit
MANY_ARROWS = 40  # arrows from which on they are drawn fainter


@dataclass
class Panel(ValueGroup):
    """The networks of one label.

    Attributes:
        networks: the drawn networks, with the names and entries of their rows.
    """

    networks: list[tuple[NodeData, list[tuple[str, Array]]]] = field(
        default_factory=list
    )

    @property
    def arrows(self) -> Array:
        """Entries of all drawn rows, shape (arrows, 2)."""
        rows = [row for _, rows in self.networks for _, row in rows]
        return np.array(rows, dtype=np.float64).reshape(-1, 2)


@computes_each("figure.vectors")
def figure_vectors(member: Member, machine: Machine) -> Outcome:
    """Draw the rows of a weight matrix as arrows from the origin, a panel per label.

    Args:
        member: the networks; panels exclude diverged networks, which the caption
            counts.
        machine: not used.

    Returns:
        The files `png`, `svg` and `pdf`, the caption, and the drawn numbers.

    Raises:
        InputError: there is no such tensor, its rows do not have two entries, or the
            label is not an axis of the networks.
    """
    params = member.params
    assert isinstance(params, VectorsParams)
    panels = _panels(member.inputs["weights"], params)
    caption = captions.with_absent(
        _caption(panels, member.inputs["weights"], params), member
    )
    largest = [float(np.abs(panel.arrows).max(initial=0)) for panel in panels]
    if params.limits == "equal":
        largest = [max(largest)] * len(panels)
    with canvas.default_style():
        figure, size = _new_figure(params, panels)
        for axes, panel, limit in zip(figure.axes, panels, largest, strict=True):
            _draw(axes, panel, 1.08 * limit or 1.0, size)
        canvas.compose(figure, title=params.title, caption=caption)
        files = canvas.pictures(figure)
    return Outcome({**files, "caption": np.array(caption), **_numbers(panels, params)})


def _panels(nodes: Sequence[NodeData], params: VectorsParams) -> list[Panel]:
    panels: dict[Label, Panel] = {}
    for node in nodes:
        if params.label is not None and params.label not in node.coords:
            raise InputError(
                f"label: expected an axis of {node.stage}, got '{params.label}'. "
                f"{nearest(params.label, node.coords) or 'It has none.'}"
            )
        key = "" if params.label is None else node.coords[params.label]
        panel = panels.setdefault(key, Panel(key))
        panel.nodes += 1
        if node.status == "diverged":
            panel.diverged += 1
        elif params.show == "all" or not panel.networks:
            rows = planar_rows(node, params.tensor)
            panel.rows += [([], row) for _, row in rows]
            finite = [(name, row) for name, row in rows if np.isfinite(row).all()]
            panel.networks.append((node, finite))
    return list(panels.values())


def _numbers(panels: Sequence[Panel], params: VectorsParams) -> dict[str, Array]:
    names = [
        (str(panel.label), _network_text(node, params.label), unit)
        for panel in panels
        for node, rows in panel.networks
        for unit, _ in rows
    ]
    columns = list(zip(*names, strict=True)) or [(), (), ()]
    texts = ("label", "network", "unit")
    arrows = np.concatenate([panel.arrows for panel in panels])
    return {
        "panel": np.array([str(panel.label) for panel in panels]),
        "networks": np.array([len(p.networks) for p in panels], dtype=np.int64),
        "diverged": np.array([panel.diverged for panel in panels], dtype=np.int64),
        **{n: np.array(column, str) for n, column in zip(texts, columns, strict=True)},
        "first": arrows[:, 0],
        "second": arrows[:, 1],
    }


def _network_text(node: NodeData, label: str | None) -> str:
    return ", ".join(f"{a} = {v}" for a, v in node.coords.items() if a != label)


def _caption(
    panels: Sequence[Panel], nodes: Sequence[NodeData], params: VectorsParams
) -> str:
    rows = [len(rows) for panel in panels for _, rows in panel.networks]
    text = f"Arrows: rows of {params.tensor}, {_range_text(rows)} of each network"
    labels_of_axis: dict[str, set[Label]] = {}
    for node in nodes:
        for axis, label in node.coords.items():
            labels_of_axis.setdefault(axis, set()).add(label)
    others = {
        axis: axis_labels
        for axis, axis_labels in labels_of_axis.items()
        if axis != params.label
    }
    if varying := [
        axis for axis, axis_labels in others.items() if len(axis_labels) > 1
    ]:
        counts = [len(panel.networks) for panel in panels if panel.networks]
        networks = f"all {_range_text(counts)}" if params.show == "all" else "the first"
        text += f"; {networks} of {', '.join(varying)}"
    fixed = [f"{axis} = {label}" for axis, (label, *more) in others.items() if not more]
    text += f", at {', '.join(fixed)}" if fixed else ""
    notes = [f"{text}."]
    if len(panels) > 1:
        scale = "equal" if params.limits == "equal" else "each panel's own"
        notes.append(f"Scales: {scale}.")
    return " ".join([*notes, *captions.left_out_sentences(panels)])


def _range_text(counts: Sequence[int]) -> str:
    least, most = min(counts, default=0), max(counts, default=0)
    return str(most) if least == most else f"{least} to {most}"


def _new_figure(params: VectorsParams, panels: Sequence[Panel]) -> tuple[Figure, float]:
    """Return a sheet with its panels named, and a panel's side in points."""
    columns = min(len(panels), len(WIDTHS))
    rows = -(-len(panels) // columns)
    width = params.width or WIDTHS[columns - 1]
    # Panels with different scales have an axis each.
    is_equal = params.limits == "equal"
    side = (width - FRAME) / columns - GAP if is_equal else width / columns - FRAME
    side = max(side, MIN_SIDE)
    titles = [
        canvas.wrap_text(str(panel.label), TITLE_SIZE, side / 25.4) for panel in panels
    ]
    named = LINE * max(map(len, titles)) if params.label is not None else 0.0
    each = side + named + (GAP if is_equal else FRAME - GAP)
    height = params.height or rows * each + FRAME - GAP
    figure = canvas.new_figure(width, height)
    for number, title in enumerate(titles):
        axes = figure.add_subplot(rows, columns, number + 1)
        axes.set_title(canvas.escape_lines(title), size=TITLE_SIZE, pad=3)
        is_left, is_last = number % columns == 0, number + columns >= len(panels)
        if is_left:
            axes.set_ylabel("second weight")
        if is_last:
            axes.set_xlabel("first weight")
        if is_equal:
            axes.tick_params(labelleft=is_left, labelbottom=is_last)
    return figure, side / 25.4 * 72


def _ticks(limit: float) -> list[float]:
    """Return round numbers away from the ends, next to which another panel begins."""
    ticks: list[float] = []
    for most in (4, 6, 8):
        candidates = canvas.round_ticks(most).tick_values(-limit, limit)
        ticks = [tick for tick in candidates if abs(tick) <= INNER_FRACTION * limit]
        if len(ticks) >= 3:
            break
    return ticks


def _draw(axes: Axes, panel: Panel, limit: float, side: float) -> None:
    axes.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(FixedLocator(_ticks(limit)))
    axes.axhline(0, color="0.8", linewidth=0.5, zorder=0)
    axes.axvline(0, color="0.8", linewidth=0.5, zorder=0)
    arrows = panel.arrows
    if not len(arrows):
        reason = captions.missing_reason(panel)
        axes.text(0.5, 0.6, reason, transform=axes.transAxes, ha="center", size=7)
    for first, second in arrows.tolist():
        length = np.hypot(first, second) / (2 * limit) * side
        arrow = FancyArrowPatch(
            (0, 0),
            (first, second),
            arrowstyle="-|>",
            mutation_scale=min(ARROW_HEAD, length),
            shrinkA=0,
            shrinkB=0,
            linewidth=0.8,
            color=canvas.label_colour(0),
            alpha=0.8 if len(arrows) < MANY_ARROWS else 0.4,
        )
        if length > 0:
            axes.add_patch(arrow)
