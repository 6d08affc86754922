"""Which nodes share a tile, how many fit, and who is to blame."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvflow.flows.graph import tiles
from curvflow.flows.graph.tiles import (
    MAX_WIDTH,
    bisect,
    count_tiles,
    groups,
    padded,
    width_for,
)
from curvflow.flows.plan.plan import make_plan
from curvflow.stores.memory import MemoryStore
from tests.flows.toys import STUDY, opened


def fits(*overrides, text=STUDY):
    o = opened(MemoryStore(), *overrides, text=text)
    nodes = make_plan(o.study, o.store, o.files).graph.nodes["fit"]
    for number, node in enumerate(nodes):
        node.state, node.key = "stale", str(number)
    return nodes


def test_nodes_that_differ_in_varying_fields_share_a_tile():
    assert [len(group) for group in groups(fits(), {})] == [6]


def test_nodes_that_differ_in_other_fields_do_not():
    text = STUDY.replace('"${rule.lr}"', '"${rule.lr}", epochs: "${rule.epochs}"')
    rules = "axes.rule={a: {lr: 0.1, epochs: 2}, b: {lr: 0.1, epochs: 4}}"
    assert [len(group) for group in groups(fits(rules, text=text), {})] == [3, 3]


@given(st.integers(1, 1 << 40), st.integers(1 << 20, 1 << 40))
def test_width_is_a_power_of_two_that_fits_or_two(node_bytes, budget):
    width = width_for(node_bytes, budget)
    assert 2 <= width <= MAX_WIDTH
    assert width & (width - 1) == 0
    assert width == 2 or width * node_bytes <= budget


def test_the_least_number_of_tiles_counts_open_nodes_alone(monkeypatch):
    nodes = fits("axes.seed=4")
    assert count_tiles(groups(nodes, {})) == 1
    monkeypatch.setattr(tiles, "MAX_WIDTH", 2)
    assert count_tiles(groups(nodes, {})) == 4
    for node in nodes[:5]:
        node.state = "cached"
    assert count_tiles(groups(nodes, {})) == 2


def test_one_member_is_padded_to_two():
    assert padded([7]) == [7, 7]
    assert padded([7, 8, 9]) == [7, 8, 9]


NUMBERS = st.integers(0, 30)


@given(st.lists(NUMBERS, min_size=1, max_size=40), st.sets(NUMBERS))
def test_bisection_isolates_exactly_the_culprits(members, culprits):
    def compute(members):
        if culprits.intersection(members):
            raise ValueError("bad")
        return [m * 2 for m in members]

    results = bisect(members, compute)
    for member, (result, width) in zip(members, results, strict=True):
        assert width <= len(members)
        if member in culprits:
            assert isinstance(result, ValueError)
        else:
            assert result == member * 2


def test_an_interrupt_is_not_a_failure():
    def compute(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bisect([1, 2], compute)
