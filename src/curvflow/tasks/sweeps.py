"""The sweep that found the settings of chains, as a panel of a figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from curvflow.schemas.kinds import find_kind
from curvflow.schemas.nodes import Array, NodeData
from curvflow.schemas.variables import Variable
from curvflow.tasks import captions, drawing
from curvflow.tasks.measurements import Measured

REGULAR: dict[str, Any] = {
    "color": drawing.PALETTE[1],
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


def told(swept: Sequence[NodeData]) -> str:
    """Return what a caption says of the panels."""
    varied = sorted({str(draws["trial_parameter"][0]) for draws in swept})
    note = (
        f"Right: short trials that varied {' or '.join(varied)} to find the settings, "
        "bars: \u00b1 2 standard errors; filled marks are on the plateau, open ones "
        "are not; if regular: half the effective dimension."
    )
    hidden = sum(int((draws["trial_value"] <= 0).sum()) for draws in swept)
    return " ".join([note, *captions.off_scale(hidden, "trial")])


def _varied(draws: NodeData) -> Measured:
    """Return the setting that the trials varied, with its units."""
    name = str(draws["trial_parameter"][0])
    return Measured(find_kind(draws.kind).output(name) or Variable(name, ""), [draws])


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
    axes.set_xlim(*drawing.log_limits(value, value, value))
    drawing.set_log_ticks(axes.xaxis)
    axes.axhline(float(draws["predicted"]), **REGULAR)
    if (taken := float(draws[str(draws["trial_parameter"][0])])) > 0:
        axes.axvline(taken, **TAKEN)
    colour = drawing.PALETTE[0]
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
