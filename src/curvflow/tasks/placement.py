"""Where the panels of a figure stand, to the last bit the same whenever it is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.transforms import Bbox

STEPS = 2.0**20  # of a sheet's width and height; a fifth of a micron on 180 mm


class Placement(ConstrainedLayoutEngine):
    """Matplotlib's constrained layout, its positions rounded.

    Its solver sorts variables by their addresses in memory, so that last bits vary
    within one process (https://github.com/nucleic/kiwi/issues/57). They would show in
    the identifiers of an SVG file, which are made from positions.
    """

    def execute(self, fig: Figure) -> Any:
        """Place the panels.

        Args:
            fig: the figure.

        Returns:
            What Matplotlib's engine returns.
        """
        found = super().execute(fig)
        for axes in fig.axes:
            is_placed = axes.get_in_layout()
            corners = np.asarray(axes.get_position(original=True).extents)
            axes.set_position(Bbox.from_extents(*(np.rint(corners * STEPS) / STEPS)))
            axes.set_in_layout(is_placed)  # which setting a position ends
        return found
