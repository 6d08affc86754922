"""Probes of graphs give what the dense matrix of the graph has."""

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
import torch

import curvflow
from curvflow.errors import InputError

STUDY = """\
study: graphs
axes: {seed: 2}
stages:
  graph: {use: data.random_graph, model: erdos_renyi, n: 40, p: 0.05, seed: "${seed}"}
  exact: {use: probe.dense, graph: graph}
  linked: {use: probe.dense, graph: graph, isolated: drop}
  runs: {use: probe.spectrum, graph: graph, num_runs: 3, num_steps: 40}
  top: {use: probe.eigenvalues, graph: graph, operator: laplacian, which: LA, k: 2,
        method: lanczos}
  logdet: {use: probe.logdet, graph: graph, operator: laplacian, damping: 0.1,
           method: slq, num_steps: 40}
  moments: {use: probe.moments, graph: graph, operator: normalized_adjacency,
            support: [-1, 1], num_moments: 4, num_probes: 50}
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    (folder / "study.yaml").write_text(STUDY)
    return curvflow.run(folder / "study.yaml", store=folder / "store", workers=1)


def graphs(results):
    for seed in (0, 1):
        node = results["graph"].sel(seed=seed)
        size, indptr = int(node["size"]), node["indptr"].values
        W = np.zeros((size, size))
        for row, (start, end) in enumerate(pairwise(indptr)):
            W[row, node["indices"].values[start:end].astype(int)] = 1
        yield seed, W


def test_spectra_are_those_of_networkx(results):
    assert any((W.sum(1) == 0).any() for _, W in graphs(results))
    for seed, W in graphs(results):
        expected = nx.normalized_laplacian_spectrum(nx.from_numpy_array(W))
        for stage in ("exact", "linked"):
            got = results[stage]["eigenvalues"].sel(seed=seed).values
            got = np.sort(got[np.isfinite(got)])
            alone = int((W.sum(1) == 0).sum()) if stage == "linked" else 0
            np.testing.assert_allclose(got, np.sort(expected)[alone:], atol=1e-9)
        runs = results["runs"].sel(seed=seed)
        assert float(runs["largest"]) == pytest.approx(expected.max(), abs=1e-9)


def test_estimates_are_near_the_dense_matrix(results):
    for seed, W in graphs(results):
        laplacian = np.linalg.eigvalsh(np.diag(W.sum(1)) - W)
        top = results["top"]["eigenvalues"].sel(seed=seed).values
        np.testing.assert_allclose(top, laplacian[:-3:-1], rtol=1e-5)
        found = results["logdet"].sel(seed=seed)
        gap = float(found["logdet"]) - np.log(laplacian + 0.1).sum()
        assert abs(gap) < 4 * float(found["logdet_sem"])
        moments = results["moments"].sel(seed=seed)
        assert abs(float(moments["trace"])) < 4 * float(moments["trace_sem"])


def test_the_library_takes_arrays_and_sparse_matrices():
    W = nx.to_scipy_sparse_array(nx.gnp_random_graph(30, 0.2, seed=1))
    exact = nx.laplacian_spectrum(nx.from_scipy_sparse_array(W))
    for adjacency in (W, W.toarray()):
        L = curvflow.from_graph(adjacency, "laplacian")
        dense = L @ torch.eye(30, dtype=torch.float64)
        np.testing.assert_allclose(torch.linalg.eigvalsh(dense), exact, atol=1e-10)
    found = L.eigenvalues(k=2, which="LA").value
    np.testing.assert_allclose(found, np.sort(exact)[:-3:-1], rtol=1e-5)


@pytest.mark.parametrize(
    ("adjacency", "settings", "message"),
    [
        (np.ones((2, 3)), {}, r"^matrix: .*square"),
        (np.tri(3), {}, r"^matrix: .*symmetric"),
        (np.ones((1, 3, 3)), {}, r"^matrix: .*rows and columns"),
        (np.zeros((0, 0)), {}, r"^matrix: .*rows and columns"),
        (np.full((2, 2), "a"), {}, r"^matrix: .*columns of numbers"),
        ([[1.0], [1.0, 2.0]], {}, r"^matrix: .*columns of numbers"),
        (np.ones((2, 2)).astype(object), {}, r"^matrix: .*columns of numbers"),
        (-np.eye(3), {}, r"^adjacency: expected weights of at least 0, got -1"),
        (np.zeros((3, 3)), {}, r"^graph: expected edges"),
        (np.eye(3), {"operator": "bethe_hessian"}, r"^operator: .*without weights"),
        (np.eye(3), {"operator": "fiedler"}, r"operator: .*'fiedler'"),
        (np.eye(3), {"r": 2.0}, r"r cannot be combined with operator normalized_l"),
    ],
)
def test_what_is_no_graph_is_refused(adjacency, settings, message):
    with pytest.raises(InputError, match=message):
        curvflow.from_graph(adjacency, **settings)
