"""Functionals of graphs' spectra are those of the dense matrices."""

import networkx as nx
import numpy as np
import pytest
import torch

import curvflow
from curvflow.errors import StudyError
from curvflow.schemas.study.study import load_study
from curvflow.stores.memory import MemoryStore
from curvflow.tasks.numerics.graphs import functionals
from curvflow.tasks.numerics.krylov.lanczos import lanczos
from curvflow.tasks.numerics.operators.base import Dense
from tests.flows.toys import run

STUDY = """\
study: functionals
axes: {seed: 2}
stages:
  graph: {use: data.random_graph, model: erdos_renyi, n: 40, p: 0.08, seed: "${seed}"}
  relative: {use: probe.spectrum, graph: graph, num_runs: 3, num_steps: 20}
  plain: {use: probe.spectrum, graph: graph, operator: laplacian, num_runs: 3,
          num_steps: 20}
  linked: {use: probe.spectrum, graph: graph, isolated: drop, num_runs: 3,
           num_steps: 20}
  edges: {use: probe.spectrum, graph: graph, operator: adjacency, num_runs: 3,
          num_steps: 20}
  netlsd: {use: probe.graph_functionals, ritz: relative, times: [0.1, 2, 50]}
  of_linked: {use: probe.graph_functionals, ritz: linked, times: [0.1, 2, 50]}
  heat: {use: probe.graph_functionals, ritz: plain, operator: laplacian,
         times: [0.1, 2, 50]}
  rest: {use: probe.spectrum, graph: graph, deflate: [components, twins], num_runs: 3,
         num_steps: 25}
  plain_rest: {use: probe.spectrum, graph: graph, deflate: [components, twins],
               operator: laplacian, num_runs: 3, num_steps: 25}
  of_rest: {use: probe.graph_functionals, ritz: rest, times: [0.1, 2, 50],
            functionals: [heat_trace, entropy, log_trees]}
  of_plain_rest: {use: probe.graph_functionals, ritz: plain_rest, operator: laplacian,
                  times: [0.1, 2, 50], functionals: [heat_trace, entropy, log_trees]}
  walks: {use: probe.graph_functionals, ritz: edges, operator: adjacency, beta: 0.5,
          lengths: [2, 3, 7]}
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("functionals")
    (folder / "study.yaml").write_text(STUDY)
    return curvflow.run(folder / "study.yaml", store=folder / "store", workers=1)


def dense(results, seed):
    node = results["graph"].sel(seed=seed)
    size, starts = int(node["size"]), node["indptr"].values
    W = np.zeros((size, size))
    for row in range(size):
        W[row, node["indices"].values[starts[row] : starts[row + 1]].astype(int)] = 1
    return nx.from_numpy_array(W)


def entropy(spectrum):
    part = spectrum / spectrum.sum()
    return -sum(p * np.log(p) for p in part if p > 1e-15)


def holds(found, name, truth):
    """Assert that an estimate is near a truth, by its own error and interval."""
    value, sem = found[name].values, found[f"{name}_sem"].values
    np.testing.assert_array_less(np.abs(value - truth), 4.5 * sem + 1e-9)
    assert found[f"{name}_converged"].all()
    assert (found[f"{name}_low"] <= value).all()
    assert (value <= found[f"{name}_high"]).all()


@pytest.mark.parametrize("seed", [0, 1])
def test_functionals_are_those_of_the_dense_matrix(results, seed):
    G = dense(results, seed)
    times = np.array([[0.1], [2], [50]])
    for stage, spectrum in (
        ("netlsd", nx.normalized_laplacian_spectrum(G)),
        ("heat", nx.laplacian_spectrum(G)),
        ("of_rest", nx.normalized_laplacian_spectrum(G)),
        ("of_plain_rest", nx.laplacian_spectrum(G)),
    ):
        found = results[stage].sel(seed=seed)
        holds(found, "heat_trace", np.exp(-times * spectrum).sum(1))
        holds(found, "entropy", entropy(spectrum))
    linked = results["of_linked"].sel(seed=seed)
    isolated = nx.number_of_isolates(G)
    spectrum = np.sort(nx.normalized_laplacian_spectrum(G))[isolated:]
    holds(linked, "heat_trace", np.exp(-times * spectrum).sum(1))
    assert int(linked["size"]) == 40 - isolated < 40

    walks, spectrum = results["walks"].sel(seed=seed), nx.adjacency_spectrum(G).real
    holds(walks, "estrada_index", np.exp(spectrum / 2).sum())
    holds(walks, "triangles", sum(nx.triangles(G).values()) / 3)
    holds(walks, "closed_walks", [(spectrum**k).sum() for k in (2, 3, 7)])
    # Of two steps there are two for each edge, whatever the vectors.
    assert walks["closed_walks"][0] == pytest.approx(2 * G.number_of_edges(), rel=0.3)


@pytest.mark.parametrize("seed", [0, 1])
def test_spanning_trees_are_those_of_the_matrix_tree_theorem(results, seed):
    G = dense(results, seed)
    assert nx.number_connected_components(G) > 1
    minors = (
        nx.laplacian_matrix(G.subgraph(part)).toarray()[1:, 1:]
        for part in nx.connected_components(G)
    )
    truth = sum(np.linalg.slogdet(minor)[1] for minor in minors)
    for stage in ("of_rest", "of_plain_rest"):
        holds(results[stage].sel(seed=seed), "log_trees", truth)


KNOWN = """\
study: known
stages:
  graph: {use: data.graph, path: known.csv, columns: [1, 2, 3], self_loops: SELF}
  rest: {use: probe.spectrum, graph: graph, operator: NAME, num_runs: 3,
         deflate: [components, twins], num_steps: 4}
  found: {use: probe.graph_functionals, ritz: rest, operator: NAME,
          functionals: [WHAT]}
"""
CONNECTED = {"laplacian": "kirchhoff_index", "normalized_laplacian": "kemeny_constant"}


@pytest.mark.parametrize("seed", range(8))
def test_where_all_eigenvalues_are_known_sums_above_zero_are_exact(tmp_path, seed):
    """Complete graphs and pairs have components and twins alone."""
    rng = np.random.default_rng(seed)
    name = sorted(CONNECTED)[seed % 2]
    sizes = [rng.integers(2, 12)] if seed < 4 else rng.choice([1, 2, 3], 5)
    weights = [float(rng.choice([1, 0.3, 1e-13])) for _ in sizes]
    edges, trees = [], 0.0
    for part, (size, weight) in enumerate(zip(sizes, weights, strict=True)):
        nodes = [f"n{part}.{number}" for number in range(size)]
        edges += [(u, v, weight) for u in nodes for v in nodes if u < v]
        edges += [(nodes[0], nodes[0], 1.0)] * int(size == 1)
        trees += (size - 2) * np.log(size) + (size - 1) * np.log(weight)
    lines = [f"{u},{v},{weight!r}\n" for u, v, weight in edges]
    (tmp_path / "known.csv").write_text("from,to,weight\n" + "".join(lines))
    names = ["log_trees"] + [CONNECTED[name]] * (seed < 4)
    text = KNOWN.replace("NAME", name).replace("WHAT", ", ".join(names))
    (tmp_path / "study.yaml").write_text(text.replace("SELF", "keep"))
    found = curvflow.run(tmp_path / "study.yaml", workers=1)["found"]
    degree, count = weights[0] * sizes[0], sizes[0] - 1
    truths = {
        "log_trees": trees,
        "kirchhoff_index": sizes[0] * count / degree,
        "kemeny_constant": count**2 / sizes[0],
    }
    for known in names:
        assert float(found[known]) == pytest.approx(truths[known], rel=1e-12, abs=1e-9)
        assert found[f"{known}_sem"] <= 1e-12 * abs(truths[known])
        assert found[f"{known}_converged"]


def test_loops_alone_have_no_entropy(tmp_path):
    (tmp_path / "known.csv").write_text("from,to,weight\na,a,1\nb,b,2\n")
    text = KNOWN.replace("NAME", "laplacian").replace("WHAT", "entropy")
    (tmp_path / "study.yaml").write_text(text.replace("SELF", "keep"))
    (failed,) = curvflow.run(tmp_path / "study.yaml", workers=1).run.failures
    assert "expected an edge between two nodes for entropy" in str(failed)


FINISHED = """\
study: finished
stages:
  graph: {use: data.random_graph, model: erdos_renyi, n: 60, p: 0.2}
  ritz: {use: probe.spectrum, graph: graph, num_runs: 4, num_steps: 12}
  heat: {use: probe.graph_functionals, ritz: ritz, functionals: [heat_trace]}
  count: {use: probe.cluster_count, ritz: ritz}
"""


def test_another_functional_or_count_of_a_finished_study_executes_no_product():
    store = MemoryStore()

    def executed(text):
        counts = run(store, text=text).record.counts["executed"]
        return {stage: number for stage, number in counts.items() if number}

    assert executed(FINISHED) == dict.fromkeys(("graph", "ritz", "heat", "count"), 1)
    for old, new, stage in (
        ("[heat_trace]", "[entropy, heat_trace]", "heat"),
        ("[heat_trace]", "[heat_trace], times: [2]", "heat"),
        ("count, ritz: ritz", "count, ritz: ritz, method: smoothed_lanczos", "count"),
        ("count, ritz: ritz", "count, ritz: ritz, least_gap: 0.2", "count"),
    ):
        assert executed(FINISHED.replace(old, new)) == {stage: 1}
    assert executed(FINISHED) == {}


FEW = """\
study: few
stages:
  graph: {use: data.random_graph, model: path, n: 200}
  plain: {use: probe.spectrum, graph: graph, operator: laplacian, num_runs: 40,
          num_steps: 4}
  rest: {use: probe.spectrum, graph: graph, operator: laplacian, num_runs: 40,
         deflate: [components], num_steps: 4}
  heat: {use: probe.graph_functionals, ritz: plain, operator: laplacian,
         times: [0.1, 100]}
  trees: {use: probe.graph_functionals, ritz: rest, operator: laplacian,
          functionals: [log_trees, kirchhoff_index]}
"""


def test_too_few_steps_are_told_and_the_interval_allows_for_them(tmp_path):
    (tmp_path / "study.yaml").write_text(FEW)
    results = curvflow.run(tmp_path / "study.yaml", workers=1)
    spectrum = np.sort(nx.laplacian_spectrum(nx.path_graph(200)))
    heat = results["heat"]
    assert heat["heat_trace_converged"].values.tolist() == [True, False]
    truth = np.exp(-np.array([[0.1], [100]]) * spectrum).sum(1)
    assert (heat["heat_trace_low"] < truth).all()
    assert (truth < heat["heat_trace_high"]).all()
    assert abs(heat["heat_trace"][1] - truth[1]) > 4 * heat["heat_trace_vectors"][1]
    trees = results["trees"]
    # A line has one tree; its least eigenvalue is far below what four steps see.
    assert not trees["log_trees_converged"]
    assert trees["log_trees_low"] < 0 < trees["log_trees"] < trees["log_trees_high"]
    assert not trees["kirchhoff_index_converged"]
    assert trees["kirchhoff_index_high"] > (200**3 - 200) / 6


INVERSES = """\
study: inverses
axes:
  known:
    cycle: {model: cycle, n: 12, d: null}
    cube: {model: hypercube, n: null, d: 4}
stages:
  graph: {use: data.random_graph, model: "${known.model}", n: "${known.n}",
          d: "${known.d}"}
  rest: {use: probe.spectrum, graph: graph, deflate: [components], num_runs: 4}
  plain_rest: {use: probe.spectrum, graph: graph, deflate: [components], num_runs: 4,
               operator: laplacian}
  kemeny: {use: probe.graph_functionals, ritz: rest, functionals: [kemeny_constant]}
  kirchhoff: {use: probe.graph_functionals, ritz: plain_rest, operator: laplacian,
              functionals: [kirchhoff_index, log_trees]}
  two: {use: data.random_graph, model: planted_clusters, links: 0, seed: 1,
        clusters: [{model: erdos_renyi, count: 2, size: 9, p: 0.9}]}
  apart: {use: probe.spectrum, graph: two, deflate: [components]}
  infinite: {use: probe.graph_functionals, ritz: apart, functionals: [kemeny_constant]}
"""


def test_indices_of_known_graphs_are_theirs(tmp_path):
    (tmp_path / "study.yaml").write_text(INVERSES)
    results = curvflow.run(tmp_path / "study.yaml", workers=1)
    (failed,) = results.run.failures
    assert "expected a connected graph for kemeny_constant, which is infinite" in str(
        failed
    )
    for known, G in (("cycle", nx.cycle_graph(12)), ("cube", nx.hypercube_graph(4))):
        spectrum = np.sort(nx.laplacian_spectrum(G))[1:]
        found = results["kirchhoff"].sel(known=known)
        holds(found, "kirchhoff_index", len(G) * (1 / spectrum).sum())
        holds(found, "log_trees", np.log(spectrum).sum() - np.log(len(G)))
        relative = np.sort(nx.normalized_laplacian_spectrum(G))[1:]
        found = results["kemeny"].sel(known=known)
        holds(found, "kemeny_constant", (1 / relative).sum())
    assert (
        pytest.approx(
            12 * (1 / np.sort(nx.laplacian_spectrum(nx.cycle_graph(12)))[1:]).sum()
        )
        == (12**3 - 12) / 12
    )


def graph_and_runs(rng, name, num_steps):
    """Return a random graph's spectrum, runs on its matrix, and what each should be."""
    n = int(rng.integers(8, 30))
    G = nx.gnp_random_graph(n, rng.uniform(0.05, 0.6), seed=int(rng.integers(1e6)))
    if not G.number_of_edges():
        G.add_edge(0, 1)
    matrix = {
        "adjacency": nx.adjacency_matrix,
        "laplacian": nx.laplacian_matrix,
        "normalized": nx.normalized_laplacian_matrix,
    }[name](G)
    A = torch.as_tensor(matrix.toarray(), dtype=torch.float64)
    starts = torch.as_tensor(rng.choice([-1.0, 1.0], (1, n, 3)))
    ritz = lanczos(Dense(A), starts[0], num_steps=num_steps)
    eigenvalues, vectors = torch.linalg.eigh(A)
    weights = (vectors.T @ starts[0]).square()
    return G, eigenvalues, ritz, weights


@pytest.mark.parametrize("seed", range(8))
def test_bounds_hold_for_each_vector_however_few_the_steps(seed):
    rng = np.random.default_rng(seed)
    steps = int(rng.integers(2, 6))

    def check(found, values, weights):
        draws = (values[:, None] * weights).sum(0)
        slack = 1e-9 * (1 + draws.abs())
        assert (found.lower[0] <= draws + slack).all()
        assert (draws <= found.upper[0] + slack).all()

    for name in ("laplacian", "normalized"):
        G, values, ritz, weights = graph_and_runs(rng, name, steps)
        t = float(10 ** rng.uniform(-2, 1))
        check(functionals.heat_trace(ritz, t), torch.exp(-t * values), weights)
        trace = float(values.sum())
        part = values.clamp_min(0) / trace
        most = 2.0 if name == "normalized" else 2.0 * max(d for _, d in G.degree())
        found = functionals.entropy(ritz, trace, largest=most)
        check(found, -torch.special.xlogy(part, part), weights)
    _, values, ritz, weights = graph_and_runs(rng, "adjacency", steps)
    beta, largest = float(rng.uniform(0.1, 1)), float(values.max()) + 0.1
    found = functionals.estrada_index(ritz, beta, largest=largest)
    check(found, torch.exp(beta * values), weights)


WRONG = """\
study: wrong
stages:
  graph: {{use: data.random_graph, model: cycle, n: 9}}
  spectrum: {{use: probe.spectrum, graph: graph, num_steps: 3{of}}}
  found: {{use: probe.graph_functionals, ritz: spectrum{asked}}}
"""


@pytest.mark.parametrize(
    ("of", "asked", "message"),
    [
        (
            "",
            "operator: adjacency",
            "a spectrum of adjacency, got 'spectrum' of normalized_laplacian",
        ),
        (
            "operator: laplacian",
            "operator: laplacian, functionals: [triangles]",
            "triangles cannot be combined with operator laplacian",
        ),
        (
            "operator: adjacency",
            "operator: adjacency, lengths: [2, 6]",
            "lengths up to 5, which the 3 steps of 'spectrum' hold, got 6",
        ),
        ("isolated: one", "", "cannot be combined with isolated one of 'spectrum'"),
        (
            "",
            "functionals: [log_trees]",
            "log_trees cannot be combined with the whole spectrum of 'spectrum'",
        ),
    ],
)
def test_what_a_spectrum_does_not_hold_is_refused_while_planning(of, asked, message):
    of, asked = (f", {words}" if words else "" for words in (of, asked))
    with pytest.raises(StudyError, match=message):
        load_study(WRONG.format(of=of, asked=asked), file="study.yaml")


def test_an_index_beyond_all_numbers_is_refused(tmp_path):
    (tmp_path / "study.yaml").write_text(
        "study: large\nstages:\n"
        "  graph: {use: data.random_graph, model: complete, n: 30}\n"
        "  spectrum: {use: probe.spectrum, graph: graph, operator: adjacency,\n"
        "             num_runs: 1, num_steps: 3}\n"
        "  index: {use: probe.graph_functionals, ritz: spectrum, operator: adjacency,\n"
        "          beta: 30}\n"
    )
    result = curvflow.run(tmp_path / "study.yaml", workers=1)
    (failed,) = result.run.failures
    assert "beta: expected at most 24.4, since the largest eigenvalue is 29" in str(
        failed
    )
