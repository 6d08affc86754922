"""Large graphs are computed one by one: the same bits alone and beside others."""

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves

import curvflow
from curvflow.schemas.kinds import all_kinds, find_kind
from curvflow.schemas.kinds.shared.graphs import graph
from curvflow.schemas.nodes import Graph, Member
from curvflow.tasks import registry
from curvflow.tasks.curvature import operators
from curvflow.tasks.numerics.derivatives import passes
from curvflow.tasks.numerics.derivatives.passes import peak_bytes
from curvflow.tasks.numerics.operators.graphs import GraphOperator
from curvflow.tasks.registry import Machine
from tests.tasks.numerics.operators.test_graphs import drawn
from tests.tasks.toys import compute
from tests.tasks.toys import member as toy

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
        and not kind.inputs["graph"].follows
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


def is_sparse(leaf):
    return isinstance(leaf, torch.Tensor) and leaf.layout is torch.sparse_csr


LARGE = {"model": "barabasi_albert", "n": 30_000, "m": 3}


@pytest.mark.parametrize("operator", ["normalized_laplacian", "adjacency"])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("probe.moments", {"num_moments": 6, "num_probes": 20, "support": (-999, 999)}),
        (
            "probe.spectrum",
            {"num_runs": 12, "num_steps": 5, "reorthogonalize": "none"},
        ),
    ],
)
def test_the_memory_planned_for_a_graph_is_what_is_taken(
    monkeypatch, name, settings, operator
):
    # The parts of a sparse tensor have been counted when they were made.
    monkeypatch.setattr(
        passes,
        "tree_leaves",
        lambda tree: [leaf for leaf in tree_leaves(tree) if not is_sparse(leaf)],
    )
    (made,) = compute("data.random_graph", [toy("data.random_graph", LARGE)])
    node = Graph("graph", "data.random_graph", {}, made.arrays, "large")
    params = find_kind(name).params(operator=operator, **settings)
    one = Member(params, {"graph": [node]})
    found = registry.find(name)
    taken = peak_bytes(lambda: found.compute([one], Machine()))
    held = sum(array.nbytes for array in made.arrays.values())
    assert found.member_bytes(one) - held == pytest.approx(taken, rel=0.2)


def test_blocks_of_many_nodes_are_of_fewer_vectors(monkeypatch):
    one = member("probe.moments", 0)
    plain = registry.find("probe.moments").compute([one], Machine())[0].arrays
    monkeypatch.setattr(operators, "DATA_BLOCK_BYTES", 3 * 8 * SIZE)
    assert operators.block_of(one, 20) == 3
    few = registry.find("probe.moments").compute([one], Machine())[0].arrays
    np.testing.assert_allclose(few["moment_draws"], plain["moment_draws"], atol=1e-12)
    monkeypatch.setattr(operators, "DATA_BLOCK_BYTES", 1)
    assert (operators.block_of(one, 20), operators.block_of(one, 1)) == (2, 1)


@pytest.mark.parametrize("name", ["data.random_graph", "probe.graph_structure"])
def test_a_copy_of_a_member_is_not_computed_again(name):
    one = toy("data.random_graph", LARGE | {"n": 50})
    if name != "data.random_graph":
        (made,) = registry.find("data.random_graph").compute([one], Machine())
        node = Graph("graph", "data.random_graph", {}, made.arrays, "small")
        one = Member(find_kind(name).params(), {"graph": [node]})
    first, again = registry.find(name).compute([one, one], Machine())
    assert first is again


def test_a_large_graph_in_memory_is_computed_once(monkeypatch):
    W = drawn(0, weighted=True, loops=False, size=SIZE)
    operator = curvflow.from_graph(W, "laplacian")
    columns, plain = [], GraphOperator.recur_into

    def counted(self, vectors, into, factor, shift):
        columns.append(vectors.shape[1])
        plain(self, vectors, into, factor, shift)

    monkeypatch.setattr(GraphOperator, "recur_into", counted)
    asked = {"num_runs": 5, "num_steps": 8, "reorthogonalize": "none"}
    beside = operator.logdet(damping=0.5, **asked)
    assert not columns  # with a copy, as small ones are
    monkeypatch.setattr(operators, "APART_FROM", SIZE)
    operator = curvflow.from_graph(W, "laplacian")
    alone = operator.shifted(0.5).logdet(**asked)
    assert columns == [5] * 8
    assert float(alone) == pytest.approx(float(beside), rel=1e-9)
