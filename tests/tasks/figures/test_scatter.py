import io

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError
from scipy import stats

from curvflow.errors import InputError
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.figures.scatter import ScatterParams
from tests.tasks.measured_nodes import compute, node, toy_kinds

RULES = ("sgd", "adam", "metric", "l2")
SEEDS = range(3)


@pytest.fixture(autouse=True)
def _toys():
    with toy_kinds():
        yield


def norm(rule, seed, data="xor"):
    return (10.0 if data == "xor" else 1000.0) * (1 + RULES.index(rule) + 0.1 * seed)


def error(rule, seed, data="xor"):
    return (2.0 if data == "xor" else 0.5) + RULES.index(rule) ** 2 - 0.01 * seed


def measured(diverged=(), data=("xor",), sign=1):
    of = []
    for name in data:
        for rule in RULES:
            for seed in SEEDS:
                coords = {"seed": seed, "rule": rule, "data": name}
                size = sign * norm(rule, seed, name)
                of.append(node(coords, diverged=(rule, seed) in diverged, steps=size))
                of.append(
                    node(
                        coords,
                        stage="other",
                        kind="toy.other",
                        curvature=sign * error(rule, seed, name),
                    )
                )
    return of


def draw(of, **params):
    given = {"x": "steps", "y": "curvature", "label": "rule", **params}
    return compute("figure.scatter", of, **given).arrays


def test_each_node_has_a_point():
    got = draw(measured(), each="seed")
    wanted = [(rule, seed) for rule in RULES for seed in SEEDS]
    assert got["point"].tolist() == [f"rule = {r}, seed = {s}" for r, s in wanted]
    assert got["x"].tolist() == [norm(*key) for key in wanted]
    assert got["y"].tolist() == [error(*key) for key in wanted]
    assert np.isnan(got["x_low"]).all()
    assert str(got["caption"]) == "12 points; single values, at data = xor."


def test_means_over_seeds_have_intervals_both_ways():
    got = draw(measured(), over="seed")
    assert got["label"].tolist() == list(RULES)
    for number, rule in enumerate(RULES):
        for axis, of in (("x", norm), ("y", error)):
            values = [of(rule, seed) for seed in SEEDS]
            ends = stats.t.interval(
                0.95, 2, loc=np.mean(values), scale=stats.sem(values)
            )
            results = [got[f"{axis}_{end}"][number] for end in ("low", "high")]
            np.testing.assert_allclose(results, ends, rtol=1e-12)
            assert got[axis][number] == pytest.approx(np.mean(values), rel=1e-12)
    assert got["count"].tolist() == [3] * 4
    assert str(got["caption"]) == (
        "4 points; mean over seed, n = 3, at data = xor; bars: Student's 95 % "
        "interval of the mean."
    )


def test_diverged_nodes_are_reported_and_never_drawn():
    gone = [("adam", 0), ("l2", 0), ("l2", 1), ("l2", 2)]
    got = draw(measured(diverged=gone), over="seed")
    assert got["x"][1] == pytest.approx((norm("adam", 1) + norm("adam", 2)) / 2)
    assert got["y"][1] == pytest.approx((error("adam", 1) + error("adam", 2)) / 2)
    assert np.isnan([got["x"][3], got["y"][3]]).all()
    assert got["diverged"].tolist() == [0, 1, 0, 3]
    caption = str(got["caption"])
    assert caption.startswith("3 points; mean over seed, n = 2 to 3,")
    assert caption.endswith("Diverged, left out: adam (1 of 3), l2 (3 of 3).")


def test_values_that_are_not_finite_are_reported_and_take_their_partners_with_them():
    of = measured()
    of[1].arrays["curvature"] = np.array(np.inf)
    got = draw(of, over="seed")
    assert got["count"].tolist() == [2, 3, 3, 3]
    assert got["x"][0] == pytest.approx((norm("sgd", 1) + norm("sgd", 2)) / 2)
    assert "Not finite, left out: 1 value." in str(got["caption"])


def test_both_axes_are_divided_by_their_largest():
    plain = draw(measured(), over="seed")
    got = draw(measured(), over="seed", normalise="max")
    for axis in "xy":
        for name in (axis, f"{axis}_low", f"{axis}_high"):
            np.testing.assert_allclose(got[name], plain[name] / plain[axis].max())


def test_the_largest_is_taken_within_each_data_set():
    both = {"data": ("xor", "digits")}
    within = {"over": "seed", "marker": "data", "normalise": "max", "within": "data"}
    got = draw(measured(**both), **within)
    assert got["shape"].tolist() == ["xor"] * 4 + ["digits"] * 4
    for place in (slice(4), slice(4, 8)):
        assert got["x"][place].max() == got["y"][place].max() == 1
    np.testing.assert_allclose(got["x"][:4], got["x"][4:])
    whole = draw(measured(**both), **{**within, "within": None})
    assert whole["x"][:4].max() == pytest.approx(0.01)
    assert "largest magnitude among points of the same data." in str(got["caption"])


def test_an_error_is_turned_over_so_that_the_best_is_highest():
    plain = draw(measured(), over="seed", normalise="max")
    got = draw(measured(), over="seed", normalise="max", lower_is_better=True)
    np.testing.assert_allclose(got["y"], 1 - plain["y"])
    np.testing.assert_allclose(got["y_low"], 1 - plain["y_high"])
    np.testing.assert_allclose(got["y_high"], 1 - plain["y_low"])
    assert got["y"].argmax() == 0
    # Errors written as -MSE give 1 + (-MSE) / max MSE, the same numbers.
    negative = [-error(rule, 1) for rule in RULES]
    np.testing.assert_allclose(
        got["y"], 1 + np.array(negative) / max(map(abs, negative))
    )
    np.testing.assert_array_equal(got["x"], plain["x"])


CLASSES = {"sgd": 0.9, "adam": 0.97, "metric": 0.7, "l2": 0.95}


def two_trainings():
    """Return a regression, measured by its error, and a classification."""
    coords = [{"seed": seed, "rule": rule} for rule in RULES for seed in SEEDS]
    of = []
    for labels in coords:
        size = norm(labels["rule"], labels["seed"])
        wrong = error(labels["rule"], labels["seed"])
        of.append(node(labels, stage="fit_sines", steps=size, trace=wrong))
    for labels in coords:
        size = norm(labels["rule"], labels["seed"], "digits")
        right = CLASSES[labels["rule"]]
        of.append(
            node(
                labels,
                stage="fit_digits",
                kind="toy.other",
                trace=size,
                curvature=right,
            )
        )
    return of


STAGES = {
    "x": {"fit_sines": "steps", "fit_digits": "trace"},
    "y": {"fit_sines": "trace", "fit_digits": "curvature"},
    "marker": "stage",
    "within": "stage",
    "over": "seed",
    "normalise": "max",
    "lower_is_better": "fit_sines",
}


def test_each_stage_is_a_series_normalised_by_itself():
    got = draw(two_trainings(), correlation=True, **STAGES)
    assert got["shape"].tolist() == ["fit_sines"] * 4 + ["fit_digits"] * 4
    assert got["label"].tolist() == [*RULES] * 2
    sizes = np.array([norm(rule, 1) for rule in RULES])
    wrong = np.array([error(rule, 1) for rule in RULES])
    right = np.array([CLASSES[rule] for rule in RULES])
    np.testing.assert_allclose(got["x"], np.tile(sizes / sizes.max(), 2))
    np.testing.assert_allclose(got["y"][:4], 1 + -wrong / wrong.max())
    np.testing.assert_allclose(got["y"][4:], right / right.max())
    r = stats.spearmanr(got["x"], got["y"])[0]
    assert got["spearman"] == pytest.approx(r, rel=1e-12)
    caption = str(got["caption"])
    assert caption.startswith("8 points; mean over seed, n = 3; bars: ")
    assert (
        "y: 1 \u2212 trace / largest of fit_sines; curvature / largest of " in caption
    )
    assert "among points of the same stage." in caption
    assert "n = 8 points." in caption


def test_error_bars_of_a_stage_turned_over_are_exchanged():
    got = draw(two_trainings(), **STAGES)
    assert (got["y_low"] <= got["y"]).all()
    assert (got["y"] <= got["y_high"]).all()


def test_stages_of_one_variable_need_no_mapping():
    of = [
        node({"seed": s, "rule": r}, stage=name, steps=norm(r, s, d), trace=error(r, s))
        for name, d in (("fit_xor", "xor"), ("fit_digits", "digits"))
        for r in RULES
        for s in SEEDS
    ]
    got = draw(of, y="trace", label="stage", each=["rule"], over="seed")
    assert got["label"].tolist() == ["fit_xor"] * 4 + ["fit_digits"] * 4
    assert got["x"][4] == pytest.approx(norm("sgd", 1, "digits"))
    assert " y: " not in str(got["caption"])


def test_a_variable_that_a_stage_lacks_is_refused():
    with pytest.raises(InputError) as caught:
        draw(two_trainings(), **{**STAGES, "x": "steps"})
    assert str(caught.value) == (
        "x: expected a measured variable, got 'steps'. Known: curvature, trace."
    )


def test_a_figure_of_zeros_stays_at_zero():
    of = measured()
    for run in of:
        run.arrays["curvature" if run.stage == "other" else "steps"] = np.array(0.0)
    got = draw(of, over="seed", normalise="max", correlation=True, line=True)
    assert got["x"].tolist() == got["y"].tolist() == [0] * 4
    assert str(got["caption"]).endswith(
        "No rank correlation: it takes points that differ in x and in y."
    )


def test_line_and_correlation_are_those_of_the_points_drawn():
    got = draw(
        measured(diverged=[("sgd", 0)]), each="seed", line=True, correlation=True
    )
    shown = np.isfinite(got["x"])
    assert shown.sum() == 11
    x, y = got["x"][shown], got["y"][shown]
    known = stats.linregress(x, y)
    assert got["slope"] == pytest.approx(known.slope, rel=1e-12)
    assert got["intercept"] == pytest.approx(known.intercept, rel=1e-12)
    r = stats.spearmanr(x, y)[0]
    assert got["spearman"] == pytest.approx(r, rel=1e-12)
    assert got["spearman_low"] < r < got["spearman_high"]
    assert f"slope {known.slope:.3g}. Spearman's rank correlation {r:.2f}, 95 % " in (
        str(got["caption"])
    )
    assert str(got["caption"]).count("n = 11 points") == 1


def test_a_line_on_logarithmic_axes_is_a_power_law():
    of = measured()
    for run in of:
        if run.stage == "other":
            size = norm(run.coords["rule"], run.coords["seed"])
            run.arrays["curvature"] = np.array(5 * size**-2.0)
    got = draw(of, each="seed", line=True, correlation=True, log_x=True, log_y=True)
    assert got["slope"] == pytest.approx(-2)
    assert 10 ** got["intercept"] == pytest.approx(5)
    caption = str(got["caption"])
    assert "slope \u22122 of log10 y on log10 x." in caption
    assert "correlation \u22121.00, no interval (perfect order), n = 12" in caption


def test_points_and_bars_that_a_logarithmic_axis_lacks_are_reported():
    of = measured()
    of[1].arrays["curvature"] = np.array(-100.0)
    of[7].arrays["curvature"] = np.array(900.0)
    got = draw(of, over="seed", log_y=True)
    assert "3 points; " in str(got["caption"])
    assert "Not on a logarithmic axis: 1 point at or below 0." in str(got["caption"])
    assert str(got["caption"]).endswith("Bars that reach 0 run off the axis.")


def test_a_logarithmic_axis_without_anything_positive_is_refused():
    with pytest.raises(InputError) as caught:
        draw(measured(sign=-1), over="seed", log_x=True)
    assert str(caught.value) == "log_x: expected positive x, got none. Set it to false."


def test_everything_diverged_gives_an_empty_figure():
    gone = [(rule, seed) for rule in RULES for seed in SEEDS]
    got = draw(measured(diverged=gone), over="seed", line=True, normalise="max")
    assert np.isnan(got["x"]).all()
    assert str(got["caption"]).startswith("0 points; ")


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        (None, "label: expected at most 21 labels in one figure, got 22."),
        ("data", "label: expected at most 7 labels in a figure with label and marker"),
    ],
)
def test_more_labels_than_can_be_distinguished_are_refused(marker, message):
    of = [
        node({"rule": f"r{n}", "data": "xor"}, steps=n, rank=[], trace=float(n))
        for n in range(22)
    ]
    with pytest.raises(InputError) as caught:
        draw(of, y="trace", marker=marker)
    assert str(caught.value).startswith(message)


@pytest.mark.pictures
def test_the_same_input_gives_the_same_bytes():
    params = {"over": "seed", "marker": "data", "line": True, "title": "Norms"}
    first, second = (draw(measured(), **params) for _ in range(2))
    assert all(a.tobytes() == second[name].tobytes() for name, a in first.items())


@pytest.mark.pictures("png")
def test_a_column_of_a_journal_is_the_width():
    picture = Image.open(io.BytesIO(draw(measured(), over="seed")["png"].tobytes()))
    assert picture.width == pytest.approx(88 / 25.4 * 300, abs=1)


def test_every_declared_variable_is_there_in_its_type_and_shape():
    got = draw(measured(), over="seed")
    for variable in find_kind("figure.scatter").outputs:
        array = got[variable.name]
        is_text = variable.dtype == "str"
        assert array.dtype.kind == "U" if is_text else array.dtype == variable.dtype
        if variable.file is None:
            assert array.shape == ((4,) if variable.dims else ())


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"marker": "rule"}, "expected marker to differ from label, got 'rule'"),
        ({"each": ["rule"]}, "expected each to differ from label, got 'rule'"),
        ({"over": "seed", "each": ["seed"]}, "expected each to differ from over"),
        ({"within": "rule"}, "within cannot be combined with normalise none"),
        ({"lower_is_better": True}, "lower_is_better cannot be combined with"),
        (
            {"within": "seed", "normalise": "max", "over": "seed"},
            "expected within to name axes of label, marker or each, got 'seed'.",
        ),
        (
            {"y": {"fit": "trace"}},
            "expected label, marker or each to name 'stage' with y per stage, got",
        ),
        (
            {"lower_is_better": "fit", "normalise": "max"},
            "expected label, marker or each to name 'stage' with lower_is_better per",
        ),
        (
            {"y": {"fit": "trace"}, "marker": "stage", "normalise": "max"},
            "expected within to name 'stage' with y per stage, got null.",
        ),
    ],
)
def test_contradictory_parameters_are_refused(params, message):
    with pytest.raises(ValidationError) as caught:
        ScatterParams(**{"x": "steps", "y": "curvature", "label": "rule", **params})
    assert message in str(caught.value)
