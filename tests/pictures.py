"""Figures placed but not drawn, for tests that read numbers and captions of figures.

Drawing PNG, SVG and PDF takes most of the time of a figure's function. Tests that look
at the files are marked `pictures`, at least one for each kind.
"""

import numpy as np
import pytest

from curvflow.tasks.drawing import canvas

MARK = "pictures"


def placed(figure):
    """Place all parts of a figure, as drawing does; names stand for the files."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return {
        kind: np.frombuffer(kind.encode(), np.uint8) for kind in ("png", "svg", "pdf")
    }


@pytest.fixture(autouse=True)
def _figures_are_placed_only(request, monkeypatch):
    if not request.node.get_closest_marker(MARK):
        monkeypatch.setattr(canvas, "pictures", placed)
