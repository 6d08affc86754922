"""Random graphs, and graphs of known spectra."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch

from curvflow.errors import InputError
from curvflow.schemas.kinds.data.graphs.random_graph import Cluster, RandomGraphParams
from curvflow.schemas.kinds.shared.graphs import graph
from curvflow.schemas.nodes import Array, Member, Outcome
from curvflow.tasks.networks.problems import Apart, grouped
from curvflow.tasks.numerics.graphs import (
    clusters,
    degrees,
    known,
    pairs,
    random,
    rows,
)
from curvflow.tasks.numerics.graphs.clusters import Law
from curvflow.tasks.numerics.graphs.pairs import Edges
from curvflow.tasks.numerics.streams import stream
from curvflow.tasks.registry import Machine, computes

# At the peak: while rows are sorted out of edges, and before, while these are drawn.
ROW_BYTES_PER_EDGE, BYTES_PER_NODE, BYTES_IN_WORK = 24, 8, 36
BYTES_PER_DRAWN_EDGE = {
    "gnm": 33,
    "random_regular": 50,
    "configuration": 50,
    **dict.fromkeys(("grid", "hypercube", "complete", "ring_of_cliques"), 36),
}
BYTES_PER_RING_EDGE, BYTES_PER_LED_EDGE = 22, 72


def member_bytes(member: Member) -> int:
    """Return the peak working memory of one graph."""
    params = cast("RandomGraphParams", member.params)
    count = params.mean_edges
    made = ROW_BYTES_PER_EDGE * count + BYTES_PER_NODE * params.mean_nodes
    made += BYTES_IN_WORK * min(count, rows.CHUNK)
    drawn = BYTES_PER_DRAWN_EDGE.get(params.model, 0) * count
    if params.model == "watts_strogatz":
        led = BYTES_PER_LED_EDGE * cast("float", params.p)
        drawn = (BYTES_PER_RING_EDGE + led) * count
    if params.model in ("erdos_renyi", "stochastic_block"):
        drawn = 8 * count + BYTES_IN_WORK * min(count, pairs.CHUNK)
    return int(max(made, drawn))


@computes("data.random_graph", member_bytes=member_bytes)
def random_graph(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Draw graphs of their models, or make those that leave nothing to chance.

    Args:
        members: the parameters.
        machine: not used; draws are made on the CPU.

    Returns:
        The compressed rows of each, and the cluster of each node, if there are some.

    Raises:
        InputError: no graph of the degrees given was found.
    """
    return grouped(members, lambda member: Apart(id(member)), _drawn)


def _drawn(members: Sequence[Member]) -> list[Outcome]:
    params = cast("RandomGraphParams", members[0].params)
    generator = stream(params.seed, f"data.random_graph:{params.model}")
    labels: dict[str, Array] = {}
    if params.model in KNOWN:
        edges, size = KNOWN[params.model](params), params.rows or 0
    elif params.model in BLOCKS:
        edges, sizes = BLOCKS[params.model](params.planted, generator)
        size = int(np.sum(sizes))
        labels["cluster"] = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    else:
        size = params.rows or 0
        edges = LAWS[params.model](params)(size, generator)
    made = rows.symmetric_rows(size, edges.sources, edges.targets)
    return [Outcome({**graph(made.indptr, made.indices), **labels})]


def _configuration(params: RandomGraphParams) -> Law:
    def law(n: int, generator: torch.Generator) -> Edges:
        if params.degrees is not None:
            wanted = np.array(params.degrees)
        else:
            least, most = params.min_degree or 1, params.max_degree or n - 1
            exponent = cast("float", params.exponent)
            wanted = degrees.power_law_degrees(n, exponent, least, most, generator)
        if params.simple == "erase":
            return degrees.erased(degrees.paired(wanted, generator), n)
        edges = degrees.with_degrees(wanted, generator)
        if edges is None:
            raise InputError(
                "simple: expected degrees of a graph that switches find, got degrees "
                f"up to {wanted.max()} of {n} nodes. Set simple to erase, or lower "
                "the largest."
            )
        return edges

    return law


# From parameters, of a graph or a cluster, to what draws its edges among n nodes.
LAWS: dict[str, Callable[[Any], Law]] = {
    "erdos_renyi": lambda params: lambda n, g: random.erdos_renyi(n, params.p, g),
    "gnm": lambda params: lambda n, g: random.gnm(n, params.m, g),
    "watts_strogatz": lambda params: (
        lambda n, g: random.watts_strogatz(n, params.k, params.p, g)
    ),
    "barabasi_albert": lambda params: (
        lambda n, g: random.barabasi_albert(n, params.m, g)
    ),
    "random_regular": lambda params: (
        lambda n, g: degrees.random_regular(n, params.d, g)
    ),
    "configuration": _configuration,
}


def _blocks(
    params: RandomGraphParams, generator: torch.Generator
) -> tuple[Edges, Sequence[int]]:
    sizes, table = params.sizes or (), params.probabilities or ()
    return random.stochastic_block(sizes, table, generator), sizes


def _planted(
    params: RandomGraphParams, generator: torch.Generator
) -> tuple[Edges, Sequence[int]]:
    each: list[Cluster] = [c for c in params.clusters or () for _ in range(c.count)]
    least, most = np.array([c.sizes for c in each]).T
    sizes = clusters.cluster_sizes(least, most, params.n, generator).tolist()
    laws = [LAWS[c.model](c) for c in each]
    links = params.links or 0
    return clusters.planted_clusters(sizes, laws, links, generator), sizes


BLOCKS = {"stochastic_block": _blocks, "planted_clusters": _planted}

KNOWN: dict[str, Callable[[Any], Edges]] = {
    "complete": lambda params: known.complete(params.n),
    "cycle": lambda params: known.cycle(params.n),
    "path": lambda params: known.path(params.n),
    "star": lambda params: known.star(params.n),
    "hypercube": lambda params: known.hypercube(params.d),
    "grid": lambda params: known.grid(params.dim),
    "complete_bipartite": lambda params: known.complete_bipartite(params.n1, params.n2),
    "ring_of_cliques": lambda params: known.ring_of_cliques(
        params.num_cliques, params.clique_size
    ),
}
