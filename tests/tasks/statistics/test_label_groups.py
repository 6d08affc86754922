"""Label groups of values and of nodes, and the text of a selection of nodes."""

import numpy as np
import pytest

from curvflow.errors import InputError
from curvflow.tasks.statistics.label_groups import (
    are_numbers,
    node_groups,
    selection_text,
    value_groups,
    x_labels,
)
from curvflow.tasks.statistics.measurements import find_measurement
from tests.tasks.figures.ritz_nodes import ritz, wigner
from tests.tasks.measured_nodes import node, toy_kinds


@pytest.fixture(autouse=True)
def _toys():
    with toy_kinds():
        yield


def test_groups_keep_the_order_of_the_study_and_count_what_diverged():
    of = [
        node({"rule": "b", "seed": 0}, diverged=True),
        node({"rule": "a", "seed": 0}, trace=1.0),
        node({"rule": "b", "seed": 1}, trace=2.0),
        node({"rule": "a", "seed": 1}, trace=np.nan),
    ]
    first, second = value_groups(find_measurement("y", "trace", of), label="rule")
    assert (first.label, first.nodes, first.diverged) == ("b", 2, 1)
    assert (second.label, second.nodes, second.diverged) == ("a", 2, 0)
    assert [first.nonfinite(), second.nonfinite()] == [0, 1]
    assert first.matrix([""]).tolist() == [[2.0]]


def test_rows_are_set_at_their_own_x():
    of = [
        node({"seed": 0}, epoch=[0, 10], train_loss=[4.0, 3.0]),
        node({"seed": 1}, epoch=[5], train_loss=[2.0]),
    ]
    measurement = find_measurement("y", "train_loss", of)
    (group,) = value_groups(measurement, label=None, x="epoch")
    xs = x_labels(measurement, "epoch", [group])
    assert xs == [0, 5, 10]
    expected = [[4.0, np.nan, 3.0], [np.nan, 2.0, np.nan]]
    np.testing.assert_array_equal(group.matrix(xs), expected)


def test_a_dimension_of_the_variable_becomes_label_or_x():
    of = [node({}, rank=[1, 2], eigenvalues=[1.0, 2.0])]
    measurement = find_measurement("y", "eigenvalues", of)
    by_rank = value_groups(measurement, label="rank")
    assert [(g.label, g.matrix([""]).item()) for g in by_rank] == [(1, 1.0), (2, 2.0)]
    (along,) = value_groups(measurement, label=None, x="rank")
    assert along.matrix([1, 2]).tolist() == [[1.0, 2.0]]


def test_truth_values_are_no_numbers_of_an_axis():
    assert are_numbers([1, 2.5])
    assert not are_numbers([True, False])
    assert not are_numbers(["1"])


def test_where_all_diverged_each_x_is_there_once():
    of = [
        node({"width": width, "seed": seed}, diverged=True)
        for seed in range(2)
        for width in (16, 4)
    ]
    measurement = find_measurement("y", "trace", of)
    result = value_groups(measurement, label=None, x="width")
    assert x_labels(measurement, "width", result) == [4, 16]


SMALL = wigner(4)


def test_nodes_are_sorted_by_label_and_diverged_ones_counted():
    nodes = [
        ritz(SMALL, 2, diverged=s == 1, seed=s, m=m) for m in (5, 15) for s in (0, 1)
    ]
    result = node_groups(nodes, "m")
    assert [c.label for c in result] == ["5", "15"]
    assert [(c.nodes, c.diverged, len(c.ok)) for c in result] == [(2, 1, 1)] * 2


def test_several_stages_are_distinguished():
    nodes = [ritz(SMALL, 2, stage=s, m=5) for s in ("wigner", "wishart")]
    assert [c.label for c in node_groups(nodes, None)] == ["wigner", "wishart"]
    assert [c.label for c in node_groups(nodes, "m")] == ["wigner, 5", "wishart, 5"]
    titles = [c.title for c in node_groups([*nodes, ritz(SMALL, 2, stage="x")], "m")]
    assert titles == ["wigner, m = 5", "wishart, m = 5", "x"]


def test_an_axis_that_no_stage_has_is_refused():
    with pytest.raises(
        InputError, match="label: expected an axis of spectrum, got 'n'"
    ):
        node_groups([ritz(SMALL, 2, m=5)], "n")


def test_what_is_drawn_is_said():
    nodes = [ritz(SMALL, 2, seed=s, m=5, q=2) for s in (0, 1, 2)]
    assert selection_text(nodes, "m") == "; all of 3 seeds, at q = 2"
    assert selection_text([ritz(SMALL, 2)], None) == ""
