"""Declaration of `probe.graph_structure`."""

from __future__ import annotations

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Input, Kind, Variable
from curvflow.schemas.nodes import Graph, Numbers
from curvflow.schemas.params import Params


class GraphStructureParams(Params):
    """There is nothing to choose."""


def _count(name: str, description: str) -> Variable:
    return Variable(name, description, dtype="int64")


KIND = Kind(
    name="probe.graph_structure",
    version=1,
    summary="Degrees, components, twins and triangles of a graph, all exact.",
    params=GraphStructureParams,
    returns=Numbers,
    outputs=(
        _count("size", "nodes, D"),
        _count("num_edges", "edges, loops among them, each counted once"),
        _count("num_loops", "loops"),
        Variable("total_weight", "sum of the weights of the edges"),
        Variable("mean_degree", "mean of the sums of the rows, a loop counted once"),
        Variable("least_degree", "least of them"),
        Variable("largest_degree", "largest of them"),
        Variable("degree", "each degree that occurs", ("degree",), series=True),
        Variable(
            "degree_count", "nodes of it", ("degree",), dtype="int64", series=True
        ),
        _count("num_components", "components, nodes without edges among them"),
        _count("largest_component", "nodes of the largest"),
        _count("num_isolated", "nodes without edges, that are no twins"),
        _count("num_open_classes", "classes of equal neighbours, not joined"),
        _count("num_open_twins", "nodes in these"),
        _count("num_closed_classes", "classes of equal neighbours, joined"),
        _count("num_closed_twins", "nodes in these"),
        Variable("bipartite", "whether all edges join two sides", dtype="bool"),
        _count("num_triangles", "triples of nodes that are all joined"),
    ),
    main=("size", "num_edges", "mean_degree", "num_components"),
    inputs={"graph": Input(Graph)},
    vectorised=False,
)

EXPLANATION = Explanation(
    formula=(
        "d_i = Σ_j W_ij; u and v are twins if W_ui = W_vi for every third node i and "
        "W_uu = W_vv, closed ones if W_uv > 0, else open ones"
    ),
    source=(
        "Chiba and Nishizeki (1985), doi:10.1137/0214017, for the triangles; else "
        "none: the formulas are the definitions"
    ),
    cost=(
        "none: the rows are read some times over; triangles take up to E^1.5 for E "
        "edges, and far less where few nodes have many neighbours"
    ),
    example="""\
study: example
axes: {seed: 3}
stages:
  graph: {use: data.random_graph, model: barabasi_albert, n: 100, m: 1,
          seed: "${seed}"}
  structure: {use: probe.graph_structure, graph: graph}
""",
    page="graphs.md#structure",
)
