"""Last bits of a layout do not reach the files."""

import matplotlib.layout_engine
import numpy as np
import pytest
from matplotlib.transforms import Bbox

from curvflow.tasks.drawing import canvas
from curvflow.tasks.drawing.canvas import POSITION_STEPS


def panels():
    figure = canvas.new_figure(160, 60)
    for place, limit in enumerate((1, 30, 1000), start=1):
        axes = figure.add_subplot(1, 3, place)
        axes.set_ylim(0, limit)
        axes.plot([0, 1], [0, limit])
    figure.axes[1].set_aspect(1 / 40)
    canvas.compose(figure, title=None, caption="n = 5.")
    return figure


@pytest.fixture
def shaken(monkeypatch):
    """Let the solver end a few last bits beside where it would."""
    solve = matplotlib.layout_engine.do_constrained_layout
    draws = np.random.default_rng(0)

    def do_constrained_layout(figure, **settings):
        result = solve(figure, **settings)
        for axes in figure.axes:
            bounds = np.asarray(axes.get_position(original=True).extents)
            moved = bounds * (1 + draws.integers(-4, 5, 4) * np.finfo(float).eps)
            assert (moved != bounds).any()
            axes.set_position(Bbox.from_extents(*moved))
            axes.set_in_layout(True)
        return result

    def shake():
        monkeypatch.setattr(
            matplotlib.layout_engine, "do_constrained_layout", do_constrained_layout
        )

    return shake


def test_last_bits_of_the_solver_change_no_byte(shaken):
    with canvas.default_style():
        before = canvas.pictures(panels())
        shaken()
        after = canvas.pictures(panels())
    assert {name: file.tobytes() for name, file in before.items()} == {
        name: file.tobytes() for name, file in after.items()
    }


def test_panels_stand_where_matplotlib_puts_them_and_stay_in_the_layout(monkeypatch):
    with canvas.default_style():
        ours = panels()
        ours.draw_without_rendering()
        monkeypatch.setattr(
            canvas, "RoundedLayout", matplotlib.layout_engine.ConstrainedLayoutEngine
        )
        theirs = panels()
        theirs.draw_without_rendering()
    for first, other in zip(ours.axes, theirs.axes, strict=True):
        assert first.get_in_layout()
        for original in (False, True):
            np.testing.assert_allclose(
                first.get_position(original).extents,
                other.get_position(original).extents,
                atol=1 / POSITION_STEPS,
            )
