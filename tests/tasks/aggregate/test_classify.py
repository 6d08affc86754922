"""Classes by the nearest item: against points on a line, and scikit-learn."""

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier

from curvflow.errors import InputError, StudyError
from curvflow.schemas.nodes import Distances
from curvflow.schemas.study.study import load_study
from tests.tasks.toys import assert_declared, compute, member

KIND = "aggregate.classify"


def distances(points, classes):
    points = np.asarray(points, dtype=np.float64)
    arrays = {
        "matrix": np.abs(points[:, None] - points),
        "axis": np.array(["kind", "seed"]),
        "item": np.array([f"{c}, {n}" for n, c in enumerate(classes)]),
        "labels": np.array([[c, str(n)] for n, c in enumerate(classes)]),
    }
    return Distances("near", "aggregate.spectral_distance", {}, arrays, "")


def classified(of, **params):
    (outcome,) = compute(KIND, [member(KIND, {"by": "kind", **params}, of=of)])
    assert_declared(KIND, outcome)
    return outcome.arrays


def test_the_class_is_that_of_the_nearest_other_item():
    got = classified(distances([0, 1, 10, 11, 2.5], ["a", "a", "b", "b", "b"]))
    assert got["nearest"].tolist() == ["a, 1", "a, 0", "b, 3", "b, 2", "a, 1"]
    assert got["label"].tolist() == got["predicted"].tolist() == ["a", "b"]
    assert got["confusion"].tolist() == [[2, 0], [1, 2]]
    assert got["quantity"].tolist() == ["accuracy", "accuracy: a", "accuracy: b"]
    assert got["accuracy"].tolist() == pytest.approx([4 / 5, 1, 2 / 3])
    assert got["distance_to_nearest"].tolist() == [1, 1, 1, 1, 1.5]
    # Least distance to the other class less that to the own one.
    assert got["margin"].tolist() == [1.5, 0.5, 8, 9, 1.5 - 7.5]
    assert got["chance"] == pytest.approx(3 / 5)


def test_accuracy_and_interval_are_those_of_other_packages():
    random = np.random.default_rng(0)
    classes = np.repeat(["a", "b", "c"], 10)
    points = random.normal(size=30) + np.repeat([0, 2, 4], 10)
    neighbour = KNeighborsClassifier(1)
    wanted = cross_val_predict(neighbour, points[:, None], classes, cv=LeaveOneOut())
    correct = int((wanted == classes).sum())
    assert 10 < correct < 30
    got = classified(distances(points, classes), confidence=0.9)
    assert got["correct"][0] == correct
    limits = binomtest(correct, 30).proportion_ci(0.9, method="exact")
    assert (got["low"][0], got["high"][0]) == pytest.approx((limits.low, limits.high))
    known = [[((classes == a) & (wanted == b)).sum() for b in "abc"] for a in "abc"]
    assert got["confusion"].tolist() == known


def test_items_without_distances_are_counted_and_have_no_class():
    of = distances([0, 1, 10, 11], ["a", "a", "b", "b"])
    of["matrix"][3] = of["matrix"][:, 3] = np.nan
    got = classified(of)
    assert got["num_unclassified"] == 1
    assert got["count"].tolist() == [3, 2, 1]
    assert got["confusion"].tolist() == [[2, 0], [1, 0]]
    assert np.isnan(got["distance_to_nearest"][3])
    assert got["nearest"][3] == ""
    of["matrix"][:] = np.nan
    with pytest.raises(InputError, match="distances of all pairs"):
        classified(of)


def test_a_class_of_one_item_is_never_found():
    got = classified(distances([0, 1, 2], ["a", "b", "b"]))
    assert got["accuracy"][1] == 0
    assert np.isnan(got["margin"][0])


def test_an_axis_that_items_lack_is_refused():
    with pytest.raises(InputError, match="an axis of the items, got 'stage'"):
        classified(distances([0, 1], ["a", "b"]), by="stage")


STUDY = """\
study: classes
axes: {p: [0.1, 0.3], seed: 2}
stages:
  graph: {use: data.random_graph, model: erdos_renyi, n: 20, p: "${p}", seed: "${seed}"}
  spectrum: {use: probe.dense, graph: graph}
  near: {use: aggregate.spectral_distance, of: spectrum, along: [p, seed],
         divergence: wasserstein1}
  to: {use: aggregate.spectral_distance, of: spectrum, along: p, to: 0.1,
       divergence: wasserstein1}
"""


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("of: near, by: q", "along which 'near' compares, got 'q'"),
        ("of: to, by: p", "distances of all pairs, got 'to' to 0.1"),
        ("of: spectrum, by: p", "returns Distances"),
    ],
)
def test_what_planning_can_see_is_refused_while_planning(line, words):
    with pytest.raises(StudyError, match=words):
        load_study(f"{STUDY}  asked: {{use: {KIND}, {line}}}\n", file="study.yaml")
