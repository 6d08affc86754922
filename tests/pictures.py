"""Figures placed but not drawn, for tests that read numbers and captions of figures.

Drawing PNG, SVG and PDF takes most of the time of a figure's function. Tests that look
at the files are marked `pictures`, at least one for each kind. Those that look at some
of them name these, as `pictures("png")`.
"""

from functools import partial

import numpy as np
import pytest

from curvflow.tasks.drawing import canvas

MARK = "pictures"


def placed(figure, drawn=()):
    """Place all parts of a figure, as drawing does; names stand for files not drawn."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return {
        kind: canvas.picture(figure, kind)
        if kind in drawn
        else np.frombuffer(kind.encode(), np.uint8)
        for kind in canvas.OMITTED
    }


@pytest.fixture(autouse=True)
def _figures_are_placed_only(request, monkeypatch):
    mark = request.node.get_closest_marker(MARK)
    if mark is None or mark.args:
        drawn = mark.args if mark else ()
        monkeypatch.setattr(canvas, "pictures", partial(placed, drawn=drawn))
