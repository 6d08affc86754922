"""Points that are not converged, in curves, scatter plots, bars and heat maps."""

import numpy as np
import pytest

from curvflow.tasks.drawing import canvas
from tests.tasks.measured_nodes import compute, node, toy_kinds

EPOCHS = (0, 5, 10, 20, 40)
ASKED = {
    "figure.lines": {"y": "llc_mean", "over": "seed"},
    "figure.scatter": {"x": "init_loss", "y": "llc_mean", "each": ["epoch", "seed"]},
    "figure.bars": {"y": "llc_mean", "label": "epoch", "over": "seed"},
    "figure.heatmap": {"z": "llc_mean", "x": "epoch", "y": "seed"},
}


@pytest.fixture(autouse=True)
def _toys():
    with toy_kinds():
        yield


def value(epoch, seed):
    return -35.0 - 5 * seed if epoch == 0 else 8.0 + epoch / 8 + seed


def chains(bad=((0, 0), (0, 1), (0, 2))):
    return [
        node(
            {"epoch": epoch, "seed": seed},
            stage="llc",
            kind="probe.llc",
            llc_mean=value(epoch, seed),
            init_loss=1.0 / (1 + epoch),
            verdict="negative" if (epoch, seed) in bad else "converged",
        )
        for epoch in EPOCHS
        for seed in range(3)
    ]


@pytest.fixture
def panel(monkeypatch):
    """Draw a figure; return its arrays and its panel."""
    sheets = []
    kept = canvas.compose

    def compose(figure, **given):
        sheets.append(figure)
        kept(figure, **given)

    monkeypatch.setattr(canvas, "compose", compose)

    def draw(name, of, **params):
        got = compute(name, of, **ASKED[name], **params).arrays
        return got, sheets[-1].axes[0]

    return draw


@pytest.mark.parametrize("name", ["figure.lines", "figure.scatter"])
def test_a_scale_is_that_of_converged_points_and_others_stand_at_its_edge(panel, name):
    got, axes = panel(name, chains())
    assert axes.get_ylim()[0] > 0
    assert axes.get_ylim()[1] < 30
    edge = [line for line in axes.lines if line.get_marker() == "v"]
    assert [line.get_ydata()[0] for line in edge] == [axes.get_ylim()[0]]
    number = {"figure.lines": 1, "figure.scatter": 3}[name]
    noun = "point" if number == 1 else "points"
    text = str(got["caption"])
    assert f"marked at their edge: {number} {noun}." in text
    assert "Not converged, drawn hollow: 3 of 15 nodes." in text
    assert got["unconverged"].sum() == 3


@pytest.mark.parametrize("name", ["figure.lines", "figure.scatter"])
def test_shown_as_others_they_set_the_scale(panel, name):
    got, axes = panel(name, chains(), unconverged="show")
    assert axes.get_ylim()[0] < -35
    assert "drawn all the same: 3 of 15 nodes." in str(got["caption"])
    assert not [line for line in axes.lines if line.get_markerfacecolor() == "white"]


@pytest.mark.parametrize("name", ["figure.lines", "figure.scatter"])
def test_points_in_doubt_near_the_others_are_hollow_in_their_place(panel, name):
    got, axes = panel(name, chains(bad=[(10, 1), (40, 0)]))
    hollow = [
        y
        for line in axes.lines
        if line.get_markerfacecolor() == "white" and line.get_marker() not in "v^<>"
        for y in line.get_ydata()
    ]
    lines = [value(epoch, 1) for epoch in (10, 40)]  # the means over seeds
    alone = [value(10, 1), value(40, 0)]
    assert hollow == pytest.approx(lines if name == "figure.lines" else alone)
    assert "Beyond" not in str(got["caption"])


def test_a_logarithmic_axis_is_that_of_converged_points(panel):
    of = chains(bad=[(0, seed) for seed in range(3)])
    for one in of:
        if one.coords["epoch"] == 0:
            one.arrays["llc_mean"] = np.array(1e9)
    _, axes = panel("figure.lines", of, log_y=True)
    assert axes.get_ylim()[1] < 100
    assert [line.get_marker() for line in axes.lines][-1] == "^"


@pytest.mark.parametrize("name", sorted(ASKED))
def test_values_left_out_are_in_no_mean_and_counted_as_not_converged_alone(name):
    got = compute(name, chains(), **ASKED[name], unconverged="exclude").arrays
    means = got["y" if name == "figure.scatter" else "mean"]
    assert np.nanmin(means) > 0
    assert np.isnan(means).any()
    text = str(got["caption"])
    assert "Not converged, left out: 3 of 15 nodes." in text
    assert "Not finite" not in text


@pytest.mark.parametrize("name", sorted(ASKED))
def test_figures_without_doubts_are_the_same_whatever_is_asked(name):
    of = chains(bad=())
    kinds = ["show", "exclude"] + ["mark"] * (
        name in ("figure.lines", "figure.scatter")
    )
    first, *others = (
        compute(name, of, **ASKED[name], unconverged=how).arrays for how in kinds
    )
    for other in others:
        assert other.keys() == first.keys()
        for key, values in first.items():
            np.testing.assert_array_equal(values, other[key])
