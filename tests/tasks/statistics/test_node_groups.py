import pytest

from curvflow.errors import InputError
from curvflow.tasks.statistics.label_groups import node_groups, selection_text
from tests.tasks.figures.ritz_nodes import ritz, wigner

SMALL = wigner(4)


def test_nodes_are_sorted_by_label_and_diverged_ones_counted():
    nodes = [
        ritz(SMALL, 2, diverged=s == 1, seed=s, m=m) for m in (5, 15) for s in (0, 1)
    ]
    result = node_groups(nodes, "m")
    assert [c.label for c in result] == ["5", "15"]
    assert [(c.nodes, c.diverged, len(c.ok)) for c in result] == [(2, 1, 1)] * 2


def test_several_stages_are_told_apart():
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
