from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure
from pydantic import ValidationError

from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.figures.stem import StemFigureParams
from curvflow.schemas.nodes import Member
from curvflow.tasks.drawing.spectra import WeightedPoints, ritz_points
from curvflow.tasks.figures import stem
from curvflow.tasks.registry import Machine, find
from curvflow.tasks.statistics.label_groups import node_groups
from tests.tasks.figures.ritz_nodes import as_matrix, ritz, wigner

W = wigner(40)


def draw(of, matrix=(), **params):
    given = {"of": of, "matrix": matrix} if matrix else {"of": of}
    checked = find_kind("figure.stem").params(**params)
    (outcome,) = find("figure.stem").compute([Member(checked, given)], Machine())
    return outcome.arrays


def test_stems_are_the_ritz_values_and_their_weights():
    node = ritz(W, 6)
    got = draw([node])
    np.testing.assert_array_equal(got["eigenvalue"], node["ritz_values"][0])
    np.testing.assert_array_equal(got["weight"], node["ritz_weights"][0])
    assert set(got["source"].tolist()) == {"ritz"}
    assert str(got["caption"]).startswith(
        "Ritz values of 1 Lanczos run of 6 steps, and their weights."
    )


def test_weights_of_several_runs_sum_to_one():
    got = draw([ritz(W, 6, 3)])
    assert got["weight"].sum() == pytest.approx(1, rel=1e-12)


def test_histograms_stand_behind_the_stems_of_their_matrix():
    of = [ritz(W, m, m=m) for m in (5, 10)]
    got = draw(
        of, [as_matrix(W)], label="m", compare=["eigenvalues", "diagonal"], bins=20
    )
    for label in ("5", "10"):
        of_label = got["label"] == label
        for source, count in (
            ("eigenvalues", 20),
            ("diagonal", 20),
            ("ritz", int(label)),
        ):
            of_source = of_label & (got["source"] == source)
            assert of_source.sum() == count
            assert got["weight"][of_source].sum() == pytest.approx(1, rel=1e-12)
        diagonal = of_label & (got["source"] == "diagonal") & (got["weight"] > 0)
        # A diagonal says nothing of the width of the spectrum.
        reach = np.abs(got["eigenvalue"][diagonal]).max()
        assert reach < 0.5 * np.abs(np.linalg.eigvalsh(W)).max()


@pytest.mark.parametrize("log_y", [True, False])
def test_histograms_are_as_high_as_their_shares(log_y):
    shares = np.array([0.6, 0.3, 0.1])
    points = WeightedPoints(np.array([1.0, 2.0, 3.0]), shares)
    params = StemFigureParams(compare=["diagonal"], floor=0.2, log_y=log_y)
    panel = stem.Panel(node_groups([ritz(W, 3)], None)[0], {"diagonal": points})
    axes = Figure().add_subplot()
    stem._draw(axes, panel, params, is_first=True)
    tops = [bar.get_y() + bar.get_height() for bar in axes.patches]
    assert tops == pytest.approx(np.maximum(shares, 0.2 if log_y else 0))


def test_weights_below_the_axis_are_reported():
    got = draw([ritz(W, 6)], floor=0.9)
    assert "Below the axis: 6 weights of less than 0.9." in str(got["caption"])


@pytest.mark.parametrize(
    ("weights", "marks"),
    [
        ([0.3, 0.4, 0.3], []),
        ([0.6, 0.4, 1e-9], [3.0]),
        ([1e-9, 0.4, 0.6], [1.0]),
        ([1e-9, 1.0, 1e-9], [1.0, 3.0]),
        ([0.5, 1e-9, 0.5], []),
    ],
)
def test_ends_of_too_little_weight_are_marked_and_reported(weights, marks):
    arrays = {
        "ritz_values": np.array([[1.0, 2.0, 3.0]]),
        "ritz_weights": np.array([weights]),
    }
    points = ritz_points([replace(ritz(W, 3), arrays=arrays)])
    axes = Figure().add_subplot()
    stem._draw_stems(axes, points, 1e-6)
    drawn = [line for line in axes.lines if line.get_marker() == "^"]
    assert [list(line.get_xdata()) for line in drawn] == ([marks] if marks else [])
    assert all((line.get_ydata() == 1e-6).all() for line in drawn)
    caption = str(draw([replace(ritz(W, 3), arrays=arrays)])["caption"])
    assert ("Open triangles" in caption) == bool(marks)


def test_diverged_nodes_have_an_empty_panel_and_are_reported():
    of = [ritz(W, 5, m=5), ritz(W, 5, diverged=True, m=6)]
    got = draw(of, label="m", log_y=False)
    assert set(got["label"].tolist()) == {"5"}
    assert "Diverged, left out: 6 (1 of 1)." in str(got["caption"])


@pytest.mark.pictures
def test_the_same_input_gives_the_same_bytes():
    first, second = (draw([ritz(W, 5)]) for _ in range(2))
    assert all(a.tobytes() == second[name].tobytes() for name, a in first.items())


def test_every_declared_variable_is_there_in_its_type():
    got = draw([ritz(W, 5)])
    for variable in find_kind("figure.stem").outputs:
        array = got[variable.name]
        is_text = variable.dtype == "str"
        assert array.dtype.kind == "U" if is_text else array.dtype == variable.dtype
        assert array.ndim == len(variable.dims)


def test_one_axis_has_one_part():
    with pytest.raises(ValidationError, match="expected label to differ from over"):
        StemFigureParams(label="m", over=("m",))
