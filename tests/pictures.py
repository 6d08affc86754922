"""Figures placed but not drawn, for tests that read numbers and captions of figures.

Drawing PNG, SVG and PDF takes most of the time of a figure's function. Tests that look
at the files are marked `pictures`, at least one for each kind. Those that look at some
of them name these, as `pictures("png")`.
"""

from functools import partial

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.mathtext import MathTextParser

from curvflow.tasks.drawing import canvas

MARK = "pictures"
_measure = RendererAgg.get_text_width_height_descent
_renew = vars(Axis)["_update_ticks"]
_sizes: dict[tuple[object, ...], tuple[float, float, float]] = {}
_parse = vars(MathTextParser)["_parse_cached"].__wrapped__
_parsed: dict[tuple[object, ...], object] = {}


def measured_once(self, s, prop, ismath):
    """Return the size of a text, which each figure would measure anew."""
    hinting, fonts = (mpl.rcParams[n] for n in ("text.hinting", "mathtext.fontset"))
    key = s, hash(prop), ismath, self.dpi, hinting, fonts
    if key not in _sizes:
        _sizes[key] = _measure(self, s, prop, ismath)
    return _sizes[key]


def renewed_once(placing):
    """Return what renews an axis's ticks where its limits or its size have changed.

    Placing asks each axis a dozen times, and mostly nothing has changed.
    """
    known = {}

    def renewed(self):
        state = (*self.get_view_interval(), *self.axes.bbox.bounds)
        if known.get(self, ((), ()))[0] != state:
            known[self] = state, _renew(self)
        return known[self][1]

    placing.setattr(Axis, "_update_ticks", renewed)


def parsed_once(self, s, *how):
    """Return a parsed formula, such as a tick's: Matplotlib keeps 50 of a renderer."""
    given = mpl.rcParams["mathtext.default"], mpl.rcParams["mathtext.fontset"]
    key = self._output_type, s, *how, *given
    if key not in _parsed:
        _parsed[key] = _parse(self, s, *how)
    return _parsed[key]


# Of every test that draws or places.
MathTextParser._parse_cached = parsed_once  # type: ignore[attr-defined]


def placed(figure, drawn=()):
    """Place all parts of a figure, as drawing does; names stand for files not drawn."""
    with pytest.MonkeyPatch.context() as placing:
        renewed_once(placing)
        figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return {
        kind: canvas.picture(figure, kind)
        if kind in drawn
        else np.frombuffer(kind.encode(), np.uint8)
        for kind in canvas.OMITTED
    }


def place_only(patch, drawn=()):
    """Let figures be placed, some of their files drawn, and texts measured once."""
    patch.setattr(canvas, "pictures", partial(placed, drawn=drawn))
    patch.setattr(RendererAgg, "get_text_width_height_descent", measured_once)


@pytest.fixture(autouse=True)
def _figures_are_placed_only(request, monkeypatch):
    mark = request.node.get_closest_marker(MARK)
    if mark is None or mark.args:
        place_only(monkeypatch, mark.args if mark else ())
