"""Numbers of graphs are those of networkx and of definitions taken literally."""

from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from scipy import sparse

from curvflow.schemas.kinds.probes.graphs.graph_structure import GraphStructureParams
from curvflow.schemas.kinds.shared.graphs import graph
from curvflow.schemas.nodes import Graph, Member
from curvflow.tasks.numerics.graphs import twins as numerics
from curvflow.tasks.probes.graphs.graph_structure import graph_structure, member_bytes
from curvflow.tasks.registry import Machine


def member(W):
    rows = sparse.csr_array(W)
    weights = None if (rows.data == 1).all() else rows.data
    arrays = graph(rows.indptr, rows.indices, weights)
    node = Graph("graph", "data.graph", {}, arrays, "")
    return Member(GraphStructureParams(), {"graph": [node]})


def structure(W):
    (outcome,) = graph_structure([member(W)], Machine())
    return outcome.arrays


def drawn(seed, *, weighted=False, loops=False, size=14):
    """Return a random adjacency with twins, sides now and then, and isolated nodes."""
    generator = np.random.default_rng(seed)
    W = np.triu(generator.random((size, size)) < generator.uniform(0.05, 0.4), 1)
    W = W.astype(float)
    if weighted:
        W *= generator.integers(1, 3, W.shape)
    if loops:
        W += np.diag(generator.integers(0, 2, size))
    W = np.triu(W) + np.triu(W, 1).T
    for joined in (0.0, 0.0, 1.0, 1.0 + weighted):  # copies of a node are its twins
        old, new = generator.choice(size, 2, replace=False)
        W[new], W[:, new] = W[old], W[:, old]
        W[new, new] = W[old, old]
        W[old, new] = W[new, old] = joined
    shuffled = generator.permutation(size)
    return W[shuffled][:, shuffled]


def classes_of(W, *, joined):
    """Return the classes by comparing all pairs of nodes, as sets."""
    found = []
    for u, v in combinations(range(len(W)), 2):
        others = np.setdiff1d(np.arange(len(W)), [u, v])
        same = (W[u, others] == W[v, others]).all() and W[u, u] == W[v, v]
        is_bare = not (W[u, others].any() or W[u, v])
        if same and not is_bare and (W[u, v] > 0) == joined:
            home = next((each for each in found if u in each), None)
            if home is None:
                found.append({u, v})
            else:
                home.add(v)
    return found


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("collide", [False, True])
def test_twins_are_those_of_all_pairs(monkeypatch, weighted, loops, collide):
    if collide:  # equal hashes of unequal rows
        zeros = np.zeros_like
        monkeypatch.setattr(numerics, "hashes", lambda numbers: zeros(numbers))
    kinds = set()
    for seed in range(25):
        W = drawn(seed, weighted=weighted, loops=loops)
        rows = sparse.csr_array(W)
        found = numerics.twins(rows.indptr, rows.indices, rows.data)
        for joined in (False, True):
            expected = classes_of(W, joined=joined)
            numbers = np.flatnonzero((found.joined > 0) == joined)
            got = [set(found.nodes[found.number == number]) for number in numbers]
            assert sorted(map(sorted, got)) == sorted(map(sorted, expected))
            kinds |= {joined} if got else set()
        for number, (weight, loop) in enumerate(
            zip(found.joined, found.loops, strict=True)
        ):
            u, v = found.nodes[found.number == number][:2]
            assert (W[u, v], W[u, u]) == (weight, loop)
    assert kinds == {False, True}


def test_rows_of_many_parts_have_the_same_twins(monkeypatch):
    W = drawn(3, weighted=True)
    rows = sparse.csr_array(W)
    whole = numerics.twins(rows.indptr, rows.indices, rows.data)
    monkeypatch.setattr(numerics, "CHUNK", 3)
    parts = numerics.twins(rows.indptr, rows.indices, rows.data)
    np.testing.assert_array_equal(parts.nodes, whole.nodes)
    np.testing.assert_array_equal(parts.joined, whole.joined)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loops", [False, True])
def test_counts_are_those_of_networkx(monkeypatch, weighted, loops):
    monkeypatch.setattr("curvflow.tasks.numerics.graphs.structure.CHUNK", 20)
    for seed in range(10):
        W = drawn(seed, weighted=weighted, loops=loops)
        got, G = structure(W), nx.from_numpy_array(W)
        sizes = [len(each) for each in nx.connected_components(G)]
        degrees, apart = W.sum(1), [classes_of(W, joined=j) for j in (False, True)]
        expected = {
            "size": len(W),
            "num_edges": G.number_of_edges(),
            "num_loops": nx.number_of_selfloops(G),
            "total_weight": G.size("weight"),
            "mean_degree": degrees.mean(),
            "least_degree": degrees.min(),
            "largest_degree": degrees.max(),
            "num_components": len(sizes),
            "largest_component": max(sizes),
            "num_isolated": len(list(nx.isolates(G))),
            "num_open_classes": len(apart[0]),
            "num_open_twins": sum(map(len, apart[0])),
            "num_closed_classes": len(apart[1]),
            "num_closed_twins": sum(map(len, apart[1])),
            "bipartite": nx.is_bipartite(G),
            "num_triangles": sum(nx.triangles(G).values()) // 3,
        }
        assert {name: got[name].item() for name in expected} == expected
        again = np.repeat(got["degree"], got["degree_count"])
        np.testing.assert_array_equal(again, np.sort(degrees))


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (nx.star_graph(6), {"num_open_classes": 1, "num_open_twins": 6}),
        (nx.complete_graph(5), {"num_closed_twins": 5, "num_triangles": 10}),
        (nx.complete_bipartite_graph(3, 4), {"num_open_twins": 7, "bipartite": True}),
        (nx.path_graph(4), {"num_open_twins": 0, "num_closed_twins": 0}),
        (nx.cycle_graph(7), {"num_open_classes": 0, "bipartite": False}),
        (nx.empty_graph(3), {"num_isolated": 3, "num_open_twins": 0, "size": 3}),
    ],
)
def test_known_graphs_have_what_they_have(made, expected):
    got = structure(nx.to_numpy_array(made))
    assert {name: got[name].item() for name in expected} == expected


def test_memory_is_estimated_by_entries():
    small, large = (member(np.ones((size, size))) for size in (10, 300))
    more = len(large.one("graph")["indices"]) - len(small.one("graph")["indices"])
    assert member_bytes(large) - member_bytes(small) > 25 * more
