import io
import re

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from curvflow.errors import StudyError
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.figures.scaling import ScalingFigureParams
from curvflow.schemas.study.study import load_study
from curvflow.tasks.drawing import canvas
from curvflow.tasks.figures import scaling
from curvflow.tasks.statistics.scaling_points import fit_laws
from tests.tasks.measured_nodes import compute, node, toy_kinds

SIZES = (25, 50, 100, 200, 400)
LAWS = {"sgd": (3.0, -0.5), "adam": (1.0, -0.25)}
GIVEN = {"y": "trace", "along": "size", "over": "seed", "label": "rule"}


@pytest.fixture(autouse=True)
def _toys():
    with toy_kinds():
        yield


def nodes(laws=LAWS, noise=0.05, seeds=5, diverged=()):
    random = np.random.default_rng(0)
    return [
        node(
            {"size": size, "rule": rule, "seed": s},
            trace=factor * size**exponent * np.exp(noise * random.normal()),
            steps=size,
            diverged=(rule, size, s) in diverged,
        )
        for rule, (factor, exponent) in laws.items()
        for size in SIZES
        for s in range(seeds)
    ]


def draw(of, **params):
    given = {**GIVEN, "num_resamples": 100, **params}
    return compute("figure.scaling", of, **given).arrays


def test_the_laws_are_those_of_the_aggregate():
    got = draw(nodes())
    table = compute("aggregate.scaling", nodes(), **GIVEN, num_resamples=100).arrays
    assert got["law"].tolist() == ["sgd", "adam"]
    for name in ("exponent", "low", "high", "prefactor", "count"):
        np.testing.assert_array_equal(got[name], table[name])
    assert got["x"].shape == got["y"].shape == (50,)
    assert got["point_label"].tolist() == ["sgd"] * 25 + ["adam"] * 25


@pytest.mark.parametrize("band", [True, False])
def test_lines_and_bands_end_inside_the_panel(band, monkeypatch):
    sheets = []
    monkeypatch.setattr(canvas, "compose", lambda figure, **_: sheets.append(figure))
    # A bend, so that the line leaves the points at both ends.
    of = [
        node({"size": size, "rule": "sgd", "seed": 0}, trace=trace)
        for size, trace in zip(SIZES, (1.0, 1.0, 1.0, 0.99, 0.01), strict=True)
    ]
    draw(of, band=band)
    (axes,) = sheets[0].axes
    low, high = axes.get_ylim()
    drawn = [line.get_ydata() for line in axes.lines]
    drawn += [fill.get_paths()[0].vertices[:, 1] for fill in axes.collections]
    assert len(drawn) == 2 + band
    lines = np.concatenate(drawn[:2])
    assert low < lines.min()
    assert lines.max() < high
    if band:
        line = drawn[1]
        assert low < max(drawn[2].min(), line.min() / 10)
        assert high > min(drawn[2].max(), line.max() * 10)


def test_the_caption_says_n_band_and_crossing():
    table = compute("aggregate.scaling", nodes(), **GIVEN, num_resamples=100).arrays
    ends = [float(table[f"crossover{end}"][0]) for end in ("", "_low", "_high")]
    at, low, high = (f"{end:.3g}" for end in ends)
    assert str(draw(nodes())["caption"]) == (
        "Lines: least squares of log y on log x, n = 25; legend: exponent ± half of "
        "Student's 95 % interval. Band: 95 % interval of the line. Dotted: sgd / adam "
        f"cross at {at}, 95 % interval {low} to {high}."
    )
    plain = str(draw(nodes(), band=False, crossovers=False)["caption"])
    assert plain.endswith("Student's 95 % interval.")


def test_a_crossing_outside_the_points_is_not_drawn():
    laws = {"sgd": (3.0, -0.5), "adam": (30.0, -0.25)}
    assert "Dotted" not in str(draw(nodes(laws))["caption"])


def test_many_crossings_are_counted_and_not_drawn():
    laws = {str(n): (1.0 + n, -0.1 * n) for n in range(7)}
    caption = str(draw(nodes(laws))["caption"])
    assert "Dotted" not in caption
    assert re.search(r"Inside the points \d pairs of lines cross\.$", caption)


def test_the_legend_has_the_exponent_and_half_its_interval():
    params = ScalingFigureParams(**GIVEN, num_resamples=100)
    for fitted in fit_laws(params, nodes()):
        low, high = fitted.law.limits(0.95)
        label, _, rest = scaling._legend_text(fitted, params).partition(": ")
        exponent, half = rest.replace(scaling.MINUS, "-").split(" ± ")
        assert label == fitted.series.label
        assert float(exponent) == pytest.approx((low + high) / 2, abs=0.0006)
        assert float(half) == pytest.approx((high - low) / 2, abs=0.0006)


def test_what_is_left_out_is_reported():
    of = nodes(diverged={("sgd", 25, 0), ("sgd", 25, 1)})
    of[2].arrays["trace"] = np.array(0.0)
    of[3].arrays["trace"] = np.array(np.inf)
    got = draw(of)
    counts = [
        got[n].tolist() for n in ("count", "diverged", "nonpositive", "nonfinite")
    ]
    assert counts == [[21, 25], [2, 0], [1, 0], [1, 0]]
    assert "Diverged, left out: sgd (2 of 25)." in str(got["caption"])
    assert str(got["caption"]).endswith(
        "At or below 0, left out: 1 point. Not finite, left out: 1 point."
    )


def test_where_all_diverged_the_legend_says_so():
    gone = {("sgd", size, s) for size in SIZES for s in range(5)}
    got = draw(nodes(diverged=gone))
    assert np.isnan(got["exponent"][0])
    params = ScalingFigureParams(**GIVEN, num_resamples=100)
    (law, _) = fit_laws(params, nodes(diverged=gone))
    assert scaling._legend_text(law, params) == "sgd: all 25 diverged"
    every = gone | {("adam", *rest) for _, *rest in gone}
    assert len(draw(nodes(diverged=every))["x"]) == 0


@pytest.mark.pictures("png")
@pytest.mark.parametrize("seeds", [1, 5])
def test_without_labels_there_is_one_law(seeds):
    of = nodes({"sgd": LAWS["sgd"]}, seeds=seeds)
    got = draw(of, label=None)
    assert got["law"].tolist() == [""]
    assert "at rule = sgd" in str(got["caption"])
    assert Image.open(io.BytesIO(bytes(got["png"]))).width == round(88 / 25.4 * 300)


def test_x_may_be_a_variable():
    got = draw(nodes(), along=None, x="steps", each="size")
    np.testing.assert_allclose(got["exponent"], draw(nodes())["exponent"], rtol=1e-12)


@pytest.mark.pictures
def test_the_same_input_gives_the_same_bytes():
    first, second = (draw(nodes()) for _ in range(2))
    assert all(a.tobytes() == second[name].tobytes() for name, a in first.items())


def test_every_declared_variable_is_there_in_its_type():
    got = draw(nodes())
    assert set(got) == {v.name for v in find_kind("figure.scaling").outputs}
    for variable in find_kind("figure.scaling").outputs:
        array = got[variable.name]
        is_text = variable.dtype == "str"
        assert array.dtype.kind == "U" if is_text else array.dtype == variable.dtype
        assert array.ndim == len(variable.dims)


@pytest.mark.parametrize(
    "wrong", [{"label": "seed"}, {"x": "steps"}, {"label": "size"}]
)
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(ValidationError):
        ScalingFigureParams(**{**GIVEN, **wrong})


def test_labels_that_are_no_numbers_are_refused_while_planning():
    study = """
study: drawn
axes: {seed: 3, rule: {sgd: {rule: sgd, lr: 0.1}, adam: {rule: adam, lr: 0.1}}}
stages:
  data: {use: data.xor}
  fit: {use: train, data: data, model: {kind: linear}, rule: "${rule}",
        seed: "${seed}", epochs: 2}
  law: {use: figure.scaling, of: fit, y: final_test_loss, along: rule, over: seed}
"""
    message = r"stages.law.along: expected an axis whose labels are numbers, got 'rule'"
    with pytest.raises(StudyError, match=message):
        load_study(study, file="study.yaml")


def test_the_caption_says_where_a_crossing_has_no_bounds():
    of = nodes({"sgd": (3.0, -0.5), "adam": (3.1, -0.51)}, noise=0.2)
    assert "95 % interval without end." in str(draw(of)["caption"])
