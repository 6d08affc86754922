"""Figures as pictures under a cell, and as files."""

import numpy as np
import pytest

from curvflow.errors import UnknownNameError
from curvflow.flows.api import results_of
from curvflow.flows.results.picture import Picture
from tests.flows.toys import opened, run

STUDY = """
study: drawn
axes: {seed: 2, rule: {slow: {lr: 0.25}, fast: {lr: 0.75}}}
stages:
  data: {use: toy.points}
  fit: {use: toy.fit, data: data, lr: "${rule.lr}", seed: "${seed}"}
  last: {use: toy.probe, weights: fit}
  bars: {use: figure.bars, of: last, y: square, label: rule, over: seed}
  each: {use: figure.bars, of: last, y: square, label: rule}
"""


@pytest.fixture
def results(store, monkeypatch):
    # A PNG as far as it is read: a signature, and in its header width and height.
    png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (600).to_bytes(4) + (300).to_bytes(4)
    files = {"png": png, "svg": b"<svg/>", "pdf": b"%PDF"}
    drawn = {name: np.frombuffer(text, np.uint8) for name, text in files.items()}
    monkeypatch.setattr("curvflow.tasks.drawing.canvas.pictures", lambda _: drawn)
    monkeypatch.setattr("curvflow.tasks.drawing.canvas.compose", lambda *_, **how: None)
    run(store, text=STUDY)
    return results_of(opened(store, text=STUDY))


def test_a_figure_is_shown_at_the_size_of_its_print(results):
    figure = results.figure("bars")
    png, size = figure._repr_png_()
    assert png.startswith(b"\x89PNG")
    assert size == {"width": 192, "height": 96}  # 600 and 300 dots of 1/300 inch
    assert figure.caption.startswith("Mean over seed, n = 2")
    assert figure.files[".svg"] == b"<svg/>"
    assert "PNG" not in repr(figure)


def test_a_figure_without_a_png_is_not_shown():
    assert Picture("mine", "", {".svg": b"<svg/>"})._repr_png_() is None


def test_one_of_several_figures_is_named_by_its_labels(results):
    assert results.figure("each", seed=1).name == "each[seed=1]"
    assert results.sel(seed=0).figure("each").caption.endswith("at seed = 0.")
    with pytest.raises(UnknownNameError, match=r"figure\('each', seed=0\)"):
        results.figure("each")
    with pytest.raises(UnknownNameError, match="expected one of its labels"):
        results.figure("each", seed=7)


def test_a_figure_is_saved_in_the_form_of_its_suffix(results, tmp_path):
    path = results.figure("bars").save(tmp_path / "mine.pdf")
    assert path.read_bytes() == b"%PDF"
    with pytest.raises(UnknownNameError, match=r"\.png, \.svg, \.pdf, got 'mine\.gif'"):
        results.figure("bars").save(tmp_path / "mine.gif")


def test_what_draws_nothing_and_what_is_not_drawn_are_refused(results, store):
    with pytest.raises(UnknownNameError, match=r"results\['fit'\]"):
        results.figure("fit")
    with pytest.raises(UnknownNameError, match="got 'bras'"):
        results.figure("bras")
    longer = opened(store, "stages.fit.epochs=6", text=STUDY)
    with pytest.raises(UnknownNameError, match="bars: expected a figure, got none"):
        results_of(longer).figure("bars")
