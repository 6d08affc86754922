import io

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError
from scipy import stats

from curvflow.errors import InputError
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.figures.bars import BarsParams
from curvflow.tasks.drawing import canvas
from curvflow.tasks.figures import bars
from tests.tasks.measured_nodes import compute, node, toy_kinds

TRACES = {"sgd": [1.0, 2.0, 3.0], "adam": [100.0, 110.0, 150.0]}


@pytest.fixture(autouse=True)
def _toys():
    with toy_kinds():
        yield


def probes(traces=TRACES, diverged=(), sign=1):
    return [
        node(
            {"seed": seed, "rule": rule},
            diverged=(rule, seed) in diverged,
            trace=sign * value,
            steps=10 * seed,
        )
        for rule, values in traces.items()
        for seed, value in enumerate(values)
    ]


def draw(of, **params):
    given = {"y": "trace", "label": "rule", "over": "seed", **params}
    return compute("figure.bars", of, **given).arrays


@pytest.mark.parametrize("log_y", [False, True])
@pytest.mark.parametrize("points", [False, True])
def test_the_numbers_drawn_are_mean_and_interval(log_y, points):
    got = draw(probes(), log_y=log_y, points=points)
    assert got["label"].tolist() == list(TRACES)
    for column, values in enumerate(TRACES.values()):
        interval = stats.t.interval(
            0.95, 2, loc=np.mean(values), scale=stats.sem(values)
        )
        result = [got["low"][0, column], got["high"][0, column]]
        np.testing.assert_allclose(result, interval, rtol=1e-12)
        assert got["mean"][0, column] == pytest.approx(np.mean(values), rel=1e-12)
    assert got["count"].tolist() == [[3, 3]]
    assert ("circles" in str(got["caption"])) == points


def test_each_variable_has_a_panel_from_its_own_stage():
    of = probes()
    of += [
        node({"seed": 0, "rule": r}, stage="other", kind="toy.other", curvature=-1.0)
        for r in TRACES
    ]
    of = [n for n in of if n.stage == "probe" or n.arrays.pop("trace") is not None]
    got = draw(of, y=["steps", "curvature"])
    assert got["quantity"].tolist() == ["steps", "curvature"]
    assert got["mean"].tolist() == [[10, 10], [-1, -1]]
    assert got["count"].tolist() == [[3, 3], [1, 1]]
    assert "n = 1 to 3" in str(got["caption"])


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("traces", [TRACES, {"sgd": [-60.0], "adam": [1.0]}])
def test_why_there_is_no_bar_is_said_at_the_line_of_zero(sign, traces, monkeypatch):
    gone = [("adam", seed) for seed in range(3)]
    sheets = []
    monkeypatch.setattr(canvas, "compose", lambda figure, **_: sheets.append(figure))
    draw(probes({**traces, "other": [80.0]}, diverged=gone, sign=sign))
    (axes,) = sheets[0].axes
    (text,) = [
        text_artist
        for text_artist in axes.texts
        if "diverged" in text_artist.get_text()
    ]
    sheets[0].draw_without_rendering()
    box = text.get_window_extent()
    zero = axes.transData.transform((0.0, 0.0))[0]
    assert box.x0 > zero or box.x1 < zero
    assert axes.bbox.x0 <= box.x0
    assert box.x1 <= axes.bbox.x1


def test_diverged_nodes_are_reported_and_never_averaged():
    gone = [("adam", 0), ("adam", 1), ("adam", 2), ("sgd", 2)]
    got = draw(probes(diverged=gone), log_y=True, points=True)
    assert got["mean"][0, 0] == 1.5
    assert np.isnan(got["mean"][0, 1])
    assert got["diverged"].tolist() == [[1, 3]]
    note = "Diverged, left out: sgd (1 of 3), adam (3 of 3)."
    assert note in str(got["caption"])


def test_a_dimension_of_the_variable_can_be_the_label():
    of = [
        node({"seed": s}, layer=["w", "b"], layer_trace=[1.0 + s, 5.0])
        for s in range(2)
    ]
    got = draw(of, y="layer_trace", label="layer", error="sd")
    assert got["label"].tolist() == ["w", "b"]
    assert got["mean"].tolist() == [[1.5, 5.0]]
    assert got["low"][0].tolist() == pytest.approx([1.5 - 0.5**0.5, 5.0])


def test_without_a_label_there_is_one_bar():
    got = draw(probes(), label=None, over=None, error="none")
    assert got["label"].tolist() == [""]
    assert got["count"].tolist() == [[6]]
    assert np.isnan(got["low"]).all()
    assert str(got["caption"]) == "Mean over seed, rule, n = 6."


@pytest.mark.parametrize("place", range(len(canvas.PALETTE)))
def test_error_bars_are_seen_on_bars_of_every_colour(place):
    figure = canvas.new_figure(60, 90)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 2), ylim=(-1, 7))
    bars._draw_bar(axes, place, {"mean": 1.5, "low": 0.5, "high": 1.8})
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())[::-1, :, :3].mean(axis=2)
    ends = axes.transData.transform([(1.0, place - 0.25), (1.0, place + 0.25)])
    (x, low), (_, high) = ends.round().astype(int)
    across = pixels[low:high, x]
    assert np.ptp(across) > 100


@pytest.mark.parametrize("place", range(len(canvas.PALETTE)))
def test_the_line_of_an_error_bar_is_no_bar_of_its_own_colour(place):
    figure = canvas.new_figure(60, 90)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 2), ylim=(-1, 7))
    bars._draw_bar(axes, place, {"mean": 1.5, "low": 0.5, "high": 1.8})
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())[::-1, :, :3].astype(float)
    spots = [(1.0, place), (1.0, place + 0.25), (1.65, place), (1.65, place + 0.25)]
    result = axes.transData.transform(spots).astype(int)
    within, bar, beyond, paper = (pixels[y, x].mean() for x, y in result)
    assert abs(within - bar) > 50
    assert abs(beyond - paper) > 200


@pytest.mark.parametrize("place", range(len(canvas.PALETTE)))
def test_an_error_bar_shorter_than_its_dot_is_seen_on_it(place):
    figure = canvas.new_figure(60, 90)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0.1, 10), ylim=(-1, 7), xscale="log")
    dots = []
    for ends in ({"low": np.nan, "high": np.nan}, {"low": 0.98, "high": 1.02}):
        axes.clear()
        axes.set(xlim=(0.1, 10), ylim=(-1, 7), xscale="log")
        bars._draw_bar(axes, place, {"mean": 1.0, **ends})
        figure.canvas.draw()
        dots.append(np.asarray(figure.canvas.buffer_rgba())[..., :3].astype(float))
    assert np.abs(dots[1] - dots[0]).max() > 50


def test_means_that_a_logarithmic_axis_lacks_are_reported():
    got = draw(probes({"sgd": [1.0, 2.0], "adam": [-1.0, 0.0]}), log_y=True)
    assert "Not on a logarithmic axis: 1 mean at or below 0." in str(got["caption"])


def test_error_bars_that_a_logarithmic_axis_cannot_hold_are_reported():
    got = draw(probes({"sgd": [1.0, 100.0], "adam": [1.0, 1.1]}), log_y=True)
    assert str(got["caption"]).endswith("Bars that reach 0 run off the axis.")


def test_a_logarithmic_axis_without_anything_positive_is_refused():
    with pytest.raises(InputError) as caught:
        draw(probes(sign=-1), log_y=True)
    assert str(caught.value) == (
        "log_y: expected positive values of trace, got none. Set it to false."
    )


def test_a_variable_with_further_dimensions_is_refused():
    of = [node({"seed": 0, "rule": "a"}, eigenvalues=[1.0, 2.0])]
    with pytest.raises(InputError, match=r"got eigenvalues with rank. Name one as"):
        draw(of, y="eigenvalues")


@pytest.mark.pictures("png")
def test_the_picture_grows_with_labels_and_panels():
    def size(of, **params):
        return Image.open(io.BytesIO(draw(of, **params)["png"].tobytes())).size

    few, many = size(probes()), size(probes({f"r{k}": [1.0, 2.0] for k in range(8)}))
    assert many[0] == few[0]
    assert many[1] > few[1] + 300  # an inch
    assert size(probes(), y=["trace", "steps", "converged"])[0] > 2 * few[0]


@pytest.mark.pictures
def test_the_same_input_gives_the_same_bytes():
    first, second = (draw(probes(), points=True) for _ in range(2))
    assert all(a.tobytes() == second[name].tobytes() for name, a in first.items())


def test_every_declared_variable_is_there_in_its_type_and_shape():
    got = draw(probes(), y=["trace", "steps"])
    sizes = {"quantity": 2, "label": 2}
    for variable in find_kind("figure.bars").outputs:
        array = got[variable.name]
        is_text = variable.dtype == "str"
        assert array.dtype.kind == "U" if is_text else array.dtype == variable.dtype
        if variable.file is None:
            assert array.shape == tuple(sizes[dim] for dim in variable.dims)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"y": []}, "at least 1 item"),
        ({"y": ["trace", "trace"]}, "expected y without repetitions"),
        (
            {"label": "seed", "over": "seed"},
            "expected label to differ from over, got 'seed' for both. Name it once.",
        ),
    ],
)
def test_contradictory_parameters_are_refused(params, message):
    with pytest.raises(ValidationError, match=message):
        BarsParams(**{"y": "trace", **params})
