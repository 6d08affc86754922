import io

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from PIL import Image
from pydantic import ValidationError
from scipy import stats

from curvflow.errors import InputError
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.figures.lines import LinesParams
from curvflow.tasks.drawing import canvas
from curvflow.tasks.figures.lines import _fitting_labels
from tests.tasks.measured_nodes import compute, node, toy_kinds

EPOCHS = np.array([0, 1, 2])


@pytest.fixture(autouse=True)
def _toys():
    with toy_kinds():
        yield


def loss(seed, rule="sgd"):
    start = 4.0 if rule == "sgd" else 8.0
    return start * (1 + 0.1 * seed) / (1 + EPOCHS)


def fits(rules=("sgd", "adam"), seeds=3, diverged=()):
    return [
        node(
            {"seed": seed, "rule": rule},
            diverged=(rule, seed) in diverged,
            epoch=EPOCHS,
            train_loss=loss(seed, rule),
        )
        for seed in range(seeds)
        for rule in rules
    ]


def draw(of, **params):
    given = {"y": "train_loss", "label": "rule", "over": "seed", **params}
    return compute("figure.lines", of, **given).arrays


def test_the_numbers_drawn_are_mean_and_interval_at_every_x():
    got = draw(fits())
    assert got["curve"].tolist() == ["sgd", "adam"]
    assert got["x"].tolist() == [0, 1, 2]
    for row, rule in enumerate(["sgd", "adam"]):
        values = np.stack([loss(seed, rule) for seed in range(3)])
        low, high = stats.t.interval(
            0.95, 2, loc=values.mean(0), scale=stats.sem(values)
        )
        np.testing.assert_allclose(got["mean"][row], values.mean(0), rtol=1e-12)
        np.testing.assert_allclose(got["low"][row], low, rtol=1e-12)
        np.testing.assert_allclose(got["high"][row], high, rtol=1e-12)
    assert (got["count"] == 3).all()


@pytest.mark.parametrize(
    ("band", "low", "high"),
    [
        ("sem", 4.4 - 0.4 / 3**0.5, 4.4 + 0.4 / 3**0.5),
        ("sd", 4.0, 4.8),
        ("range", 4.0, 4.8),
        ("none", np.nan, np.nan),
    ],
)
def test_the_band_is_the_one_requested(band, low, high):
    got = draw(fits(), band=band)
    result = [got["low"][0, 0], got["high"][0, 0]]
    np.testing.assert_allclose(result, [low, high], rtol=1e-12)
    assert ("band" in str(got["caption"])) == (band != "none")


def test_diverged_nodes_are_reported_and_never_averaged():
    gone = [("adam", 0), ("sgd", 0), ("sgd", 1), ("sgd", 2)]
    got = draw(fits(diverged=gone))
    assert got["curve"].tolist() == ["sgd", "adam"]
    assert got["diverged"].tolist() == [3, 1]
    assert got["count"].tolist() == [[0, 0, 0], [2, 2, 2]]
    assert np.isnan(got["mean"][0]).all()
    expected = np.mean([loss(1, "adam"), loss(2, "adam")], 0)
    np.testing.assert_allclose(got["mean"][1], expected, rtol=1e-12)
    assert str(got["caption"]).endswith(
        "Diverged, left out: sgd (3 of 3), adam (1 of 3)."
    )


@pytest.mark.pictures("png")
def test_where_all_diverged_there_is_a_figure_that_says_so():
    gone = [(rule, seed) for rule in ("sgd", "adam") for seed in range(3)]
    got = draw(fits(diverged=gone), log_y=True)
    assert not got["count"].any()
    assert "sgd (3 of 3), adam (3 of 3)" in str(got["caption"])
    assert Image.open(io.BytesIO(got["png"].tobytes())).format == "PNG"


@pytest.mark.parametrize("is_log", [False, True])
def test_a_panel_without_values_has_no_ticks(is_log, monkeypatch):
    sheets = []
    monkeypatch.setattr(canvas, "compose", lambda figure, **_: sheets.append(figure))
    gone = [(rule, seed) for rule in ("sgd", "adam") for seed in range(3)]
    draw(fits(diverged=gone), log_y=is_log)
    (axes,) = sheets[0].axes
    assert [text.get_text() for text in axes.texts] == ["no values"]
    for axis in (axes.xaxis, axes.yaxis):
        assert not len(axis.get_ticklocs())
        assert not len(axis.get_ticklocs(minor=True))


def test_values_that_are_not_finite_are_left_out_and_reported():
    of = fits(["sgd"])
    of.append(node({"seed": 3, "rule": "sgd"}, epoch=EPOCHS, train_loss=[1, np.nan, 1]))
    got = draw(of)
    assert got["count"].tolist() == [[4, 3, 4]]
    assert "Not finite, left out: 1 value." in str(got["caption"])


def test_a_single_run_is_a_line_without_a_band():
    got = draw(fits(seeds=1))
    assert np.isnan(got["low"]).all()
    assert str(got["caption"]) == "Single values, at seed = 0."


@pytest.mark.parametrize(
    ("seeds_at", "bars"),
    [
        ({0: 3}, [0]),  # one x
        ({0: 3, 1: 3}, []),
        ({0: 1, 1: 3, 2: 1}, [1]),
        ({0: 3, 1: 1, 2: 3, 3: 3}, [0]),
    ],
)
def test_a_point_that_alone_has_a_band_has_a_bar(monkeypatch, seeds_at, bars):
    drawn = []
    monkeypatch.setattr(Axes, "vlines", lambda *a, **_: drawn.append(a[1:]))
    of = [
        node(
            {"seed": s, "rule": "sgd"},
            epoch=[e for e, seeds in seeds_at.items() if s < seeds],
            train_loss=[1.0 + s for seeds in seeds_at.values() if s < seeds],
        )
        for s in range(3)
    ]
    got = draw(of)
    (x, low, high) = drawn[0]
    assert x.tolist() == bars
    places = [got["x"].tolist().index(bar) for bar in bars]
    assert low.tolist() == got["low"][0, places].tolist()
    assert high.tolist() == got["high"][0, places].tolist()
    note = ", a bar where one point alone has it."
    assert (note in str(got["caption"])) == bool(bars)


@pytest.mark.parametrize("seed", range(4))
def test_points_at_a_single_x_are_within_the_axes(monkeypatch, seed):
    panels, kept = [], canvas.compose
    monkeypatch.setattr(
        canvas, "compose", lambda f, **k: (panels.append(f.axes[0]), kept(f, **k))
    )
    draws = np.random.default_rng(seed)
    x, values = int(draws.integers(1, 1000)), draws.normal(0, 10**seed, 4)
    of = [
        node(
            {"seed": number, "rule": rule, "epoch": x},
            kind="probe.llc",
            llc_mean=values[2 * number + (rule == "adam")],
            init_loss=1.0,
            verdict="negative" if draws.random() < 0.5 else "converged",
        )
        for number in range(1 + seed % 2)
        for rule in ("sgd", "adam")[: 1 + seed // 2]
    ]
    got = draw(of, y="llc_mean", x="epoch", label="rule", band=["none", "sd"][seed % 2])
    left, right = panels[0].get_xlim()
    bottom, top = panels[0].get_ylim()
    assert left < x < right
    assert (np.isfinite(got["mean"])).all()
    assert ((bottom < got["mean"]) & (got["mean"] < top)).all()


def test_curves_of_a_single_x_stand_beside_each_other(monkeypatch):
    places = []

    def keep(axes, x, *_, transform, **__):
        place = transform.transform((float(x[0]), 0.0))
        places.append((place[0] - axes.transData.transform((0.0, 0.0))[0], axes))

    monkeypatch.setattr(Axes, "vlines", keep)
    draw(
        [
            node({"seed": s, "rule": rule}, epoch=[0], train_loss=[float(s)])
            for rule in ("sgd", "adam", "adagrad")
            for s in range(2)
        ]
    )
    dots = places[0][1].figure.dpi / 72
    assert [right / dots for right, _ in places] == pytest.approx([-5, 0, 5])


def test_curves_keep_their_own_points_where_these_differ():
    of = fits(["sgd"])
    of.append(node({"seed": 0, "rule": "adam"}, epoch=[0, 5], train_loss=[1.0, 2.0]))
    got = draw(of)
    assert got["x"].tolist() == [0, 1, 2, 5]
    assert got["count"].tolist() == [[3, 3, 3, 0], [1, 0, 0, 1]]


def spread_over(axis, labels, **arrays):
    return [
        node({"seed": s, axis: v}, **{k: f(s, v) for k, f in arrays.items()})
        for s in range(2)
        for v in labels
    ]


def test_an_axis_of_numbers_can_be_x_and_is_put_in_order():
    of = spread_over("width", [64, 8, 16], trace=lambda s, w: w + s)
    got = draw(of, y="trace", x="width", label=None, log_x=True)
    assert got["x"].tolist() == [8, 16, 64]
    assert got["mean"].tolist() == [[8.5, 16.5, 64.5]]
    assert got["curve"].tolist() == [""]


def test_labels_of_a_logarithmic_axis_do_not_overlap():
    def labels(xs, width=72.0):
        numbers = {"x": np.array(xs, float), "x_label": np.array([str(x) for x in xs])}
        return _fitting_labels(numbers, width)

    wide = [4 * 2**k for k in range(11)]
    assert labels(wide, 300.0) == [str(x) for x in wide]
    assert labels(wide) == [str(x) if k % 2 == 0 else "" for k, x in enumerate(wide)]
    assert labels([0, 10, 100]) == ["", "10", "100"]
    assert labels([7]) == ["7"]


def test_an_axis_of_text_can_be_x_and_keeps_its_order():
    labels = ["tanh", "relu", "a rather long name of an activation function"]
    of = spread_over("act", labels, trace=lambda s, _: s)
    got = draw(of, y="trace", x="act", label=None)
    assert got["x"].tolist() == [0, 1, 2]
    assert got["x_label"].tolist() == labels


def test_an_epoch_axis_and_a_dimension_make_a_curve_per_rank():
    of = spread_over("epoch", [0, 10], eigenvalues=lambda s, e: [e + 2.0, e + s])
    got = draw(of, y="eigenvalues", x="epoch", label="rank")
    assert got["curve"].tolist() == ["0", "1"]
    assert got["mean"].tolist() == [[2, 12], [0.5, 10.5]]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["figure.lines", "figure.bars"])
def test_what_is_selected_is_drawn_as_if_it_were_all(name, seed):
    draw = np.random.default_rng(seed)
    ranks, epochs = np.arange(1, 4), [0, 10]
    found = {(s, e): draw.normal(size=3) for s in range(3) for e in epochs}
    good = {key: draw.random(3) < 0.7 for key in found}
    coords = [{"seed": s, "epoch": e} for s, e in found]
    common = {"over": "seed", "label": "epoch"}
    if name == "figure.lines":
        common = {"over": "seed", "x": "epoch"}
    common["unconverged"] = ["show", "exclude"][seed % 2]

    def nodes(at, shown):
        return [
            node(
                c,
                kind="probe.eigenvalues",
                diverged=c == coords[1],
                eigenvalues=values[at],
                converged=good[key][at],
                rank=shown,
            )
            for c, (key, values) in zip(coords, found.items(), strict=True)
        ]

    place = int(draw.integers(3))
    got = compute(
        name,
        nodes(slice(None), ranks),
        y="eigenvalues" if name == "figure.lines" else ["eigenvalues"],
        select={"rank": int(ranks[place])},
        **common,
    ).arrays
    alone = compute(
        name,
        nodes(slice(place, place + 1), ranks[place : place + 1]),
        y="eigenvalues" if name == "figure.lines" else ["eigenvalues"],
        select={"rank": int(ranks[place])},
        **common,
    ).arrays
    assert f", at rank = {ranks[place]}" in str(got["caption"])
    assert got["mean"].shape == ((1, 2))
    for epoch, mean in zip(epochs, got["mean"][0], strict=True):
        values = [
            found[s, e][place]
            for s, e in found
            if e == epoch
            and {"seed": s, "epoch": e} != coords[1]
            and (good[s, e][place] or common["unconverged"] == "show")
        ]
        assert mean == pytest.approx(np.mean(values or [np.nan]), nan_ok=True)
    for key, values in alone.items():
        np.testing.assert_array_equal(got[key], values)


def test_a_label_that_is_not_there_is_refused():
    of = spread_over("epoch", [0, 10], eigenvalues=lambda s, e: [e + 2.0, e + s])
    with pytest.raises(InputError, match=r"select: expected a label of rank, 0, 1, go"):
        draw(of, y="eigenvalues", x="epoch", label=None, select={"rank": 2})


def test_axes_not_named_are_averaged_and_reported():
    got = draw(fits(), label=None, over=None)
    assert (got["count"] == 6).all()
    assert str(got["caption"]).startswith("Mean over seed, rule, n = 6;")


def test_points_that_a_logarithmic_axis_lacks_are_reported():
    got = draw(fits(), log_x=True, log_y=True)
    assert "Not on a logarithmic axis: 2 points at or below 0." in str(got["caption"])


def test_a_band_that_a_logarithmic_axis_cannot_hold_is_reported():
    of = [
        node({"seed": s, "rule": "a"}, epoch=[0, 1], train_loss=[1.0, 10.0**s])
        for s in range(3)
    ]
    note = "Where the band reaches 0 it runs off the axis."
    assert note in str(draw(of, log_y=True)["caption"])
    assert note not in str(draw(of)["caption"])


@pytest.mark.pictures
def test_the_files_are_pictures_of_the_size_requested():
    got = draw(fits(), width=60.0, height=40.0, band="none")
    picture = Image.open(io.BytesIO(got["png"].tobytes()))
    assert picture.width == pytest.approx(60 / 25.4 * 300, abs=1)
    assert picture.height > 40 / 25.4 * 300  # legend and caption come on top
    svg = got["svg"].tobytes().decode()
    assert svg.startswith("<?xml")
    assert "<dc:date>" not in svg
    assert mpl.__version__ not in svg
    pdf = got["pdf"].tobytes()
    assert pdf.startswith(b"%PDF")
    assert b"/CreationDate" not in pdf
    assert mpl.__version__.encode() not in pdf
    assert not picture.info.keys() & {"Software", "Creation Time"}


@pytest.mark.pictures
def test_the_same_input_gives_the_same_bytes():
    first, second = draw(fits()), draw(fits())
    assert all(a.tobytes() == second[name].tobytes() for name, a in first.items())


def test_every_declared_variable_is_there_in_its_type_and_shape():
    got = draw(fits())
    sizes = {"curve": 2, "x": 3}
    for variable in find_kind("figure.lines").outputs:
        array = got[variable.name]
        is_text = variable.dtype == "str"
        assert array.dtype.kind == "U" if is_text else array.dtype == variable.dtype
        if variable.file is None:
            assert array.shape == tuple(sizes[dim] for dim in variable.dims)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"y": "train_los"},
            "y: expected a measured variable, got 'train_los'. "
            "Did you mean 'train_loss'?",
        ),
        (
            {"y": "note"},
            "y: expected a measured variable, got 'note'. Known: blocks, converged, "
            "eigenvalues, epoch, layer_trace, rank, steps, trace, train_loss.",
        ),
        (
            {"label": "rul"},
            "label: expected a dimension of train_loss of probe, got 'rul'. "
            "Did you mean 'rule'?",
        ),
        (
            {"x": "width"},
            "x: expected a dimension of train_loss of probe, got 'width'. "
            "Known: epoch, rule, seed.",
        ),
        (
            {"x": "seed", "over": None},
            "y: expected a variable without further dimensions, got train_loss with "
            "epoch. Name one as `label` or `x`, or choose another variable.",
        ),
    ],
)
def test_what_the_stages_do_not_have_is_refused(params, message):
    with pytest.raises(InputError) as caught:
        draw(fits(), **params)
    assert str(caught.value) == message


def test_a_variable_of_two_stages_is_refused():
    of = [*fits(), node({"seed": 0}, stage="again", epoch=EPOCHS, train_loss=EPOCHS)]
    with pytest.raises(InputError, match="'train_loss' of probe and again"):
        draw(of)


@pytest.mark.parametrize("axis", ["log_x", "log_y"])
def test_a_logarithmic_axis_without_anything_positive_is_refused(axis):
    of = [node({"seed": s, "rule": "a"}, epoch=[0], train_loss=[-1.0]) for s in (0, 1)]
    with pytest.raises(InputError) as caught:
        draw(of, **{axis: True})
    letter = axis[-1]
    assert str(caught.value) == (
        f"{axis}: expected positive {letter}, got none. Set it to false."
    )


def test_more_labels_than_can_be_distinguished_are_refused():
    of = fits([f"rule {k}" for k in range(22)], seeds=1)
    with pytest.raises(
        InputError, match=r"label: expected at most 21 labels .* got 22"
    ):
        draw(of)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"label": "epoch"}, "expected label to differ from x, got 'epoch' for both"),
        ({"over": "epoch"}, "expected x to differ from over, got 'epoch' for both"),
        (
            {"label": "rule", "over": ["seed", "rule"]},
            "expected label to differ from over, got 'rule' for both",
        ),
        ({"band": "iqr"}, "Input should be 'ci95'"),
        ({"width": 3.0}, "greater than 30"),
    ],
)
def test_contradictory_parameters_are_refused(params, message):
    with pytest.raises(ValidationError, match=message):
        LinesParams(y="train_loss", **params)
