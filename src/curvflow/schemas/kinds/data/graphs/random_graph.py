"""Declaration of `data.random_graph`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Kind, Variable
from curvflow.schemas.kinds.shared.graphs import GRAPH_OUTPUTS, MOST_NODES
from curvflow.schemas.nodes import Array, Graph
from curvflow.schemas.params import Floats, Ints, Params

ModelName = Literal[
    "erdos_renyi",
    "gnm",
    "watts_strogatz",
    "barabasi_albert",
    "random_regular",
    "configuration",
    "stochastic_block",
    "planted_clusters",
    "complete",
    "cycle",
    "path",
    "star",
    "hypercube",
    "grid",
    "complete_bipartite",
    "ring_of_cliques",
]


class Cluster(Params):
    """Clusters of one law and size."""

    model: Literal["erdos_renyi", "watts_strogatz", "barabasi_albert"] = Field(
        description="law of their edges"
    )
    count: int = Field(1, ge=1, description="clusters of this law")
    size: Annotated[int, Field(ge=1)] | Ints = Field(
        description="nodes of each, or [least, most]"
    )
    p: float | None = Field(None, ge=0, le=1, description="as of the model")
    k: int | None = Field(None, ge=2, description="as of the model")
    m: int | None = Field(None, ge=1, description="as of the model")

    @property
    def sizes(self) -> tuple[int, int]:
        """Nodes that each has at least and at most."""
        if isinstance(self.size, int):
            return self.size, self.size
        return self.size[0], self.size[1]

    @model_validator(mode="after")
    def _fits(self) -> Cluster:
        given = self.size if isinstance(self.size, tuple) else (self.size,) * 2
        if len(given) != 2 or not 1 <= given[0] <= given[1]:
            raise ValueError(
                f"expected size as n or [least, most], got {list(given)}. Write one of "
                "the two, from 1 on."
            )
        _check_taken(self, {"model", "count", "size"}, "n")
        _refuse(MODELS[self.model].problems(self, given[0]))
        return self


class RandomGraphParams(Params):
    """Model of the graph with its parameters, named as in networkx."""

    model: ModelName = Field(
        description="law, or form, of the graph; it says which parameters are given"
    )
    n: int | None = Field(
        None, ge=1, le=MOST_NODES, description="nodes, D, those of a star in all"
    )
    p: float | None = Field(
        None,
        ge=0,
        le=1,
        description="probability of an edge; of watts_strogatz, that an edge is led "
        "elsewhere",
    )
    m: int | None = Field(
        None,
        ge=0,
        description="edges: of gnm in all, of barabasi_albert of each new node",
    )
    k: int | None = Field(
        None, ge=2, description="neighbours in the ring of watts_strogatz, even"
    )
    d: int | None = Field(
        None,
        ge=0,
        description="neighbours of each node, of random_regular, and of a hypercube of "
        "2^d nodes",
    )
    degrees: Ints | None = Field(
        None, min_length=1, description="of the nodes of configuration"
    )
    exponent: float | None = Field(
        None, description="of configuration whose degrees are drawn as k^-exponent"
    )
    min_degree: int | None = Field(
        None, ge=1, description="least degree drawn; null takes 1"
    )
    max_degree: int | None = Field(
        None, ge=1, description="largest degree drawn; null takes n - 1"
    )
    simple: Literal["erase", "switch"] = Field(
        "erase",
        description="of configuration: loops and repeated edges are left out, so that "
        "degrees may fall short; or switched with others, which keeps degrees",
    )
    sizes: Ints | None = Field(
        None, min_length=1, description="nodes of each block of stochastic_block"
    )
    probabilities: Annotated[tuple[Floats, ...], Field(strict=False)] | None = Field(
        None, description="of an edge, by block and block, symmetric"
    )
    clusters: Annotated[tuple[Cluster, ...], Field(strict=False)] | None = Field(
        None, description="clusters of planted_clusters"
    )
    links: int | None = Field(
        None, ge=0, description="edges between nodes of different clusters, in all"
    )
    preset: Literal["granziol_305", "granziol_1355"] | None = Field(
        None,
        description="planted_clusters after a thesis: 201,600 nodes in 305 clusters "
        "of 500 to 1000, or 404,420 in 1,355 of 200 to 400",
    )
    dim: Ints | None = Field(
        None, min_length=1, description="points of a grid along each direction"
    )
    n1: int | None = Field(
        None, ge=1, description="nodes of one side of complete_bipartite"
    )
    n2: int | None = Field(None, ge=1, description="nodes of the other side")
    num_cliques: int | None = Field(
        None, ge=2, description="complete graphs of ring_of_cliques"
    )
    clique_size: int | None = Field(None, ge=2, description="nodes of each")
    seed: int = Field(
        0, ge=0, description="seed of the draw; of no effect where nothing is drawn"
    )

    @property
    def planted(self) -> RandomGraphParams:
        """These parameters, with a preset's in their place."""
        return self if self.preset is None else PRESETS[self.preset]

    @property
    def rows(self) -> int | None:
        """Nodes of the graph, D; None where they are drawn."""
        return MODELS[self.model].rows(self)

    @property
    def mean_nodes(self) -> float:
        """Nodes of the graph, on average where they are drawn."""
        if self.rows is not None:
            return float(self.rows)
        return sum(_bounds(self.planted.clusters or ())) / 2

    @property
    def mean_edges(self) -> float:
        """Edges of the graph, on average where they are drawn."""
        return MODELS[self.model].edges(self, self.rows or 0)

    @model_validator(mode="after")
    def _fits(self) -> RandomGraphParams:
        _check_taken(self, {"model", "seed"})
        _refuse(MODELS[self.model].problems(self, self.rows or 0))
        if (self.rows or 0) > MOST_NODES:
            raise ValueError(
                f"expected at most {MOST_NODES} nodes, got {self.rows}. Lower the "
                "number of nodes."
            )
        return self


Problems = Iterator[tuple[str, object]]  # what is expected, and what was given


@dataclass(frozen=True)
class Model:
    """Questions that a model answers while planning.

    Attributes:
        ways: parameters that it takes, in one of several ways; those that begin with ?
            may be left out.
        edges: from parameters and nodes to the edges, on average.
        rows: from the parameters to the nodes.
        problems: from parameters and nodes to their faults.
    """

    ways: tuple[str, ...]
    edges: Callable[[Any, int], float]
    rows: Callable[[Any], int | None] = lambda params: params.n
    problems: Callable[[Any, int], Problems] = lambda params, n: iter(())


def _check_taken(params: Params, always: set[str], known: str = "") -> None:
    """Refuse parameters that the model does not take, and name those it lacks."""
    model = params.model  # type: ignore[attr-defined] # of both that are checked
    fields = type(params).model_fields
    given = {f for f in fields if getattr(params, f) != fields[f].default} - always
    given |= {known} - {""}
    ways = [_names(way) for way in MODELS[model].ways]
    needed, taken = max(ways, key=lambda way: len(way[1] & given))
    if surplus := sorted(given - taken):
        listed = ", or ".join(way.replace("?", "") for way in MODELS[model].ways)
        raise ValueError(
            f"{', '.join(surplus)} cannot be combined with model {model}, which takes "
            f"{listed}. Remove {', '.join(surplus)}."
        )
    if lacking := sorted(needed - given):
        others = [" and ".join(sorted(way)) for way, _ in ways] if not given else []
        listed = ", or ".join(others) or " and ".join(lacking)
        raise ValueError(
            f"expected {listed} with model {model}, got none. Add {listed}."
        )


def _names(way: str) -> tuple[set[str], set[str]]:
    """Return the parameters of a way that are needed, and all of them."""
    words = way.split()
    return {w for w in words if w[0] != "?"}, {w.removeprefix("?") for w in words}


def _refuse(problems: Problems) -> None:
    for expected, got in problems:
        raise ValueError(f"expected {expected}, got {got}. Choose another.")


def _num_pairs(n: int) -> int:
    """Return the number of pairs of different nodes."""
    return n * (n - 1) // 2


def _gnm(params: Any, n: int) -> Problems:
    if params.m > _num_pairs(n):
        yield f"m up to the {_num_pairs(n)} pairs of {n} nodes", params.m


def _ring(params: Any, n: int) -> Problems:
    if params.k % 2 or params.k >= n:
        yield f"k even and below the {n} nodes", params.k


def _growth(params: Any, n: int) -> Problems:
    if not 1 <= params.m < n:
        yield f"m from 1 to {n - 1}", params.m


def _regular(params: Any, n: int) -> Problems:
    if params.d >= n:
        yield f"d below the {n} nodes", params.d
    if params.d * n % 2:
        yield "n or d even", f"n {n} and d {params.d}"


def _degrees(params: Any, n: int) -> Problems:
    if params.degrees is None:
        least, most = params.min_degree or 1, params.max_degree or n - 1
        if not least <= most <= n - 1:
            yield f"min_degree up to max_degree up to {n - 1}", f"{least} and {most}"
        return
    degrees = np.sort(params.degrees)[::-1]
    if not 0 <= degrees[-1] <= degrees[0] < n:
        wrong = degrees[-1] if degrees[-1] < 0 else degrees[0]
        yield f"degrees from 0 to {n - 1}, of {n} nodes", wrong
    if degrees.sum() % 2:
        yield "degrees of an even sum", degrees.sum()
    if params.simple == "switch" and not _is_graphical(degrees):
        yield "degrees of a graph without loops and repeated edges", "others"


def _is_graphical(degrees: Array) -> bool:
    """Return whether falling degrees of an even sum are those of a simple graph.

    By Erdos and Gallai: any k nodes have no more edges than k (k - 1) among themselves,
    and min(d, k) to each of the others.
    """
    k = np.arange(1, len(degrees) + 1)
    sums = np.concatenate([[0], np.cumsum(degrees)])
    above = len(degrees) - np.searchsorted(degrees[::-1], k, side="right")
    end = np.maximum(above, k)
    others = k * (end - k) + sums[-1] - sums[end]
    return bool((sums[1:] <= k * (k - 1) + others).all())


def _mean_degree(params: Any, n: int) -> float:
    if params.degrees is not None:
        return float(np.mean(params.degrees))
    degrees = np.arange(params.min_degree or 1, (params.max_degree or n - 1) + 1)
    chances = degrees ** -float(params.exponent)
    return float((degrees * chances).sum() / chances.sum())


def _blocks(params: Any, n: int) -> Problems:
    count, table = len(params.sizes), params.probabilities
    if min(params.sizes) < 1:
        yield "sizes of 1 or more", list(params.sizes)
    if len(table) != count or any(len(row) != count for row in table):
        got = f"rows of {', '.join(str(len(row)) for row in table)}"
        yield f"probabilities of {count} rows and columns, as sizes", got
    if not all(0 <= p <= 1 for row in table for p in row):
        yield "probabilities from 0 to 1", [list(row) for row in table]
    if table != tuple(zip(*table, strict=True)):
        yield "symmetric probabilities", [list(row) for row in table]


def _block_edges(params: Any, n: int) -> float:
    sizes, table = np.array(params.sizes, dtype=float), np.array(params.probabilities)
    return float(sizes @ table @ sizes - sizes @ table.diagonal()) / 2


def _bounds(clusters: Sequence[Cluster]) -> tuple[int, int]:
    """Return how many nodes clusters have together at least and at most."""
    least = sum(cluster.count * cluster.sizes[0] for cluster in clusters)
    return least, sum(cluster.count * cluster.sizes[1] for cluster in clusters)


def _planted_rows(params: RandomGraphParams) -> int | None:
    planted = params.planted
    least, most = _bounds(planted.clusters or ())
    return least if least == most else planted.n


def _clusters(params: Any, n: int) -> Problems:
    if params.preset is not None:
        return
    if not params.clusters:
        yield "clusters", "none"
    least, most = _bounds(params.clusters)
    if params.n is not None and not least <= params.n <= most:
        yield f"n from {least} to {most}, as the clusters allow", params.n
    inside = sum(c.count * _num_pairs(c.sizes[0]) for c in params.clusters)
    if params.links > _num_pairs(least) - inside:
        pairs = _num_pairs(least) - inside
        yield f"links up to the {pairs} pairs between clusters", params.links


def _planted_edges(params: Any, n: int) -> float:
    clusters, links = params.planted.clusters, params.planted.links
    least, most = _bounds(clusters)
    share = (n - least) / (most - least) if n and most > least else 0.5
    edges = links
    for c in clusters:
        size = round(c.sizes[0] + share * (c.sizes[1] - c.sizes[0]))
        edges += c.count * MODELS[c.model].edges(c, size)
    return float(edges)


def _ring_of_three(params: Any, n: int) -> Problems:
    if n < 3:
        yield "n of 3 or more", n


def _dimensions(params: Any, n: int) -> Problems:
    if params.d > 30:
        yield "d up to 30, of 2^30 nodes", params.d


def _lengths(params: Any, n: int) -> Problems:
    if min(params.dim) < 1:
        yield "dim of 1 or more points", list(params.dim)


MODELS: Mapping[str, Model] = {
    "erdos_renyi": Model(("n p",), lambda params, n: params.p * _num_pairs(n)),
    "gnm": Model(("n m",), lambda params, n: params.m, problems=_gnm),
    "watts_strogatz": Model(
        ("n k p",), lambda params, n: n * params.k / 2, problems=_ring
    ),
    "barabasi_albert": Model(
        ("n m",), lambda params, n: params.m * (n - params.m), problems=_growth
    ),
    "random_regular": Model(
        ("n d",), lambda params, n: n * params.d / 2, problems=_regular
    ),
    "configuration": Model(
        ("degrees ?simple", "n exponent ?min_degree ?max_degree ?simple"),
        lambda params, n: n * _mean_degree(params, n) / 2,
        lambda params: len(params.degrees) if params.degrees else params.n,
        _degrees,
    ),
    "stochastic_block": Model(
        ("sizes probabilities",),
        _block_edges,
        lambda params: sum(params.sizes),
        _blocks,
    ),
    "planted_clusters": Model(
        ("clusters links ?n", "preset"), _planted_edges, _planted_rows, _clusters
    ),
    "complete": Model(("n",), lambda params, n: _num_pairs(n)),
    "cycle": Model(("n",), lambda params, n: n, problems=_ring_of_three),
    "path": Model(("n",), lambda params, n: n - 1),
    "star": Model(("n",), lambda params, n: n - 1),
    "hypercube": Model(
        ("d",),
        lambda params, n: n * params.d / 2,
        lambda params: 2 ** min(params.d, 31),
        _dimensions,
    ),
    "grid": Model(
        ("dim",),
        lambda params, n: sum(n - n / length for length in params.dim),
        lambda params: prod(params.dim),
        _lengths,
    ),
    "complete_bipartite": Model(
        ("n1 n2",),
        lambda params, n: params.n1 * params.n2,
        lambda params: params.n1 + params.n2,
    ),
    "ring_of_cliques": Model(
        ("num_cliques clique_size",),
        lambda params, n: params.num_cliques * (_num_pairs(params.clique_size) + 1),
        lambda params: params.num_cliques * params.clique_size,
    ),
}


def _thesis(n: int, size: tuple[int, int], count: int, p: float) -> RandomGraphParams:
    """Return clusters of the three laws in equal parts, of mean degree 20 or so.

    The thesis gives nodes, clusters and their sizes alone; degrees and links are ours.
    """
    per_law = [count - 2 * (count // 3), count // 3, count // 3]
    laws: list[dict[str, Any]] = [
        {"model": "erdos_renyi", "p": p},
        {"model": "watts_strogatz", "k": 20, "p": 0.4},
        {"model": "barabasi_albert", "m": 10},
    ]
    clusters = [
        Cluster(count=number, size=size, **law)
        for number, law in zip(per_law, laws, strict=True)
    ]
    return RandomGraphParams(
        model="planted_clusters", n=n, clusters=tuple(clusters), links=count
    )


PRESETS = {
    "granziol_305": _thesis(201_600, (500, 1000), 305, 0.03),
    "granziol_1355": _thesis(404_420, (200, 400), 1355, 0.07),
}

KIND = Kind(
    name="data.random_graph",
    version=1,
    summary="Random graph of a model, or a graph whose spectrum is known.",
    params=RandomGraphParams,
    returns=Graph,
    outputs=(
        *GRAPH_OUTPUTS,
        Variable(
            "cluster",
            "block or cluster of each node; of stochastic_block and planted_clusters",
            ("row",),
            dtype="int32",
            bulk=True,
            optional=True,
        ),
    ),
    varying=("seed",),
)

EXPLANATION = Explanation(
    formula=(
        "erdos_renyi: each pair joined with probability p; gnm: m pairs; "
        "watts_strogatz: a ring, each edge led elsewhere with probability p; "
        "barabasi_albert: each new node joined to m others, drawn by their degrees; "
        "random_regular, configuration: ends of edges paired at random; "
        "stochastic_block: pairs joined with the probability of their blocks; "
        "planted_clusters: clusters of these laws, joined by some edges"
    ),
    source=(
        "Batagelj and Brandes (2005), doi:10.1103/PhysRevE.71.036113; Watts and "
        "Strogatz (1998), doi:10.1038/30918; Barabasi and Albert (1999), "
        "doi:10.1126/science.286.5439.509; McKay and Wormald (1990), "
        "doi:10.1016/0196-6774(90)90029-E; Granziol (2020), section 3.7"
    ),
    cost="none: time and memory are proportional to nodes and edges",
    example="""\
study: example
axes: {seed: 3}
stages:
  graph: {use: data.random_graph, model: watts_strogatz, n: 100, k: 6,
          p: 0.1, seed: "${seed}"}
""",
    page="graphs.md#random-graphs",
    units={
        "n": "node",
        "p": "1",
        "m": "edge",
        "k": "neighbour",
        "d": "neighbour",
        "degrees": "neighbour",
        "exponent": "1",
        "min_degree": "neighbour",
        "max_degree": "neighbour",
        "sizes": "node",
        "probabilities": "1",
        "clusters.count": "cluster",
        "clusters.size": "node",
        "clusters.p": "1",
        "clusters.k": "neighbour",
        "clusters.m": "edge",
        "links": "edge",
        "dim": "node",
        "n1": "node",
        "n2": "node",
        "num_cliques": "clique",
        "clique_size": "node",
    },
)
