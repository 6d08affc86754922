"""A panel that has nothing to show, and says so."""

from __future__ import annotations

from matplotlib.axes import Axes


def say_no_values(axes: Axes) -> None:
    """Write `no values` into a panel, without the ticks of a scale that is nobody's.

    Args:
        axes: the panel, with its scales set.
    """
    axes.text(0.5, 0.5, "no values", transform=axes.transAxes, ha="center")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks([])
        axis.set_ticks([], minor=True)
