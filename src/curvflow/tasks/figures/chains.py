"""Traces of chains, and what they come to."""

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
from curvflow.tasks.drawing.captions import say_no_values
from curvflow.tasks.numerics.sampling.diagnostics import summarise
from curvflow.tasks.registry import Machine, computes_each
from curvflow.tasks.statistics.label_groups import (
    NodeGroup,
    node_groups,
    selection_text,
)
from curvflow.tasks.statistics.measurements import Measurement

REGULAR: dict[str, Any] = {
    "color": canvas.PALETTE[1],
    "linestyle": (0, (4, 2)),
    "linewidth": 0.8,
}
TAKEN: dict[str, Any] = {"color": "0.65", "linewidth": 0.8, "zorder": 0}
TRIED = {
    "trial_parameter": str,
    "trial_value": np.float64,
    "trial_llc": np.float64,
    "trial_sem": np.float64,
    "trial_in_plateau": np.bool_,
}


def numbers(swept: Sequence[tuple[str, NodeData]]) -> dict[str, Array]:
    """Return the trials of all sweeps, one behind the other.

    Args:
        swept: labels, and draws whose settings a sweep found.

    Returns:
        `trial_label`, what the sweeps told, and `predicted`, all (trial,).
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
            for name, dtype in TRIED.items()
        },
        "predicted": np.repeat(regular, counts),
    }


def captions_of_sweep(swept: Sequence[NodeData]) -> str:
    """Return what a caption says of the panels."""
    varied = sorted({str(draws["trial_parameter"][0]) for draws in swept})
    note = (
        f"Right: short trials that varied {' or '.join(varied)} to find the settings, "
        "bars: \u00b1 2 standard errors; filled marks are on the plateau, open ones "
        "are not; if regular: half the effective dimension."
    )
    hidden = sum(int((draws["trial_value"] <= 0).sum()) for draws in swept)
    return " ".join([note, *captions.off_scale(hidden, "trial")])


def _varied(draws: NodeData) -> Measurement:
    """Return the setting that the trials varied, with its units."""
    name = str(draws["trial_parameter"][0])
    return Measurement(
        find_kind(draws.kind).output(name) or Variable(name, ""), [draws]
    )


def draw(axes: Axes, draws: NodeData | None) -> None:
    """Draw a sweep.

    Args:
        axes: the panel.
        draws: whose settings it found; None leaves the panel empty.
    """
    if draws is None:
        axes.set_axis_off()
        return
    axes.grid(visible=True, axis="y")
    axes.set_xlabel(captions.axis_label(_varied(draws)))
    axes.set_ylabel("learning coefficient")
    value, llc, sem, on = (draws[name] for name in list(TRIED)[1:])
    if not (value > 0).any():
        axes.text(0.5, 0.5, "no values", transform=axes.transAxes, ha="center")
        return
    axes.set_xscale("log")
    axes.set_xlim(*canvas.log_limits(value, value, value))
    canvas.set_log_ticks(axes.xaxis)
    axes.axhline(float(draws["predicted"]), **REGULAR)
    if (taken := float(draws[str(draws["trial_parameter"][0])])) > 0:
        axes.axvline(taken, **TAKEN)
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


WIDTHS = {2: 150.0, 3: 180.0}  # mm, by the panels of a row
HEIGHT = 46.0  # mm, of a row
RUNNING = 24  # numbers of draws at which the estimate is told
MOST = 400  # draws of a chain that are drawn, at equal distances
INIT_LOSS: dict[str, Any] = {
    "color": "black",
    "linestyle": (0, (4, 2)),
    "linewidth": 0.8,
}


@dataclass(frozen=True)
class Row:
    """The draws of one label.

    Attributes:
        company: the nodes of the label; the first that did not diverge is drawn.
        counts: numbers of draws, (R,).
        llc: estimate from so many draws of each chain, (R,).
        sem: its standard error, (R,).
    """

    company: NodeGroup
    counts: Array
    llc: Array
    sem: Array

    @property
    def draws(self) -> NodeData | None:
        """The draws, if there are any."""
        return self.company.ok[0] if self.company.ok else None

    @property
    def swept(self) -> NodeData | None:
        """The draws, if a sweep found their settings."""
        draws = self.draws
        return draws if draws is not None and "trial_value" in draws else None


@computes_each("figure.chains")
def figure_chains(member: Member, machine: Machine) -> Outcome:
    """Draw the losses of chains, the estimate as draws are added, and the sweep.

    Args:
        member: draws in `of`.
        machine: not used.

    Returns:
        The files `png`, `svg` and `pdf`, the caption, and the numbers drawn.

    Raises:
        InputError: there is no such label.
    """
    params = member.params
    assert isinstance(params, ChainsFigureParams)
    nodes = member.inputs["of"]
    rows = [_row(company) for company in node_groups(nodes, params.label)]
    caption = _caption(nodes, rows, params)
    columns = 3 if _swept(rows) else 2
    with canvas.quiet_style():
        height = params.height or HEIGHT * len(rows)
        figure = canvas.sheet(params.width or WIDTHS[columns], height)
        for number, row in enumerate(rows):
            panels = [
                figure.add_subplot(len(rows), columns, columns * number + side)
                for side in range(1, columns + 1)
            ]
            _draw_losses(panels[0], row)
            _draw_running(panels[1], row)
            for panel in panels[2:]:
                draw(panel, row.swept)
            if number < len(rows) - 1:
                for panel in panels[:2]:
                    panel.set_xlabel("")
        lines = [INIT_LOSS, REGULAR, TAKEN][: 2 * columns - 3]
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
            **numbers(_swept(rows)),
        }
    )


def _row(company: NodeGroup) -> Row:
    if not company.ok:
        return Row(company, *(np.zeros(0) for _ in range(3)))
    draws = company.ok[0]
    losses = torch.as_tensor(draws["loss_trace"], dtype=torch.float64)
    counts = np.unique(np.linspace(8, losses.shape[1], RUNNING).astype(np.int64))
    failed_at = torch.as_tensor(draws["failed_at"])
    init_loss, nbeta = float(draws["init_loss"]), float(draws["nbeta"])
    found = [
        summarise(losses[:, :count], init_loss, nbeta, failed_at) for count in counts
    ]
    llc = np.array([one.llc_mean for one in found])
    return Row(company, counts, llc, np.array([one.llc_sem for one in found]))


def _kept(draws: NodeData) -> tuple[Array, Array]:
    """Return numbers of the draws that are drawn, (K,), and their losses, (C, K)."""
    losses = draws["loss_trace"]
    count = losses.shape[1]
    at = np.unique(np.linspace(0, count - 1, min(count, MOST)).astype(np.int64))
    return at + 1, losses[:, at]


def _numbers(rows: Sequence[Row]) -> dict[str, Array]:
    table: list[tuple[str, str, Array, Array, Array]] = []
    for row in rows:
        if row.draws is None:
            continue
        label, (at, losses) = str(row.company.label), _kept(row.draws)
        table += [
            (label, f"chain {chain}", at, loss, np.full(len(at), np.nan))
            for chain, loss in enumerate(losses)
        ]
        table.append((label, "running", row.counts, row.llc, row.sem))
    counts = [len(at) for _, _, at, _, _ in table]
    names = {"draw": 2, "value": 3, "sem": 4}
    empty = np.zeros(0)
    return {
        "label": np.repeat(np.array([one[0] for one in table], str), counts),
        "source": np.repeat(np.array([one[1] for one in table], str), counts),
        **{
            name: np.concatenate([empty, *(one[place] for one in table)])
            for name, place in names.items()
        },
    }


def _swept(rows: Sequence[Row]) -> list[tuple[str, NodeData]]:
    return [
        (str(row.company.label), draws)
        for row in rows
        if (draws := row.swept) is not None
    ]


def _caption(
    nodes: Sequence[NodeData], rows: Sequence[Row], params: ChainsFigureParams
) -> str:
    drawn = [row.draws for row in rows if row.draws is not None]
    chains = sorted({len(draws["loss_trace"]) for draws in drawn})
    where = selection_text(drawn, params.label)
    many = " or ".join(map(str, chains)) or "no"
    swept = [draws for _, draws in _swept(rows)]
    notes = [
        f"Left: losses at the draws of {many} chains after the burn-in (over all the "
        "data, or as at_draws says), dashed: at the weights, over all the data"
        f"{where}. "
        f"{'Middle' if swept else 'Right'}: the estimate from the draws so far, band: "
        "\u00b1 2 standard errors (mcse)."
    ]
    if swept:
        notes.append(captions_of_sweep(swept))
    judged = [(row.company.label, _verdict(row)) for row in rows]
    told = [f"{label}: {word}".removeprefix(": ") for label, word in judged if word]
    if told:
        notes.append(f"Verdict: {'; '.join(told)}.")
    notes += [_why(row) for row in rows if row.draws is None]
    more = sum(len(row.company.ok) - 1 for row in rows if row.company.ok)
    if more:
        notes.append(f"Not drawn: {counted(more, 'further node')}.")
    return " ".join([*notes, *captions.left_out([row.company for row in rows])])


def _verdict(row: Row) -> str:
    """Return that of the draws; of chains that all failed there are none."""
    found = row.draws or row.company.diverged_nodes[0]
    return str(found["verdict"]) if "verdict" in found else ""


def _why(row: Row) -> str:
    """Say why nothing of a row is drawn."""
    return f"{row.company.label}: {row.company.diverged_nodes[0].reason}".removeprefix(
        ": "
    )


def _draw_losses(axes: Axes, row: Row) -> None:
    axes.grid(visible=True, axis="y")
    axes.set_xlabel("draw")
    axes.set_ylabel("loss")
    if row.company.label:
        axes.set_title(canvas.literal(row.company.title), size=7, pad=3)
    if row.draws is None:
        say_no_values(axes)
        return
    at, losses = _kept(row.draws)
    for chain, loss in enumerate(losses):
        axes.plot(at, loss, color=canvas.colour(chain), linewidth=0.5, alpha=0.8)
    axes.axhline(float(row.draws["init_loss"]), **INIT_LOSS)


def _draw_running(axes: Axes, row: Row) -> None:
    axes.grid(visible=True, axis="y")
    axes.set_xlabel("draws of each chain")
    axes.set_ylabel("learning coefficient")
    if row.draws is None:
        say_no_values(axes)
        return
    colour = canvas.PALETTE[0]
    low, high = row.llc - 2 * row.sem, row.llc + 2 * row.sem
    axes.fill_between(row.counts, low, high, color=colour, alpha=0.2, linewidth=0)
    alone = "o" if len(row.counts) == 1 else ""
    axes.plot(row.counts, row.llc, color=colour, linewidth=1.2, marker=alone)
