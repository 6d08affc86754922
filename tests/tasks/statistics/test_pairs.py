"""Two measured variables, node by node."""

import numpy as np
import pytest

from curvflow.errors import InputError
from curvflow.tasks.statistics.measurements import find_measurement
from curvflow.tasks.statistics.pairs import paired_points
from tests.tasks.measured_nodes import node, toy_kinds


@pytest.fixture(autouse=True)
def _toys():
    with toy_kinds():
        yield


def probe(seed, rule="sgd", **arrays):
    return node({"seed": seed, "rule": rule}, **arrays)


def other(coords, value, **kwargs):
    return node(coords, stage="other", kind="toy.other", curvature=value, **kwargs)


def paired(of, axes=("rule", "seed"), x="steps", y="curvature"):
    return paired_points(
        find_measurement("x", x, of), find_measurement("y", y, of), axes
    )


def test_nodes_of_two_stages_are_paired_where_their_labels_agree():
    of = [probe(seed, rule, steps=seed) for seed in (0, 1) for rule in ("sgd", "adam")]
    of += [
        other({"seed": seed, "rule": rule}, 10 * seed + len(rule))
        for rule in ("sgd", "adam")
        for seed in (1, 0)
    ]
    result = {tuple(p.labels.values()): p.values for p in paired(of)}
    assert result == {
        ("sgd", 0): [(0, 3)],
        ("sgd", 1): [(1, 13)],
        ("adam", 0): [(0, 4)],
        ("adam", 1): [(1, 14)],
    }


def test_a_stage_without_an_axis_stands_for_all_its_labels():
    of = [probe(seed, steps=seed) for seed in range(3)]
    of.append(other({"rule": "sgd"}, 7.0))
    for x, y in (("steps", "curvature"), ("curvature", "steps")):
        (point,) = paired(of, axes=["rule"], x=x, y=y)
        pairs = [(float(seed), 7.0) for seed in range(3)]
        wanted = pairs if x == "steps" else [(b, a) for a, b in pairs]
        assert point.values == wanted


def test_labels_of_one_stage_alone_have_no_point():
    of = [probe(seed, steps=seed) for seed in range(3)]
    of += [other({"seed": seed, "rule": "sgd"}, 0.0) for seed in (1, 2, 3)]
    assert [p.labels["seed"] for p in paired(of)] == [1, 2]


def test_a_pair_of_which_one_diverged_is_counted_only():
    of = [probe(0, diverged=True), probe(1, steps=1), probe(2, steps=2)]
    of += [
        other({"seed": seed, "rule": "sgd"}, 1.0, diverged=seed == 1)
        for seed in range(3)
    ]
    (point,) = paired(of, axes=["rule"])
    assert (point.nodes, point.diverged, point.values) == (3, 2, [(2, 1)])


def test_pairs_that_are_not_finite_are_kept_apart():
    of = [probe(0, steps=1), probe(1, steps=2)]
    of += [other({"seed": s, "rule": "sgd"}, v) for s, v in ((0, np.nan), (1, 5.0))]
    (point,) = paired(of, axes=["rule"])
    assert len(point.values) == 2
    assert point.finite.tolist() == [[2, 5]]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"x": "eigenvalues"},
            "x: expected a single number per node, got eigenvalues with rank. "
            "Choose another variable.",
        ),
        (
            {"axes": ["rules"]},
            "label, marker, each: expected an axis of probe or other, got 'rules'. "
            "Did you mean 'rule'?",
        ),
    ],
)
def test_what_makes_no_points_is_refused(params, message):
    of = [probe(0, steps=1), other({"seed": 0, "rule": "sgd"}, 1.0)]
    with pytest.raises(InputError) as caught:
        paired(of, **params)
    assert str(caught.value) == message
