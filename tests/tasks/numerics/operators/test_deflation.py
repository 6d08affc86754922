"""Atoms and the rest together are the spectrum of the dense matrix."""

from typing import get_args

import networkx as nx
import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.operators import GraphOperatorName
from curvflow.tasks.numerics.operators.deflation import COMPONENTS, deflated
from curvflow.tasks.numerics.operators.graphs import graph_operator
from tests.tasks.numerics.operators.test_graphs import adjacency
from tests.tasks.probes.graphs.test_graph_structure import drawn

NAMES = get_args(GraphOperatorName)
WHAT = [["components"], ["twins"], ["components", "twins"]]


def eye(size):
    return torch.eye(size, dtype=torch.float64)


def spectrum_of(found):
    rest = torch.linalg.eigvalsh(found @ eye(found.shape[0])).numpy()
    return np.sort(np.append(np.repeat(found.atoms.values, found.atoms.counts), rest))


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
def test_no_eigenvalue_is_lost_or_moved(name, weighted, loops):
    taken = 0
    for seed in range(5):
        W = drawn(seed, weighted=weighted, loops=loops)
        for isolated in ("zero", "one", "drop"):
            rows = adjacency(W, drop_isolated=isolated == "drop")
            operator = graph_operator(rows, name, isolated=isolated)
            size = operator.shape[0]
            dense = torch.linalg.eigvalsh(operator @ eye(size))
            for what in WHAT:
                if "components" in what and name not in COMPONENTS:
                    continue
                found = deflated(operator, name, what)
                assert found.shape[0] + found.atoms.total == size
                np.testing.assert_allclose(spectrum_of(found), dense, atol=1e-12)
                B = found.complement.up(eye(found.shape[0]))
                np.testing.assert_allclose(B.T @ B, eye(len(B.T)), atol=1e-14)
                np.testing.assert_allclose(found.complement.down(eye(size)), B.T)
                taken += found.atoms.total
    assert taken


@pytest.mark.parametrize(
    ("made", "what", "values", "counts"),
    [
        (nx.star_graph(4), ["components", "twins"], [0, 1], [1, 3]),
        (
            nx.disjoint_union(nx.star_graph(2), nx.star_graph(5)),
            WHAT[2],
            [0, 1],
            [2, 5],
        ),
        (nx.complete_graph(5), ["twins"], [1.25], [4]),
        (nx.complete_bipartite_graph(2, 3), ["twins"], [1], [3]),
        (nx.cycle_graph(5), ["components"], [0], [1]),
    ],
)
def test_known_atoms_are_exact(made, what, values, counts):
    operator = graph_operator(
        adjacency(nx.to_numpy_array(made)), "normalized_laplacian"
    )
    atoms = deflated(operator, "normalized_laplacian", what).atoms
    assert (atoms.values.tolist(), atoms.counts.tolist()) == (values, counts)


def test_one_eigenvalue_is_left_of_a_graph_whose_are_all_known():
    W = nx.to_numpy_array(nx.disjoint_union(nx.complete_graph(4), nx.empty_graph(2)))
    for isolated in ("zero", "one"):
        operator = graph_operator(
            adjacency(W), "normalized_laplacian", isolated=isolated
        )
        found = deflated(operator, "normalized_laplacian", ["twins", "components"])
        assert found.shape == (1, 1)
        dense = torch.linalg.eigvalsh(operator @ eye(6))
        np.testing.assert_allclose(spectrum_of(found), dense, atol=1e-14)


def test_single_precision_keeps_its_precision():
    operator = graph_operator(adjacency(drawn(1), dtype=torch.float32), "laplacian")
    found = deflated(operator, "laplacian", ["components", "twins"])
    assert found.dtype == (found @ torch.ones(found.shape[0])).dtype == torch.float32


def test_components_are_refused_of_operators_without_their_eigenvectors():
    for name in set(NAMES) - set(COMPONENTS):
        operator = graph_operator(adjacency(drawn(0)), name)
        with pytest.raises(
            InputError, match=r"^deflate: components cannot be combined"
        ):
            deflated(operator, name, ["components"])
