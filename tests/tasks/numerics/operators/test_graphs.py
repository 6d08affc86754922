"""Matrices of graphs equal their dense twins, whatever the graph has."""

from typing import get_args

import networkx as nx
import numpy as np
import pytest
import torch
from scipy import sparse

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.operators import GraphOperatorName
from curvflow.tasks.numerics.operators import graphs
from curvflow.tasks.numerics.operators.algebra import added, scaled, shifted
from curvflow.tasks.numerics.operators.base import (
    as_batched,
    common_shift,
    recur_into,
)
from curvflow.tasks.numerics.operators.graphs import Adjacency, graph_operator
from curvflow.tasks.numerics.operators.matrices import gershgorin_bounds

NAMES = get_args(GraphOperatorName)


def drawn(seed, *, weighted, loops, size=12, isolated=2):
    """Return a random dense adjacency whose last nodes have no edge."""
    generator = np.random.default_rng(seed)
    linked = size - isolated
    W = np.zeros((size, size))
    W[:linked, :linked] = np.triu(generator.random((linked, linked)) < 0.4)
    if not loops:
        np.fill_diagonal(W, 0)
    if weighted:
        W *= generator.uniform(0.1, 3, W.shape)
    return np.triu(W) + np.triu(W, 1).T


def adjacency(W, *, dtype=torch.float64, **settings):
    rows = sparse.csr_array(W)
    weights = None if (rows.data == 1).all() else torch.as_tensor(rows.data)
    indptr, indices = torch.as_tensor(rows.indptr), torch.as_tensor(rows.indices)
    return Adjacency.of(indptr, indices, weights, dtype=dtype, **settings)


def twin(W, name, *, isolated="zero", r=None):
    """Return the matrix by its textbook formula, in dense arrays."""
    d, eye = W.sum(1), np.eye(len(W))
    alone = np.diag((d == 0).astype(float))
    roots = np.diag([x**-0.5 if x else 0.0 for x in d])
    held = float(isolated == "one") * alone
    if name == "bethe_hessian" and r is None:
        r = np.sqrt((d**2).mean() / d.mean() - 1)
    return {
        "normalized_laplacian": lambda: eye - alone - roots @ W @ roots + held,
        "normalized_adjacency": lambda: roots @ W @ roots + held,
        "laplacian": lambda: np.diag(d) - W,
        "signless_laplacian": lambda: np.diag(d) + W,
        "adjacency": lambda: W,
        "modularity": lambda: W - np.outer(d, d) / d.sum(),
        "bethe_hessian": lambda: (r**2 - 1) * eye - r * W + np.diag(d),
    }[name]()


@pytest.mark.parametrize(
    ("name", "weighted", "loops"),
    [
        (name, weighted, loops)
        for name in NAMES
        for weighted in (False, True)
        for loops in (False, True)
        if name != "bethe_hessian" or not (weighted or loops)  # which is refused
    ],
)
def test_every_operator_equals_its_dense_twin(name, weighted, loops):
    for seed in range(10):
        W = drawn(seed, weighted=weighted, loops=loops)
        for isolated in ("zero", "one"):
            operator = graph_operator(adjacency(W), name, isolated=isolated)
            dense = twin(W, name, isolated=isolated)
            eye = torch.eye(len(W), dtype=torch.float64)
            np.testing.assert_allclose(operator @ eye, dense, rtol=0, atol=1e-12)
            np.testing.assert_allclose(operator @ eye[3], dense[3], rtol=0, atol=1e-12)
            np.testing.assert_allclose(
                operator.diagonal(), np.diag(dense), rtol=0, atol=1e-12
            )
            values = np.linalg.eigvalsh(dense)
            least, largest = gershgorin_bounds(operator)
            assert least - 1e-12 <= values[0]
            assert np.abs(values).max() <= largest + 1e-12
            if name != "modularity":  # whose two parts are bounded apart
                assert largest == pytest.approx(np.abs(dense).sum(1).max(), abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_nodes_without_edges_are_left_out_where_they_lie(name):
    W = np.zeros((9, 9))
    linked = [0, 2, 3, 7]
    W[np.ix_(linked, linked)] = 1 - np.eye(4)
    operator = graph_operator(adjacency(W, drop_isolated=True), name)
    dense = twin(1 - np.eye(4), name)
    eye = torch.eye(4, dtype=torch.float64)
    np.testing.assert_allclose(operator @ eye, dense, rtol=0, atol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_laplacians_are_those_of_networkx(weighted):
    for seed in range(5):
        W = drawn(seed, weighted=weighted, loops=False)
        graph = nx.from_numpy_array(W)
        eye = torch.eye(len(W), dtype=torch.float64)
        for name, of_peer in (
            ("normalized_laplacian", nx.normalized_laplacian_matrix),
            ("laplacian", nx.laplacian_matrix),
        ):
            ours = graph_operator(adjacency(W), name) @ eye
            np.testing.assert_allclose(ours, of_peer(graph).toarray(), atol=1e-12)
    ours = graph_operator(
        adjacency(drawn(0, weighted=False, loops=False)), "modularity"
    )
    graph = nx.from_numpy_array(drawn(0, weighted=False, loops=False))
    np.testing.assert_allclose(ours @ eye, nx.modularity_matrix(graph), atol=1e-12)


def test_a_given_r_is_taken_and_that_of_the_degrees_otherwise():
    W = drawn(1, weighted=False, loops=False)
    eye = torch.eye(len(W), dtype=torch.float64)
    given = graph_operator(adjacency(W), "bethe_hessian", r=1.7) @ eye
    np.testing.assert_allclose(given, twin(W, "bethe_hessian", r=1.7), atol=1e-12)
    # r = 1 is the Laplacian.
    one = graph_operator(adjacency(W), "bethe_hessian", r=1.0) @ eye
    np.testing.assert_allclose(one, twin(W, "laplacian"), atol=1e-12)


def test_two_graphs_alike_in_adjacency_differ_in_the_normalized_laplacian():
    star, ring = (
        nx.star_graph(4),
        nx.disjoint_union(nx.cycle_graph(4), nx.empty_graph(1)),
    )
    spectra = {}
    for name in ("adjacency", "normalized_laplacian"):
        spectra[name] = [
            torch.linalg.eigvalsh(
                graph_operator(adjacency(nx.to_numpy_array(graph)), name)
                @ torch.eye(5, dtype=torch.float64)
            )
            for graph in (star, ring)
        ]
    np.testing.assert_allclose(*spectra["adjacency"], atol=1e-12)
    one, other = spectra["normalized_laplacian"]
    np.testing.assert_allclose(one, [0, 1, 1, 1, 2], atol=1e-12)
    np.testing.assert_allclose(other, [0, 0, 1, 1, 2], atol=1e-12)


def test_two_clusters_have_the_bound_of_their_second_eigenvalue():
    for seed in range(5):
        parts = [nx.gnp_random_graph(20, 0.5, seed=seed + k) for k in (0, 100)]
        graph = nx.disjoint_union(*parts)
        between = 3
        for k in range(between):
            graph.add_edge(k, 20 + k)
        W = nx.to_numpy_array(graph)
        operator = graph_operator(adjacency(W), "normalized_laplacian")
        values = torch.linalg.eigvalsh(operator @ torch.eye(40, dtype=torch.float64))
        d = W.sum(1)
        # Granziol (2020), Corollary 3.1, by a Rayleigh quotient.
        assert values[1] <= between * (1 / d[:20].sum() + 1 / d[20:].sum()) + 1e-12


@pytest.mark.parametrize(
    ("W", "message"),
    [
        (np.zeros((3, 3)), "graph: expected edges, got none"),
        (2 * (1 - np.eye(3)), "operator: expected a graph without weights and loops"),
        (np.ones((3, 3)), "operator: expected a graph without weights and loops"),
    ],
    ids=["no edge", "weights", "loops"],
)
def test_what_has_no_such_operator_is_refused(W, message):
    with pytest.raises(InputError, match=message):
        graph_operator(adjacency(W), "bethe_hessian")


def test_single_precision_is_kept():
    W = drawn(2, weighted=True, loops=True)
    operator = graph_operator(adjacency(W, dtype=torch.float32), "normalized_laplacian")
    image = operator @ torch.ones(len(W), 2, dtype=torch.float32)
    assert image.dtype == torch.float32
    expected = twin(W, "normalized_laplacian").sum(1)
    np.testing.assert_allclose(image[:, 0], expected, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("isolated", [0, 2, 11])
def test_steps_of_a_recurrence_are_made_in_place(monkeypatch, name, isolated):
    monkeypatch.setattr(graphs, "CHUNK", 7)  # rows in several blocks
    W = drawn(3, weighted=False, loops=False, size=40, isolated=isolated)
    operator, dense = graph_operator(adjacency(W), name), twin(W, name)
    generator = torch.Generator().manual_seed(0)
    columns, before = (
        torch.randn(40, 3, generator=generator, dtype=torch.float64) for _ in range(2)
    )
    for vectors in (columns, columns.T.contiguous().T, columns[:, :1]):
        into = torch.full_like(vectors, torch.nan)  # memory may hold anything
        operator.multiply_into(vectors, into)
        np.testing.assert_allclose(into, dense @ vectors.numpy(), rtol=0, atol=1e-12)
        into = before[:, : vectors.shape[1]].clone()
        expected = 0.7 * dense @ vectors.numpy() - 0.3 * vectors.numpy() - into.numpy()
        operator.recur_into(vectors, into, 0.7, -0.3)
        np.testing.assert_allclose(into, expected, rtol=0, atol=1e-12)


def test_a_multiple_and_a_shift_make_the_same_steps():
    W = drawn(3, weighted=True, loops=True, size=30)
    whole = shifted(scaled(as_batched(graph_operator(adjacency(W), "laplacian")), 2), 1)
    dense = 2 * twin(W, "laplacian") + np.eye(30)
    columns = torch.randn(1, 30, 2, generator=torch.Generator().manual_seed(0)).double()
    ones = torch.ones(1).double()
    into = torch.zeros_like(columns)
    recur_into(whole, columns, into, 3 * ones, 4 * ones)
    expected = 3 * dense @ columns[0].numpy() + 4 * columns[0].numpy()
    np.testing.assert_allclose(into[0], expected, rtol=0, atol=1e-12)
    recur_into(whole, columns, into.zero_(), ones, None)
    rest = dense - common_shift(whole) * np.eye(30)
    np.testing.assert_allclose(into[0], rest @ columns[0].numpy(), rtol=0, atol=1e-12)
    assert added(whole, whole).single is None


def test_neighbours_are_used_as_they_are_stored():
    W = drawn(3, weighted=False, loops=False)
    rows = sparse.csr_array(W)
    indptr, indices = torch.as_tensor(rows.indptr), torch.as_tensor(rows.indices)
    taken = Adjacency.of(indptr, indices, None, dtype=torch.float64)
    assert taken.columns.data_ptr() == indices.data_ptr()
    assert taken.matrix().col_indices().data_ptr() == indices.data_ptr()
    ones = Adjacency.of(indptr, indices, torch.ones(len(indices)), dtype=torch.float64)
    assert ones.weights is None
