import io

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from pydantic import ValidationError

from curvflow.errors import InputError, StudyError
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.figures.forest import ForestParams
from curvflow.schemas.nodes import Table
from curvflow.schemas.study.study import load_study
from curvflow.tasks.figures import forest
from curvflow.tasks.figures.forest import MINUS, read_differences
from tests.tasks.measured_nodes import compute, node, toy_kinds

RULES = {"sgd": 0.0, "adam": 0.5, "ngd": 3.0}


@pytest.fixture(autouse=True)
def _toys():
    with toy_kinds():
        yield


def compared(coords=None, *, quantities=("trace",), diverged=(), **params):
    """Return a table of differences from sgd, as the engine would hand it on."""
    random = np.random.default_rng(0)
    of = [
        node(
            {"rule": rule, "seed": s},
            trace=mean + random.normal(),
            steps=10 * mean + s,
            diverged=(rule, s) in diverged,
        )
        for rule, mean in RULES.items()
        for s in range(6)
    ]
    given = {"along": "rule", "baseline": "sgd", "over": "seed", "num_resamples": 100}
    outcome = compute(
        "aggregate.compare", of, quantities=list(quantities), **{**given, **params}
    )
    return Table("compared", "aggregate.compare", coords or {}, outcome.arrays, "")


def draw(of, **params):
    return compute("figure.forest", of, **params).arrays


def test_rows_panels_and_intervals_are_those_of_the_table():
    table = compared(quantities=["trace", "steps"])
    got = draw([table])
    assert got["difference"].tolist() == [
        *(f"trace: adam {MINUS} sgd", f"trace: ngd {MINUS} sgd"),
        *(f"steps: adam {MINUS} sgd", f"steps: ngd {MINUS} sgd"),
    ]
    assert got["panel"].tolist() == ["trace", "trace", "steps", "steps"]
    for name, column in (
        *(("mean", "mean"), ("low", "low"), ("high", "high")),
        *(("p", "p_t_holm"), ("count", "count")),
    ):
        np.testing.assert_array_equal(got[name], table[column])
    assert str(got["caption"]) == (
        "Mean differences of pairs; bars: Student's 95 % interval. p: Student's t-test"
        ", corrected by Holm for all rows of a table; filled: p < 0.05."
    )


def test_interval_and_test_are_those_requested():
    table = compared()
    got = draw([table], interval="bootstrap", test="rank")
    np.testing.assert_array_equal(got["low"], table["bootstrap_low"])
    np.testing.assert_array_equal(got["p"], table["p_rank_holm"])
    assert "the bootstrap's 95 % interval. p: Wilcoxon's" in str(got["caption"])
    got = draw([compared(paired=False)], test="none")
    assert str(got["caption"]) == "Differences of means; bars: Welch's 95 % interval."
    assert np.isnan(got["p"]).all()


def test_what_is_not_converged_is_reported():
    table = compared()
    table.arrays["unconverged"] = np.array([0, 3])
    caption = str(draw([table])["caption"])
    assert caption.endswith("Not converged: 3 pairs in 1 row.")


def test_estimates_made_at_different_settings_are_reported():
    table = compared()
    settings = ["", "localization 0.1 to 3; nbeta 2 to 4"]
    table.arrays["differing_settings"] = np.array(settings)
    caption = str(draw([table])["caption"])
    assert caption.endswith(
        "Estimates made at different localization or nbeta are compared in 1 row."
    )


def test_what_is_left_out_is_reported_and_rows_without_pairs_stay():
    gone = {("adam", 1), *(("ngd", s) for s in range(6))}
    got = draw([compared(diverged=gone)])
    assert got["count"].tolist() == [5, 0]
    assert np.isnan(got["mean"][1])
    assert str(got["caption"]).endswith("Left out, diverged: 7 pairs in 2 rows.")


@pytest.mark.parametrize("test", ["t", "none"])
def test_marks_are_filled_where_p_is_small(test):
    axes = Figure().add_subplot()
    params = ForestParams(test=test)
    rows = read_differences([compared()], params)
    forest._draw_panel(axes, rows, [""], params)
    marks = [line for line in axes.lines if line.get_marker() == "s"]
    filled = [mark.get_markerfacecolor() != "white" for mark in marks]
    assert filled == [test == "none" or row.p < 0.05 for row in rows]
    assert test == "none" or set(filled) == {True, False}


@pytest.mark.pictures("png")
def test_tables_of_several_points_are_distinguished_by_colour():
    of = [compared({"width": w}) for w in (8, 16)]
    got = draw(of, label="width")
    assert got["difference"].tolist()[::2] == [
        f"trace: adam {MINUS} sgd, width = {w}" for w in (8, 16)
    ]
    assert Image.open(io.BytesIO(bytes(got["png"]))).width == 1535


def test_only_the_variables_requested_are_drawn_in_that_order():
    table = compared(quantities=["trace", "steps"])
    got = draw([table], quantities=["steps", "trace"])
    assert list(dict.fromkeys(got["panel"])) == ["steps", "trace"]
    with pytest.raises(
        InputError, match="quantities: expected a variable compared, got"
    ):
        draw([table], quantities="stepz")


def test_too_many_rows_and_unknown_labels_are_refused():
    of = [compared({"width": w}) for w in range(31)]
    with pytest.raises(InputError, match="expected 1 to 60 differences"):
        draw(of, over="width")
    with pytest.raises(
        InputError, match="label: expected an axis of compared, got 'wi"
    ):
        draw(of, label="widths")


@pytest.mark.pictures
def test_the_same_input_gives_the_same_bytes():
    first, second = (draw([compared()]) for _ in range(2))
    assert all(a.tobytes() == second[name].tobytes() for name, a in first.items())


def test_every_declared_variable_is_there_in_its_type():
    got = draw([compared()])
    assert set(got) == {v.name for v in find_kind("figure.forest").outputs}
    for variable in find_kind("figure.forest").outputs:
        array = got[variable.name]
        is_text = variable.dtype == "str"
        assert array.dtype.kind == "U" if is_text else array.dtype == variable.dtype
        assert array.ndim == len(variable.dims)


def test_one_axis_has_one_part():
    with pytest.raises(ValidationError, match="expected label to differ from over"):
        ForestParams(label="m", over=("m",))


STUDY = """
study: drawn
axes: {{seed: 3, rule: {{sgd: {{rule: sgd, lr: 0.1}}, adam: {{rule: adam, lr: 0.1}}}}}}
stages:
  data: {{use: data.xor}}
  fit: {{use: train, data: data, model: {{kind: linear}}, rule: "${{rule}}",
        seed: "${{seed}}", epochs: 2}}
  table: {{use: aggregate.summary, of: fit, over: seed}}
  compared: {{use: aggregate.compare, of: fit, along: rule, baseline: sgd, over: seed,
             confidence: 0.9}}
  forest: {{use: figure.forest, {given}}}
"""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "of: table, over: rule",
            r"study.yaml:\d+:\d+: stages.forest.of: expected a stage of "
            "aggregate.compare, got 'table'",
        ),
        (
            "of: compared",
            r"forest.confidence: expected the confidence of 'compared', 0.9, got 0.95. "
            r"Write 0.9\.",
        ),
        (
            "of: compared, confidence: 0.9, label: rule",
            r"forest.label: expected a dimension of the stages taken, got 'rule'",
        ),
    ],
)
def test_what_does_not_fit_is_refused_while_planning(given, message):
    with pytest.raises(StudyError, match=message):
        load_study(STUDY.format(given=given), file="study.yaml")
