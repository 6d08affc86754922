"""Large graphs are computed one by one: the same bits alone and beside others."""

import numpy as np
import pytest

from curvflow.schemas.kinds import all_kinds, find_kind
from curvflow.schemas.kinds.shared.graphs import graph
from curvflow.schemas.nodes import Graph, Member
from curvflow.tasks import registry
from curvflow.tasks.curvature import operators
from curvflow.tasks.numerics.operators.graphs import GraphOperator
from curvflow.tasks.registry import Machine
from tests.tasks.numerics.operators.test_graphs import drawn

SIZE = 24
SETTINGS = {
    "probe.dense": {},
    "probe.diagonal": {"num_probes": 4},
    "probe.effective_dimension": {"num_runs": 2, "num_steps": 8},
    "probe.eigenvalues": {"k": 2},
    "probe.gershgorin": {},
    "probe.logdet": {"damping": 0.5, "num_runs": 2, "num_steps": 8},
    "probe.moments": {"num_moments": 6, "num_probes": 4},
    "probe.spectrum": {"num_runs": 3, "num_steps": 8},
    "probe.squared_norm": {},
    "probe.trace": {},
}


def member(name, seed):
    W = drawn(seed, weighted=True, loops=False, size=SIZE)
    row, column = W.nonzero()
    indptr = np.searchsorted(row, np.arange(SIZE + 1))
    arrays = graph(indptr, column, W[row, column])
    node = Graph("graph", "data.graph", {}, arrays, f"digest {seed}")
    params = find_kind(name).params(**SETTINGS[name])
    return Member(params, {"graph": [node]})


def test_every_kind_that_takes_a_graph_as_an_operator_is_tried():
    takes = {
        name
        for name, kind in all_kinds().items()
        if "graph" in kind.inputs
        and kind.inputs["graph"].follows is None
        and "operator" in kind.params.model_fields
    }
    assert takes == set(SETTINGS)


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_bits_are_the_same_alone_and_beside_others(monkeypatch, name):
    monkeypatch.setattr(operators, "APART_FROM", SIZE)
    compute = registry.find(name).compute
    one, *others = [member(name, seed) for seed in range(4)]
    (alone,) = compute([one], Machine())
    for tile in ([one, one], [*others, one], [others[0], one]):
        assert_same_bits(alone, compute(tile, Machine())[-1])


def assert_same_bits(first, second):
    assert first.arrays.keys() == second.arrays.keys()
    for name, array in first.arrays.items():
        assert (
            np.asarray(array).tobytes() == np.asarray(second.arrays[name]).tobytes()
        ), name


@pytest.mark.parametrize(("apart", "times"), [(SIZE, 1), (SIZE + 1, 2)])
def test_a_graph_alone_costs_its_own_products(monkeypatch, apart, times):
    monkeypatch.setattr(operators, "APART_FROM", apart)
    multiplied, plain = [], GraphOperator.multiply_into

    def counted(self, columns, into):
        multiplied.append(columns.shape[1])
        plain(self, columns, into)

    monkeypatch.setattr(GraphOperator, "multiply_into", counted)
    one = member("probe.spectrum", 0)
    first, _ = registry.find("probe.spectrum").compute([one, one], Machine())
    assert sum(multiplied) == times * int(first.arrays["num_matvecs"])
