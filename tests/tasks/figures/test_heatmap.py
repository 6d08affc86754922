import io

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import Normalize, to_rgba
from matplotlib.figure import Figure
from PIL import Image
from pydantic import ValidationError

from curvflow.errors import InputError, StudyError
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.figures.heatmap import HeatmapParams
from curvflow.schemas.study.study import load_study
from curvflow.tasks.figures import heatmap
from tests.tasks.measured_nodes import compute, node, toy_kinds

RULES = ("sgd", "adam")
WIDTHS = (16, 4, 8)


@pytest.fixture(autouse=True)
def _toys():
    with toy_kinds():
        yield


def trace(rule, width, seed):
    return 1.0 + 10 * RULES.index(rule) + width + 0.5 * seed


def nodes(diverged=(), sign=1, **coords):
    return [
        node(
            {"rule": rule, "width": width, "seed": s, **coords},
            trace=sign * trace(rule, width, s),
            diverged=(rule, width, s) in diverged,
        )
        for rule in RULES
        for width in WIDTHS
        for s in range(3)
    ]


def draw(of, **params):
    given = {"z": "trace", "x": "width", "y": "rule", "over": "seed", **params}
    return compute("figure.heatmap", of, **given).arrays


def test_cells_are_means_and_numbers_are_in_order():
    got = draw(nodes())
    assert got["x"].tolist() == ["4", "8", "16"]
    assert got["y"].tolist() == ["sgd", "adam"]
    known = [[[trace(r, w, 1) for w in (4, 8, 16)] for r in RULES]]
    np.testing.assert_allclose(got["mean"], known, rtol=1e-12)
    assert (got["count"] == 3).all()
    assert str(got["caption"]) == "Mean over seed, n = 3."


def test_numbers_go_upwards():
    got = draw(nodes(), x="rule", y="width")
    assert got["y"].tolist() == ["16", "8", "4"]
    assert got["mean"][0, 0, 0] == pytest.approx(trace("sgd", 16, 1))


def test_what_diverged_is_counted_and_in_no_mean():
    gone = {("sgd", 4, 0), *(("adam", 8, s) for s in range(3))}
    got = draw(nodes(diverged=gone))
    assert got["mean"][0, 0, 0] == pytest.approx(
        (trace("sgd", 4, 1) + trace("sgd", 4, 2)) / 2
    )
    assert np.isnan(got["mean"][0, 1, 1])
    assert got["diverged"].tolist() == [[[1, 0, 0], [0, 3, 0]]]
    assert str(got["caption"]).endswith(
        "Diverged, left out: 4 nodes in 2 of 6 cells; 1 without any value."
    )


def test_cells_say_by_hatching_what_diverged_and_by_grey_what_is_not_there():
    of = nodes(diverged={("sgd", 4, 0), *(("adam", 8, s) for s in range(3))})
    of = [n for n in of if (n.coords["rule"], n.coords["width"]) != ("adam", 16)]
    got = draw(of)
    assert got["nodes"].tolist() == [[[3, 3, 3], [3, 3, 0]]]
    axes = Figure().add_subplot()
    part = {name: got[name][0] for name in heatmap.COUNTS}
    heatmap._draw_panel(axes, part, Normalize(0, 30))
    result = {
        (int(patch.get_y()), int(patch.get_x())): patch.get_hatch()
        for patch in axes.patches
    }
    assert result == {(0, 0): heatmap.HATCH, (1, 1): heatmap.HATCH, (1, 2): None}
    _, labels = heatmap._legend(got)
    assert labels == ["some diverged", "all diverged", "no node"]


def test_values_that_are_not_finite_are_reported():
    of = nodes()
    of[0].arrays["trace"] = np.array(np.nan)
    got = draw(of)
    assert got["nonfinite"].sum() == 1
    assert str(got["caption"]).endswith("Not finite, left out: 1 value.")


@pytest.mark.pictures("png")
def test_labels_have_panels_with_one_scale():
    got = draw(nodes(data="xor") + nodes(data="digits"), label="data")
    assert got["panel"].tolist() == ["xor", "digits"]
    assert got["mean"].shape == (2, 2, 3)
    assert Image.open(io.BytesIO(bytes(got["png"]))).width == int(150 / 25.4 * 300)


@pytest.mark.parametrize(
    ("mean", "texts"),
    [
        ([0.5, 0.519], ["0.500", "0.519"]),
        ([-12.0, 3.0], [f"{heatmap.MINUS}12.0", "3.0"]),
        ([1234.0, 56.0], ["1234", "56"]),
        ([1e-6, 2.0], [f"1e{heatmap.MINUS}6", "2"]),
        ([np.nan, 2.0], ["2.00"]),
        ([0.0, 0.0], ["0.00", "0.00"]),
    ],
)
def test_cells_have_three_digits(mean, texts):
    assert list(heatmap._mean_texts(np.array([[mean]])).values()) == texts


def test_means_are_printed_where_all_have_room_in_a_colour_that_can_be_read():
    got = draw(nodes())
    norm = Normalize(0, 30)
    for columns, is_room in ((3, True), (60, False)):
        figure = Figure(figsize=(3.4, 2), dpi=300)
        figure.add_subplot()
        mean = np.tile(got["mean"], 20)[:, :, :columns]
        zeros = np.zeros(mean.shape, int)
        numbers = {"mean": mean, "diverged": zeros, "nonfinite": zeros}
        heatmap._print_means(figure, numbers, norm)
        texts = figure.axes[0].texts
        assert bool(texts) == is_room
        for text in texts:
            value = float(text.get_text())
            ground = np.array(mpl.colormaps[heatmap.COLOUR_MAP](norm(value))[:3])
            ink = np.array(to_rgba(text.get_color())[:3])
            assert abs(ground.mean() - ink.mean()) > 0.3


@pytest.mark.parametrize(
    ("letters", "count", "degrees"), [(2, 2, 0), (40, 2, 30), (40, 20, 90)]
)
def test_long_labels_are_tilted_and_many_of_them_upright(letters, count, degrees):
    numbers = {
        "panel": np.array([""]),
        "x": np.array(["a" * letters, *"b" * (count - 1)]),
        "y": np.array(["c"]),
    }
    params = HeatmapParams(z="trace", x="width", y="rule")
    assert heatmap._tilt(numbers, params) == degrees


def test_a_logarithmic_scale_needs_positive_values():
    got = draw(nodes(), log_z=True)
    assert np.isfinite(got["mean"]).all()
    with pytest.raises(InputError, match="log_z: expected positive z, got none"):
        draw(nodes(sign=-1), log_z=True)


@pytest.mark.pictures("png")
@pytest.mark.parametrize(
    "values",
    [
        (1e305, 1.0),
        (1.7e308, 1.7e308),
        (1e300, 1e-300),
        (5e-324, 5e-324),
        (-1.7e308, 1.7e308),
    ],
)
@pytest.mark.parametrize("log_z", [True, False])
def test_numbers_at_the_ends_of_what_can_be_written_are_drawn(values, log_z):
    of = [node({"rule": "a", "width": w}, trace=v) for w, v in enumerate(values)]
    got = draw(of, log_z=log_z)
    assert got["mean"].ravel().tolist() == list(values)
    assert Image.open(io.BytesIO(got["png"].tobytes())).width


def test_what_has_no_logarithm_or_is_not_finite_is_reported():
    values = [-1.0, 0.0, np.inf, np.nan, 2.0]
    of = [node({"rule": "a", "width": w}, trace=v) for w, v in enumerate(values)]
    assert str(draw(of, log_z=True)["caption"]) == (
        "Single values. Not finite, left out: 2 values. "
        "Not on a logarithmic axis: 2 means at or below 0."
    )


def test_where_all_diverged_there_are_empty_cells():
    gone = {(r, w, s) for r in RULES for w in WIDTHS for s in range(3)}
    got = draw(nodes(diverged=gone))
    assert np.isnan(got["mean"]).all()
    assert (got["diverged"] == 3).all()


def test_unknown_axes_and_too_many_labels_are_refused():
    with pytest.raises(
        InputError, match="trace: expected an axis of probe, got 'widt'"
    ):
        draw(nodes(), x="widt")
    many = [node({"rule": "a", "width": w}, trace=1.0) for w in range(61)]
    with pytest.raises(InputError, match="x: expected at most 60 labels, got 61"):
        draw(many)


@pytest.mark.pictures
def test_the_same_input_gives_the_same_bytes():
    first, second = (draw(nodes()) for _ in range(2))
    assert all(a.tobytes() == second[name].tobytes() for name, a in first.items())


def test_every_declared_variable_is_there_in_its_type():
    got = draw(nodes())
    assert set(got) == {v.name for v in find_kind("figure.heatmap").outputs}
    for variable in find_kind("figure.heatmap").outputs:
        array = got[variable.name]
        is_text = variable.dtype == "str"
        assert array.dtype.kind == "U" if is_text else array.dtype == variable.dtype
        assert array.ndim == len(variable.dims)


def test_one_axis_has_one_part():
    with pytest.raises(ValidationError, match="expected y to differ from x"):
        HeatmapParams(z="trace", x="seed", y="seed")


STUDY = """
study: drawn
axes: {{seed: 3, rule: {{sgd: {{rule: sgd, lr: 0.1}}, adam: {{rule: adam, lr: 0.1}}}}}}
stages:
  data: {{use: data.xor}}
  fit: {{use: train, data: data, model: {{kind: linear}}, rule: "${{rule}}",
        seed: "${{seed}}", epochs: 2}}
  heat: {{use: figure.heatmap, of: fit, {given}}}
"""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "z: final_test_loss, x: sed, y: rule",
            r"study.yaml:\d+:\d+: stages.heat.x: expected a dimension of the stages "
            "taken, got 'sed'. Did you mean 'seed'",
        ),
        (
            "z: final_test_los, x: seed, y: rule",
            r"heat.z: expected a variable of the stages taken, got 'final_test_los'",
        ),
        (
            "z: train_loss, x: seed, y: rule",
            r"heat.z: expected a single number per node, got 'train_loss' with epoch",
        ),
    ],
)
def test_wrong_names_are_refused_while_planning(given, message):
    with pytest.raises(StudyError, match=message):
        load_study(STUDY.format(given=given), file="study.yaml")


NAMES = ["a1", "b1", "a2", "b2"]
POINTS = np.array([0.0, 5.0, 0.5, 6.0])


def matrices(count=2, points=POINTS):
    return [
        node(
            {"seed": seed},
            kind="aggregate.spectral_distance",
            item=np.array(NAMES),
            other_item=np.array(NAMES),
            matrix=(1 + seed) * np.abs(points[:, None] - points),
        )
        for seed in range(count)
    ]


def draw_matrix(of, **params):
    return draw(of, z="matrix", y="item", x="other_item", **params)


def test_a_matrix_within_a_node_is_drawn_by_the_labels_of_its_dimensions():
    got = draw_matrix(matrices())
    assert got["x"].tolist() == got["y"].tolist() == NAMES
    known = 1.5 * np.abs(POINTS[:, None] - POINTS)
    np.testing.assert_allclose(got["mean"][0], known, rtol=1e-12)
    assert (got["count"] == 2).all()


def test_near_labels_stand_together_by_distance():
    got = draw_matrix(matrices(), order="distance")
    order = got["y"].tolist()
    assert order == got["x"].tolist()
    assert order in (["a1", "a2", "b1", "b2"], ["b2", "b1", "a2", "a1"])
    at = [NAMES.index(name) for name in order]
    known = 1.5 * np.abs(POINTS[at][:, None] - POINTS[at])
    np.testing.assert_allclose(got["mean"][0], known, rtol=1e-12)


def test_diverged_matrices_are_left_out():
    lost = node({"seed": 1}, kind="aggregate.spectral_distance", diverged=True)
    assert (draw_matrix([matrices()[0], lost])["count"] == 1).all()


def test_an_order_by_distance_is_that_of_distances():
    with pytest.raises(InputError, match="every label of one axis"):
        draw(nodes(), order="distance")
    lacking = matrices(points=np.array([0.0, np.nan, 1, 2]))
    with pytest.raises(InputError, match="every label of one axis"):
        draw_matrix(lacking, order="distance")


def test_similarities_are_no_distances():
    of = matrices(1)
    of[0].arrays["matrix"][:] = 1.0
    with pytest.raises(InputError, match="0 of each label from itself, got 1 to 1"):
        draw_matrix(of, order="distance")
