"""Graphs through curvflow and its peers: how fast, and how far from the truth.

    python -m benchmarks.peers_graphs [--tasks spectrum,js,...] [--turns N] [--size N]
        [--small]

Each task is one question about one graph, which every system is given in its own form,
made off the clock; systems take turns after one that does not count, and the median of
the seconds of the process counts, on one thread. Answers are held to the truth, by all
eigenvalues, a closed form or residuals, and one that is farther off than the row allows
is marked. A peer that is not installed, by requirements-peers-graphs.txt, or fails is
listed with the reason. `--size` is the nodes of each of the 100 clusters of the row of
lowest eigenvalues. Prints a table in Markdown; the exit code is 1 where an answer of
curvflow is off. `--small` takes graphs of some hundred nodes, to see that all works.
"""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from typing import Any, TypeVar

import networkx as nx
import numpy as np
import torch
from scipy import sparse
from scipy.sparse import linalg
from scipy.stats import wasserstein_distance

import curvflow
from benchmarks.turns import Found, Prepare, in_turns
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.nodes import Density, Graph, Member, Moments, NodeData, Ritz
from curvflow.tasks.registry import Machine, find

Array = np.ndarray[Any, np.dtype[Any]]
SIGMA = 0.01  # of the kernel by which netrd smooths
TIMES = np.logspace(-2, 2, 250)  # those of netlsd
TOL = 1e-6  # of eigenvalues
N = TypeVar("N", bound=NodeData)


def computed(kind: str, of: Mapping[str, list[NodeData]], **params: Any) -> Any:
    """Return the arrays that a kind computes of one node."""
    member = Member(find_kind(kind).params(**params), of)
    (outcome,) = find(kind).compute([member], Machine())
    return outcome.arrays


def taken(edge: type[N], kind: str, of: Mapping[str, Any], **params: Any) -> N:
    """Return what a kind computes, as others take it."""
    inputs = {name: [node] for name, node in of.items()}
    return edge("stage", kind, {}, computed(kind, inputs, **params), "")


class Size:
    """Size that an option sets."""

    of_cluster = 500


@dataclass(frozen=True)
class Network:
    """A graph in the forms that systems take.

    Attributes:
        node: as curvflow's probes take it.
    """

    node: Graph

    @cached_property
    def adjacency(self) -> Any:
        """W, as SciPy has it."""
        starts, columns = self.node["indptr"], self.node["indices"]
        shape = (len(starts) - 1, len(starts) - 1)
        return sparse.csr_array((np.ones(len(columns)), columns, starts), shape)

    @property
    def size(self) -> int:
        """Nodes."""
        return len(self.node["indptr"]) - 1

    @cached_property
    def of_networkx(self) -> nx.Graph:
        """The graph as networkx has it."""
        return nx.from_scipy_sparse_array(self.adjacency)

    @cached_property
    def normalized_adjacency(self) -> Any:
        """D^-1/2 W D^-1/2, as SciPy has it."""
        degrees = self.adjacency.sum(axis=1)
        scale = np.where(degrees > 0, 1 / np.sqrt(np.maximum(degrees, 1)), 0)
        scaled = sparse.diags_array(scale)
        return (scaled @ self.adjacency @ scaled).tocsr()

    @cached_property
    def eigenvalues(self) -> Array:
        """All of the normalized Laplacian, ascending."""
        found: Array = 1 - np.linalg.eigvalsh(self.normalized_adjacency.toarray())
        found[1 - found == 0] = 0  # nodes without edges, as networkx counts them
        return np.sort(found)

    def density(self, num_moments: int, num_probes: int, stage: str = "") -> Density:
        """Return the density of largest entropy, as a study has it."""
        asked = {"num_moments": num_moments, "num_probes": num_probes}
        moments = taken(
            Moments, "probe.moments", {"graph": self.node}, support=(0, 2), **asked
        )
        found = taken(Density, "probe.maxent", {"moments": moments})
        return replace(found, stage=stage)


def drawn(model: str, **params: Any) -> Network:
    """Return a random graph of curvflow."""
    return Network(taken(Graph, "data.random_graph", {}, model=model, **params))


@dataclass(frozen=True)
class Task:
    """A question about a graph.

    Attributes:
        asked: the question, with the size of the graph.
        calls: what each system computes, its answer.
        error: how far an answer is off.
        within: how far it may be.
        goal: how many times faster curvflow is to be.
    """

    asked: str
    calls: Mapping[str, Callable[[], Any]]
    error: Callable[[Any], float]
    within: float
    goal: float


def spectrum(small: bool) -> Task:
    """Ask for all eigenvalues, as a distribution."""
    n = 300 if small else 5000
    graph = drawn("barabasi_albert", n=n, m=5)

    def own() -> tuple[Array, Array]:
        found = graph.density(60, 10)
        return found["grid"], found["mass"]

    def theirs() -> tuple[Array, Array]:
        values = nx.normalized_laplacian_spectrum(graph.of_networkx)
        return values, np.ones(len(values))

    def error(found: tuple[Array, Array]) -> float:
        return float(wasserstein_distance(found[0], graph.eigenvalues, found[1]))

    return Task(
        f"spectrum of {n} nodes; Wasserstein distance",
        {"curvflow": own, "networkx": theirs},
        error,
        5e-3 * (6 if small else 1),
        20,
    )


def js_of(p: Array, q: Array, step: float) -> float:
    """Return the root of the divergence of Jensen and Shannon of two densities."""
    p, q = p / (p.sum() * step), q / (q.sum() * step)
    m = (p + q) / 2

    def kl(f: Array) -> float:
        on = f > 0
        return float((f[on] * np.log(f[on] / m[on])).sum() * step)

    return math.sqrt((kl(p) + kl(q)) / 2)


def js(small: bool) -> Task:
    """Ask for the distance of two spectra, which netrd smooths by a kernel."""
    n = 200 if small else 2000
    one = drawn("erdos_renyi", n=n, p=10 / n)
    other = drawn("watts_strogatz", n=n, k=10, p=0.1)

    def own() -> float:
        densities: list[NodeData] = [
            one.density(40, 10, "1"),
            other.density(40, 10, "2"),
        ]
        kind = "aggregate.spectral_distance"
        found = computed(kind, {"of": densities}, divergence="js")
        return math.sqrt(found["distance"][0])

    def theirs() -> float:
        distance = import_module("netrd.distance").LaplacianSpectral()
        return float(distance.dist(one.of_networkx, other.of_networkx))

    grid, step = np.linspace(0, 2, 2001), 1e-3

    def smoothed(values: Array) -> Array:
        total = np.zeros(len(grid))
        for value in values:
            total += np.exp(-(((grid - value) / SIGMA) ** 2) / 2)
        return total

    truth = js_of(smoothed(one.eigenvalues), smoothed(other.eigenvalues), step)
    return Task(
        f"Jensen-Shannon distance of two graphs of {n} nodes; relative error",
        {"curvflow": own, "netrd": theirs},
        lambda found: abs(found / truth - 1),
        0.03 * (10 if small else 1),
        10,
    )


def lowest(small: bool) -> Task:
    """Ask for the lowest eigenvalues of a network of clusters, one for each."""
    count, size = (6, 50) if small else (100, Size.of_cluster)
    clusters = [{"model": "erdos_renyi", "count": count, "size": size, "p": 10 / size}]
    graph = drawn("planted_clusters", clusters=clusters, links=size * count // 100)
    matrix = graph.normalized_adjacency

    def own() -> tuple[Array, Array]:
        operator = curvflow.from_graph(graph.adjacency, "normalized_adjacency")
        found = operator.eigenvalues(count, which="LA", tol=TOL, block=8, vectors=True)
        assert found.vectors is not None
        return np.asarray(found.value), np.asarray(found.vectors).T

    def theirs() -> tuple[Array, Array]:
        values, vectors = linalg.eigsh(matrix, count, which="LA", tol=TOL)
        return values, vectors

    def error(found: tuple[Array, Array]) -> float:
        values, vectors = found
        gap = matrix @ vectors - vectors * values
        apart = np.abs(vectors.T @ vectors - np.eye(count)).max()
        return float(max(np.linalg.norm(gap, axis=0).max(), apart))

    return Task(
        f"{count} lowest eigenvalues with vectors, {graph.size} nodes; residual",
        {"curvflow": own, "scipy": theirs},
        error,
        10 * TOL,
        1,
    )


def heat(small: bool) -> Task:
    """Ask for the heat trace at 250 times."""
    n = 300 if small else 5000
    graph = drawn("barabasi_albert", n=n, m=5)
    laplacian = nx.normalized_laplacian_matrix(graph.of_networkx)
    truth = np.exp(-np.outer(TIMES, graph.eigenvalues)).mean(1)

    def own() -> Array:
        of = {"graph": graph.node}
        asked: dict[str, Any] = {"num_runs": 5, "num_steps": 30}
        of_rest = taken(Ritz, "probe.spectrum", of, deflate=["components"], **asked)
        asked = {"functionals": ["heat_trace"], "times": TIMES.tolist()}
        kind = "probe.graph_functionals"
        found = taken(NodeData, kind, {**of, "ritz": of_rest}, **asked)
        return np.asarray(found["heat_trace"] / n)

    def theirs() -> Array:
        return np.asarray(import_module("netlsd").heat(laplacian))

    return Task(
        f"heat trace at 250 times, {n} nodes; largest relative error",
        {"curvflow": own, "netlsd": theirs},
        lambda found: float(np.abs(found / truth - 1).max()),
        0.1 * (2 if small else 1),
        1,
    )


def logdet(small: bool) -> Task:
    """Ask for log det(L + 0.1) of a grid, which is known."""
    side = 20 if small else 500
    graph = drawn("grid", dim=(side, side))
    degrees = sparse.diags_array(graph.adjacency.sum(axis=1))
    matrix = degrees - graph.adjacency + 0.1 * sparse.eye_array(graph.size)
    matrix = sparse.csr_matrix(matrix)
    waves = 2 - 2 * np.cos(np.pi * np.arange(side) / side)
    truth = float(np.log(waves[:, None] + waves + 0.1).sum())

    def own() -> float:
        operator = curvflow.from_graph(graph.adjacency, "laplacian")
        shifted = operator.shifted(0.1)
        return float(shifted.logdet(num_runs=10, num_steps=25, reorthogonalize="none"))

    def theirs() -> float:
        return float(
            import_module("imate").logdet(
                matrix,
                method="slq",
                min_num_samples=10,
                max_num_samples=10,
                lanczos_degree=25,
                num_threads=1,
            )
        )

    return Task(
        f"log det(L + 0.1) of a grid of {graph.size} nodes; relative error",
        {"curvflow": own, "imate": theirs},
        lambda found: abs(found / truth - 1),
        5e-3 * (10 if small else 1),
        1,
    )


def generator(
    model: str, function: str, edges: float, small: bool, **params: Any
) -> Task:
    """Ask for a random graph."""
    n = 1000 if small else 100_000
    params = {k: v(n) if callable(v) else v for k, v in params.items()}

    def own() -> float:
        return len(drawn(model, n=n, **params).node["indices"]) / 2

    def theirs() -> float:
        return float(getattr(nx, function)(n=n, seed=0, **params).number_of_edges())

    return Task(
        f"{model} of {n} nodes; relative error of its edges",
        {"curvflow": own, "networkx": theirs},
        lambda found: abs(found / (edges * n) - 1),
        0.02 * (5 if small else 1),
        5,
    )


def _of_model(
    model: str, function: str, edges: float, **params: Any
) -> Callable[[bool], Task]:
    return lambda small: generator(model, function, edges, small, **params)


TASKS: Mapping[str, Callable[[bool], Task]] = {
    "spectrum": spectrum,
    "js": js,
    "lowest": lowest,
    "heat": heat,
    "logdet": logdet,
    "er": _of_model(
        "erdos_renyi", "fast_gnp_random_graph", 5, p=lambda n: 10 / (n - 1)
    ),
    "gnm": _of_model("gnm", "gnm_random_graph", 5, m=lambda n: 5 * n),
    "ws": _of_model("watts_strogatz", "watts_strogatz_graph", 5, k=10, p=0.1),
    "ba": _of_model("barabasi_albert", "barabasi_albert_graph", 5, m=5),
    "regular": _of_model("random_regular", "random_regular_graph", 5, d=10),
}


def measured(task: Task, turns: int) -> dict[str, Found]:
    """Return of each system the median of its seconds and its error, or a reason."""

    def prepared(call: Callable[[], Any]) -> Prepare:
        return lambda: (call, task.error(call()))

    return in_turns({name: prepared(call) for name, call in task.calls.items()}, turns)


def row(task: Task, found: Mapping[str, Found]) -> str:
    """Return the row of a task."""
    (peer,) = (name for name in found if name != "curvflow")
    cells = []
    for one in (found["curvflow"], found[peer]):
        if isinstance(one, str):
            cells += ["failed", ""]
        else:
            off = " (off)" if one[1] > task.within else ""
            cells += [f"{one[0]:.3g} s", f"{one[1]:.1e}{off}"]
    mine, other = found["curvflow"], found[peer]
    ratio = ""
    if not isinstance(mine, str) and not isinstance(other, str):
        ratio = f"{other[0] / mine[0]:.3g} x"
    listed = [task.asked, *cells[:2], peer, *cells[2:], ratio, f"{task.goal:g} x"]
    return f"| {' | '.join(listed)} |"


def main() -> int:
    """Read the options and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--size", type=int, default=Size.of_cluster)
    parser.add_argument("--small", action="store_true", help="graphs that are small")
    options = parser.parse_args()
    Size.of_cluster = options.size
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print("| asked | curvflow | off by | peer | its time | off by | ratio | goal |")
    print("|---" * 8 + "|")
    code = 0
    for name in options.tasks.split(","):
        task = TASKS[name](options.small)
        found = measured(task, options.turns)
        print(row(task, found), flush=True)
        for system, one in found.items():
            if isinstance(one, str):
                print(f"<!-- {system}, {name}: {one} -->")
        mine = found["curvflow"]
        if isinstance(mine, str) or mine[1] > task.within:
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
