"""Sheets, legends, ticks and reproducible placement."""

import random
from itertools import pairwise

import matplotlib as mpl
import matplotlib.layout_engine
import numpy as np
import pytest
from matplotlib.lines import Line2D
from matplotlib.transforms import Bbox

from curvflow.errors import InputError
from curvflow.tasks.drawing import canvas
from curvflow.tasks.drawing.canvas import POSITION_STEPS
from tests.pictures import placed


def handles(count):
    return [Line2D([], [], color=canvas.label_colour(k)) for k in range(count)]


def composed(**parts):
    figure = canvas.new_figure(88, 50)
    figure.add_subplot()
    canvas.compose(figure, **{"title": None, "caption": "n = 5.", **parts})
    return figure


def test_the_users_own_settings_do_not_reach_a_figure():
    def picture():
        with canvas.default_style():
            return canvas.pictures(composed())["png"].tobytes()

    plain = picture()
    with mpl.rc_context({"axes.facecolor": "red", "font.size": 20}):
        assert picture() == plain
        assert mpl.rcParams["font.size"] == 20


def test_labels_in_one_figure_differ_in_colour_or_line():
    count = 21
    canvas.check_labels(count)
    assert (
        len({(canvas.label_colour(k), str(canvas.label_dash(k))) for k in range(count)})
        == 21
    )
    with pytest.raises(InputError, match=r"label: expected at most 21 .*, got 22"):
        canvas.check_labels(count + 1)


def test_any_label_can_be_written_and_none_is_taken_for_mathematics():
    texts = ["a_b", "$x", "$x$", "_hidden", "a\nb", "100 %", "^_{"]
    with canvas.default_style():
        for text in texts:
            placed(composed(title=text, caption=text))
        figure = composed(handles=handles(len(texts)), labels=texts)
        shown = [text.get_text() for text in figure.legends[0].get_texts()]
        assert shown == [canvas.escape_mathtext(text) for text in texts]
        canvas.pictures(figure)


def test_wrapped_lines_fit_and_lose_no_word():
    text = "Mean over seed, n = 5; band: Student's 95 % interval of the mean. " * 3
    with canvas.default_style():
        lines = canvas.wrap_text(text, 6.5, 2.0)
        assert max(canvas.text_width(line, 6.5) for line in lines) <= 2.0
    assert " ".join(lines).split() == text.split()


def test_title_legend_and_caption_come_on_top_of_the_panels_height():
    with canvas.default_style():
        bare, full = composed(), composed(title="t", handles=handles(2), labels="ab")
    assert full.get_figwidth() == bare.get_figwidth()
    assert full.get_figheight() > bare.get_figheight() > 50 * canvas.MM


def test_a_title_stands_clear_of_the_label_above_it():
    with canvas.default_style():
        figure = canvas.new_figure(88, 92)
        for row in (1, 2):
            figure.add_subplot(2, 1, row, title="title", xlabel="label")
        canvas.compose(figure, title=None, caption="")
        figure.draw_without_rendering()
        upper, lower = (axes.get_tightbbox() for axes in figure.axes)
    assert upper is not None
    assert lower is not None
    assert (upper.y0 - lower.y1) / figure.dpi > 2 * canvas.MM


@pytest.mark.parametrize("seed", range(6))
def test_a_label_beside_a_panel_stays_inside_the_sheet_and_loses_no_word(seed):
    drawn = random.Random(seed)
    words = ["trace", "(loss", "/", "parameter²)", "$x$", "learning", "coefficient"]
    rows, texts = drawn.randint(1, 3), []
    with canvas.default_style():
        figure = canvas.new_figure(88, drawn.uniform(20, 60) * rows)
        for row in range(rows):
            texts.append(" ".join(drawn.choices(words, k=drawn.randint(1, 9))))
            axes = figure.add_subplot(rows, 1, row + 1)
            axes.set_ylabel(canvas.escape_mathtext(texts[-1]))
        canvas.compose(figure, title="title", caption="n = 5.")
        figure.draw_without_rendering()
        labels = [axes.yaxis.label for axes in figure.axes]
        boxes = [label.get_window_extent() for label in labels]
    assert all(box.y0 >= 0 and box.y1 <= figure.bbox.y1 for box in boxes)
    assert all(low.y1 <= high.y0 for high, low in pairwise(boxes))
    shown = [" ".join(label.get_text().split()) for label in labels]
    assert shown == [canvas.escape_mathtext(text) for text in texts]


@pytest.mark.parametrize("length", [1, 12, 50])
def test_a_legend_stays_inside_the_sheet(length):
    labels = [f"{k} {'x' * length}" for k in range(9)]
    with canvas.default_style():
        figure = composed(handles=handles(9), labels=labels, label_name="rule")
        placed(figure)
        box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1
    panel = figure.axes[0].get_tightbbox()
    assert panel is not None
    assert panel.y1 <= box.y0


def test_logarithmic_limits_hold_every_mean_and_cut_bars_that_near_zero():
    mean = np.array([1.0, 100.0, np.nan, -3.0])
    half = np.array([2.0, 10.0, 0.0, 0.0])
    bottom, top = canvas.log_limits(mean, mean - half, mean + half)
    assert 0.05 < bottom < 0.1
    assert 110 < top < 200
    assert canvas.log_limits(*np.full((3, 2), np.nan)) == (1.0, 10.0)
    assert canvas.log_limits(*np.full((3, 1), 5.0)) == (2.5, 10.0)
    nothing = np.full(4, np.nan)
    assert 0.8 < canvas.log_limits(mean, nothing, nothing)[0] < 1


@pytest.mark.parametrize(
    ("limits", "labels"),
    [
        ((0.25, 4.0), ["0.5", "1", "2"]),
        ((2.2, 4.9), ["3", "4"]),
        ((1.12, 1.38), ["1.2", "1.3"]),
        ((3e-6, 8e-6), ["$3\\times10^{-6}$", "$4\\times10^{-6}$"]),
        ((5e4, 3e5), ["50000", "$1\\times10^{5}$", "$2\\times10^{5}$"]),
    ],
)
def test_a_short_logarithmic_axis_has_round_numbers_for_ticks(limits, labels):
    axes = canvas.new_figure(88, 50).add_subplot()
    axes.set_xscale("log")
    axes.set_xlim(*limits)
    canvas.set_log_ticks(axes.xaxis)
    shown = [
        text.get_text()
        for text, place in zip(axes.get_xticklabels(), axes.get_xticks(), strict=True)
        if limits[0] <= place <= limits[1]
    ]
    assert shown[: len(labels)] == labels
    assert axes.get_xlim() == limits


def test_a_long_logarithmic_axis_has_powers_of_ten_for_ticks():
    axes = canvas.new_figure(88, 50).add_subplot()
    axes.set_yscale("log")
    axes.set_ylim(0.03, 300)
    canvas.set_log_ticks(axes.yaxis)
    shown = [tick for tick in axes.get_yticks() if 0.03 <= tick <= 300]
    np.testing.assert_allclose(shown, [0.1, 1, 10, 100])


@pytest.mark.parametrize("limits", [(1.0, 1e305), (1e-300, 1e300), (1e-250, 1e-3)])
def test_the_longest_logarithmic_axes_have_round_powers_for_ticks(limits):
    figure = canvas.new_figure(88, 50)
    axes = figure.add_subplot()
    axes.set_yscale("log")
    axes.set_ylim(*limits)
    canvas.set_log_ticks(axes.yaxis)
    figure.draw_without_rendering()
    powers = np.log10(axes.get_yticks())
    assert 3 <= len(powers) <= 7
    np.testing.assert_allclose(powers % 50, 0, atol=1e-9)


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
