"""Loss traces of chains, running estimates, and the calibration sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from curvflow.schemas.kind import Variable
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.figures.chains import ChainsFigureParams
from curvflow.schemas.nodes import Array, Member, NodeData, Outcome
from curvflow.schemas.words import counted
from curvflow.tasks.drawing import canvas, captions
from curvflow.tasks.drawing.captions import draw_no_values
from curvflow.tasks.numerics.sampling.diagnostics import summarise
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.statistics.label_groups import (
    NodeGroup,
    node_groups,
    selection_text,
)
from curvflow.tasks.statistics.measurements import Measurement

REGULAR_STYLE: dict[str, Any] = {
    "color": canvas.PALETTE[1],
    "linestyle": (0, (4, 2)),
    "linewidth": 0.8,
}
TAKEN_STYLE: dict[str, Any] = {"color": "0.65", "linewidth": 0.8, "zorder": 0}
TRIAL_TYPES = {
    "trial_parameter": str,
    "trial_value": np.float64,
    "trial_llc": np.float64,
    "trial_sem": np.float64,
    "trial_in_plateau": np.bool_,
}


def sweep_columns(swept: Sequence[tuple[str, NodeData]]) -> dict[str, Array]:
    """Return the trials of all sweeps, concatenated.

    Args:
        swept: labels, and draws whose settings a sweep found.

    Returns:
        `trial_label`, the variables of the sweeps, and `predicted`, all (trial,).
    """
    counts = [len(draws["trial_value"]) for _, draws in swept]
    labels = np.array([label for label, _ in swept], str)
    regular = np.array([float(draws["predicted"]) for _, draws in swept])
    return {
        "trial_label": np.repeat(labels, counts),
        **{
            name: np.concatenate(
                [np.zeros(0, dtype), *(draws[name] for _, draws in swept)]
            )
            for name, dtype in TRIAL_TYPES.items()
        },
        "predicted": np.repeat(regular, counts),
    }


def sweep_caption(swept: Sequence[NodeData]) -> str:
    """Return the sentences of a caption on the panels of sweeps."""
    varied = sorted({str(draws["trial_parameter"][0]) for draws in swept})
    note = (
        f"Right: short trials that varied {' or '.join(varied)} to find the settings, "
        "bars: \u00b1 2 standard errors; filled marks are on the plateau, open ones "
        "are not; if regular: half the effective dimension."
    )
    hidden = sum(int((draws["trial_value"] <= 0).sum()) for draws in swept)
    return " ".join([note, *captions.off_scale_sentences(hidden, "trial")])


def _varied_setting(draws: NodeData) -> Measurement:
    """Return the setting that the trials varied, with its units."""
    name = str(draws["trial_parameter"][0])
    return Measurement(
        find_kind(draws.kind).output(name) or Variable(name, ""), [draws]
    )


def draw_sweep(axes: Axes, draws: NodeData | None) -> None:
    """Draw a sweep.

    Args:
        axes: the panel.
        draws: draws with the sweep of their settings; None leaves the panel empty.
    """
    if draws is None:
        axes.set_axis_off()
        return
    axes.grid(visible=True, axis="y")
    axes.set_xlabel(captions.axis_label(_varied_setting(draws)))
    axes.set_ylabel("learning coefficient")
    value, llc, sem, on = (draws[name] for name in list(TRIAL_TYPES)[1:])
    if not (value > 0).any():
        axes.text(0.5, 0.5, "no values", transform=axes.transAxes, ha="center")
        return
    axes.set_xscale("log")
    axes.set_xlim(*canvas.log_limits(value, value, value))
    canvas.set_log_ticks(axes.xaxis)
    axes.axhline(float(draws["predicted"]), **REGULAR_STYLE)
    if (taken := float(draws[str(draws["trial_parameter"][0])])) > 0:
        axes.axvline(taken, **TAKEN_STYLE)
    colour = canvas.PALETTE[0]
    for shown, face in ((on, colour), (~on, "white")):
        axes.errorbar(
            value[shown],
            llc[shown],
            2 * sem[shown],
            fmt="o",
            color=colour,
            markerfacecolor=face,
            markersize=3.5,
            markeredgewidth=0.8,
            elinewidth=1.0,
        )


WIDTHS = {2: 150.0, 3: 180.0}  # mm, by number of columns
HEIGHT = 46.0  # mm, of a row
NUM_ESTIMATES = 24  # numbers of draws at which the estimate is shown
MAX_DRAWS = 400  # draws of a chain that are shown, at equal distances
INIT_LOSS_STYLE: dict[str, Any] = {
    "color": "black",
    "linestyle": (0, (4, 2)),
    "linewidth": 0.8,
}


@dataclass(frozen=True)
class Row:
    """The draws of one label.

    Attributes:
        group: nodes of the label; the first that did not diverge is drawn.
        counts: numbers of draws, (R,).
        llc: estimate from that number of draws of each chain, (R,).
        sem: standard error of the estimate, (R,).
    """

    group: NodeGroup
    counts: Array
    llc: Array
    sem: Array

    @property
    def draws(self) -> NodeData | None:
        """The draws; None if all nodes diverged."""
        return self.group.ok[0] if self.group.ok else None

    @property
    def sweep(self) -> NodeData | None:
        """The draws if a calibration sweep found their settings, else None."""
        draws = self.draws
        return draws if draws is not None and "trial_value" in draws else None


@computes_each("figure.chains")
def figure_chains(member: Member, machine: Machine) -> Outcome:
    """Draw the losses of chains, the estimate as draws are added, and the sweep.

    Args:
        member: draws in `of`.
        machine: not used.

    Returns:
        The files `png`, `svg` and `pdf`, the caption, and the drawn numbers.

    Raises:
        InputError: no stage has the axis of `label`.
    """
    params = member.params
    assert isinstance(params, ChainsFigureParams)
    nodes = member.inputs["of"]
    rows = [_row(group) for group in node_groups(nodes, params.label)]
    caption = captions.with_absent(_caption(nodes, rows, params), member)
    columns = 3 if _sweeps(rows) else 2
    with canvas.default_style():
        height = params.height or HEIGHT * len(rows)
        figure = canvas.new_figure(params.width or WIDTHS[columns], height)
        for number, row in enumerate(rows):
            panels = [
                figure.add_subplot(len(rows), columns, columns * number + side)
                for side in range(1, columns + 1)
            ]
            _draw_losses(panels[0], row)
            _draw_running(panels[1], row)
            for panel in panels[2:]:
                draw_sweep(panel, row.sweep)
            if number < len(rows) - 1:
                for panel in panels[:2]:
                    panel.set_xlabel("")
        lines = [INIT_LOSS_STYLE, REGULAR_STYLE, TAKEN_STYLE][: 2 * columns - 3]
        canvas.compose(
            figure,
            title=params.title,
            caption=caption,
            handles=[Line2D([], [], **line) for line in lines],
            labels=["loss at the weights", "if regular", "value taken"][: len(lines)],
        )
        files = canvas.pictures(figure)
    return Outcome(
        {
            **files,
            "caption": np.array(caption),
            **_numbers(rows),
            **sweep_columns(_sweeps(rows)),
        }
    )


def _row(group: NodeGroup) -> Row:
    if not group.ok:
        return Row(group, *(np.zeros(0) for _ in range(3)))
    draws = group.ok[0]
    losses = torch.as_tensor(draws["loss_trace"], dtype=torch.float64)
    counts = np.unique(np.linspace(8, losses.shape[1], NUM_ESTIMATES).astype(np.int64))
    failed_at = torch.as_tensor(draws["failed_at"])
    init_loss, nbeta = float(draws["init_loss"]), float(draws["nbeta"])
    estimates = [
        summarise(losses[:, :count], init_loss, nbeta, failed_at) for count in counts
    ]
    llc = np.array([estimate.llc_mean for estimate in estimates])
    return Row(
        group, counts, llc, np.array([estimate.llc_sem for estimate in estimates])
    )


def _shown_draws(draws: NodeData) -> tuple[Array, Array]:
    """Return the numbers of the shown draws, (K,), and their losses, (C, K)."""
    losses = draws["loss_trace"]
    count = losses.shape[1]
    at = np.unique(np.linspace(0, count - 1, min(count, MAX_DRAWS)).astype(np.int64))
    return at + 1, losses[:, at]


def _numbers(rows: Sequence[Row]) -> dict[str, Array]:
    table: list[tuple[str, str, Array, Array, Array]] = []
    for row in rows:
        if row.draws is None:
            continue
        label, (at, losses) = str(row.group.label), _shown_draws(row.draws)
        table += [
            (label, f"chain {chain}", at, loss, np.full(len(at), np.nan))
            for chain, loss in enumerate(losses)
        ]
        table.append((label, "running", row.counts, row.llc, row.sem))
    counts = [len(at) for _, _, at, _, _ in table]
    names = {"draw": 2, "value": 3, "sem": 4}
    empty = np.zeros(0)
    return {
        "label": np.repeat(np.array([row_part[0] for row_part in table], str), counts),
        "source": np.repeat(np.array([row_part[1] for row_part in table], str), counts),
        **{
            name: np.concatenate([empty, *(row_part[place] for row_part in table)])
            for name, place in names.items()
        },
    }


def _sweeps(rows: Sequence[Row]) -> list[tuple[str, NodeData]]:
    return [
        (str(row.group.label), draws)
        for row in rows
        if (draws := row.sweep) is not None
    ]


def _caption(
    nodes: Sequence[NodeData], rows: Sequence[Row], params: ChainsFigureParams
) -> str:
    drawn = [row.draws for row in rows if row.draws is not None]
    chains = sorted({len(draws["loss_trace"]) for draws in drawn})
    selection = selection_text(drawn, params.label)
    num_chains = " or ".join(map(str, chains)) or "no"
    swept = [draws for _, draws in _sweeps(rows)]
    notes = [
        f"Left: losses at the draws of {num_chains} chains after the burn-in (over all "
        "the "
        "data, or as at_draws says), dashed: at the weights, over all the data"
        f"{selection}. "
        f"{'Middle' if swept else 'Right'}: the estimate from the draws so far, band: "
        "\u00b1 2 standard errors (mcse)."
    ]
    if swept:
        notes.append(sweep_caption(swept))
    verdicts = [(row.group.label, _verdict(row)) for row in rows]
    texts = [f"{label}: {word}".removeprefix(": ") for label, word in verdicts if word]
    if texts:
        notes.append(f"Verdict: {'; '.join(texts)}.")
    notes += [_failure_reason(row) for row in rows if row.draws is None]
    more = sum(len(row.group.ok) - 1 for row in rows if row.group.ok)
    if more:
        notes.append(f"Not drawn: {counted(more, 'further node')}.")
    return " ".join([*notes, *captions.left_out_sentences([row.group for row in rows])])


def _verdict(row: Row) -> str:
    """Return the verdict on the draws; empty if there is none."""
    node = row.draws or row.group.diverged_nodes[0]
    return str(node["verdict"]) if "verdict" in node else ""


def _failure_reason(row: Row) -> str:
    """Return why nothing of a row is drawn."""
    reason = row.group.diverged_nodes[0].reason
    return f"{row.group.label}: {reason}".removeprefix(": ")


def _draw_losses(axes: Axes, row: Row) -> None:
    axes.grid(visible=True, axis="y")
    axes.set_xlabel("draw")
    axes.set_ylabel("loss")
    if row.group.label:
        axes.set_title(canvas.escape_mathtext(row.group.title), size=7, pad=3)
    if row.draws is None:
        draw_no_values(axes)
        return
    at, losses = _shown_draws(row.draws)
    for chain, loss in enumerate(losses):
        axes.plot(at, loss, color=canvas.label_colour(chain), linewidth=0.5, alpha=0.8)
    axes.axhline(float(row.draws["init_loss"]), **INIT_LOSS_STYLE)


def _draw_running(axes: Axes, row: Row) -> None:
    axes.grid(visible=True, axis="y")
    axes.set_xlabel("draws of each chain")
    axes.set_ylabel("learning coefficient")
    if row.draws is None:
        draw_no_values(axes)
        return
    colour = canvas.PALETTE[0]
    low, high = row.llc - 2 * row.sem, row.llc + 2 * row.sem
    axes.fill_between(row.counts, low, high, color=colour, alpha=0.2, linewidth=0)
    alone = "o" if len(row.counts) == 1 else ""
    axes.plot(row.counts, row.llc, color=colour, linewidth=1.2, marker=alone)
