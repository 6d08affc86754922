"""Where a quantity is least: against vertices of known parabolas."""

import math

import numpy as np
import pytest
from pydantic import ValidationError
from scipy import stats

from curvflow.errors import InputError, StudyError
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.study.study import load_study
from tests.tasks.measured_nodes import compute, node, toy_kinds

KIND = "aggregate.minimum"
XS = (0.0, 1.0, 1.5, 4.0)


@pytest.fixture(autouse=True)
def _toys():
    with toy_kinds():
        yield


def curve(vertex, xs=XS, curvature=2.0, offset=0.5, **coords):
    return [
        node({"x": x, **coords}, trace=offset + curvature * (x - vertex) ** 2)
        for x in xs
    ]


def found(of, **params):
    given = {"quantity": "trace", "along": "x", **params}
    return {n: v.item() for n, v in compute(KIND, of, **given).arrays.items()}


def distances(x, y, sem, **coords):
    nothing = np.full(len(x), np.nan)
    return node(
        coords,
        stage="distance",
        kind="aggregate.spectral_distance",
        value=np.array(x, dtype=np.float64),
        distance=np.array(y, dtype=np.float64),
        distance_sem=np.array(nothing if sem is None else sem, dtype=np.float64),
        converged=np.ones(len(x), dtype=bool),
    )


def in_table(of, **params):
    given = {"quantity": "distance", "along": None, "x": "value"}
    return found(of, **given, **params)


@pytest.mark.parametrize("vertex", [0.9, 1.1, 1.5, 2.0])
def test_a_parabola_has_its_vertex_whatever_the_spacing(vertex):
    got = found(curve(vertex))
    assert got["argument"] == pytest.approx(vertex, rel=1e-12)
    assert got["minimum"] == pytest.approx(0.5, rel=1e-12)
    assert (got["least_x"], got["greatest_x"], got["count"]) == (0, 4, 1)
    assert got["interval"] == "none"
    assert math.isnan(got["argument_sem"])


@pytest.mark.parametrize(("vertex", "edge"), [(-3, 0.0), (9, 4.0)])
def test_a_minimum_at_an_edge_is_the_edge_and_counted(vertex, edge):
    got = found(curve(vertex))
    assert got["argument"] == edge
    assert got["at_edge"] == 1
    assert math.isnan(got["spacing"])


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_or_equal_values_have_their_first_least(count):
    flat = [node({"x": float(x)}, trace=1.0) for x in range(count)]
    assert found(flat)["argument"] == 0.0
    middle = [node({"x": float(x)}, trace=abs(x - 1.0)) for x in range(3)]
    assert found(middle)["argument"] == 1.0


def test_repetitions_have_a_minimum_each_and_student_s_interval():
    vertices = [1.2, 1.4, 1.1, 1.7]
    of = [n for seed, v in enumerate(vertices) for n in curve(v, seed=seed)]
    got = found(of, over="seed")
    sem = stats.sem(vertices)
    low, high = stats.t.interval(0.95, 3, np.mean(vertices), sem)
    assert got["count"] == 4
    assert got["interval"] == "repetitions"
    known = (np.mean(vertices), np.std(vertices, ddof=1), sem, low, high)
    names = ("argument", "argument_sd", "argument_sem", "argument_low", "argument_high")
    assert [got[name] for name in names] == pytest.approx(known, rel=1e-9)
    with pytest.raises(InputError, match="one value for each x, got several"):
        found(of)


def test_the_errors_of_a_single_curve_are_those_of_its_vertex():
    # Of y = x^2 at -1, 0, 1 the vertex is at -(y2 - y0) / (2 (y0 + y2 - 2 y1)), whose
    # derivatives at the values are 1/4, 0 and -1/4.
    error = 0.01
    of = distances([-1, 0, 1], [1, 0, 1], [error] * 3)
    got = in_table([of], num_resamples=4000)
    assert got["argument"] == pytest.approx(0, abs=1e-12)
    known = error * math.sqrt(2) / 4
    assert got["interval"] == "errors"
    assert got["argument_sem"] == pytest.approx(known, rel=0.06)
    assert got["argument_high"] == pytest.approx(1.96 * known, rel=0.1)
    assert got["argument_low"] == pytest.approx(-1.96 * known, rel=0.1)
    same = in_table([of], num_resamples=4000)
    assert same["argument_sem"] == got["argument_sem"]
    assert in_table([distances([-1, 0, 1], [1, 0, 1], None)])["interval"] == "none"


def test_tables_of_distances_are_curves_of_the_variable_x():
    of = [
        distances([2, 0, 1], [(x - v) ** 2 for x in (2, 0, 1)], None, seed=seed)
        for seed, v in enumerate((0.8, 1.2))
    ]
    assert in_table(of, over="seed")["argument"] == pytest.approx(1.0, rel=1e-12)


def test_what_is_not_finite_or_diverged_is_left_out_and_counted():
    of = curve(1.1)
    of[3] = node({"x": 4.0}, trace=np.nan)
    got = found([*of, node({"x": 7.0}, diverged=True)])
    assert got["argument"] == pytest.approx(1.1, rel=1e-12)
    assert (got["nonfinite"], got["diverged"]) == (1, 1)
    with pytest.raises(InputError, match="got none that is finite"):
        found([node({"x": 1.0}, trace=np.nan)])


def test_values_that_are_not_converged_may_be_left_out():
    of = distances([0, 1, 2, 3], [4, -50, 0, 1], None)
    of.arrays["converged"][1] = False
    assert in_table([of])["unconverged"] == 1
    assert in_table([of])["argument"] < 1.5
    assert in_table([of], unconverged="exclude")["argument"] == pytest.approx(2)


def test_one_of_axis_and_variable_is_x():
    params = find_kind(KIND).params
    for given in ({}, {"along": "x", "x": "value"}):
        with pytest.raises(ValidationError, match="one of 'along'"):
            params(quantity="trace", **given)


STUDY = """\
study: nearest
axes: {p: [0.1, 0.3], name: {a: {n: 5}, b: {n: 6}}}
stages:
  graph: {use: data.random_graph, model: erdos_renyi, n: "${name.n}", p: "${p}"}
  spectrum: {use: probe.dense, graph: graph}
  distance: {use: aggregate.spectral_distance, of: spectrum, along: p,
             divergence: wasserstein1}
"""


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "of: spectrum, quantity: trace, along: name",
            "labels are numbers, got 'name'",
        ),
        ("of: distance, quantity: distance, along: p", "dimension"),
        ("of: distance, quantity: distance, along: name", "labels are numbers"),
        (
            "of: distance, quantity: distance, x: label",
            "numbers of quantity, got 'label'",
        ),
        ("of: spectrum, quantity: trace, x: size", "one dimension, got none"),
    ],
)
def test_what_planning_can_see_is_refused_while_planning(line, words):
    with pytest.raises(StudyError, match=words):
        load_study(f"{STUDY}  asked: {{use: {KIND}, {line}}}\n", file="study.yaml")
