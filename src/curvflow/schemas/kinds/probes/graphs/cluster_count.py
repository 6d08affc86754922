"""Declaration of `probe.cluster_count`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Input, Kind, ParamProblem, Variable
from curvflow.schemas.kinds.probes.densities.kpm import KpmParams
from curvflow.schemas.kinds.shared.operators import judged
from curvflow.schemas.nodes import Entropic, Graph, Numbers, Ritz
from curvflow.schemas.params import Params

# The operator whose Ritz data a method takes; maxent takes a density.
OPERATORS = {"slq": "normalized_laplacian", "bethe_hessian": "bethe_hessian"}


class ClusterCountParams(Params):
    """By which method, and what counts as a gap."""

    method: Literal["slq", "maxent", "bethe_hessian"] = Field(
        "slq",
        description="slq: eigenvalues of the normalized Laplacian below its gap; "
        "maxent: the same by a density; bethe_hessian: negative ones of the Bethe "
        "Hessian, where sparse groups leave no gap",
    )
    least_gap: float = Field(
        0.03,
        gt=0,
        lt=1,
        description="width that a gap has at least, beside that of what lies below it",
    )


def _other_spectrum(params: Any, name: str, spectrum: Any) -> Iterator[ParamProblem]:
    operator = getattr(spectrum, "operator", "hessian")
    operator = "normalized_laplacian" if operator == "hessian" else operator
    if params.method == "maxent":
        message = f"expected a density for maxent, got the Ritz data of '{name}'"
        yield ("method",), message, "Give density: in place of ritz:, or take slq."
        return
    wanted = OPERATORS[params.method]
    if operator != wanted:
        message = f"expected a spectrum of {wanted}, got '{name}' of {operator}"
        yield ("method",), message, f"Set operator of '{name}' to {wanted}."


def _other_method(params: Any, name: str, density: Any) -> Iterator[ParamProblem]:
    if params.method != "maxent":
        message = f"expected Ritz data for {params.method}, got the density of '{name}'"
        yield ("method",), message, "Set method to maxent."
    elif isinstance(density, KpmParams):
        message = f"expected a density of probe.maxent, got '{name}' of probe.kpm"
        yield ("density",), message, "Name a probe.maxent of the same moments."


# What a density does not tell, so that its errors are those of the vectors alone.
OF_RULES = ("count_quadrature",)

_COUNT = judged(
    "count",
    "clusters; NaN without a gap; of a density all errors are those of the vectors",
)

KIND = Kind(
    name="probe.cluster_count",
    version=1,
    summary="Clusters of a graph, counted below the gap of its spectrum, if any.",
    params=ClusterCountParams,
    returns=Numbers,
    outputs=(
        Variable(
            "verdict",
            "gap; no gap, as there are eigenvalues in every interval so wide, by a "
            "density as it has them; unresolved by so many steps or moments",
            dtype="str",
        ),
        *(replace(one, optional=one.name in OF_RULES) for one in _COUNT[:-1]),
        Variable("gap_low", "lower end of an interval without an eigenvalue"),
        Variable("gap_high", "upper end of it"),
        Variable("gap_at", "point below which is counted; NaN without a gap"),
        Variable(
            "gap_depth",
            "eigenvalues that there may be at that point, by the rules; in the "
            "interval, by a density",
        ),
        Variable(
            "components",
            "connected components, exactly; not of a density alone",
            dtype="int64",
            optional=True,
        ),
        Variable("size", "nodes that the operator has, D", dtype="int64"),
    ),
    main=("count", "count_sem"),
    inputs={
        "ritz": Input(Ritz, unless=("density",), lacking=_other_spectrum),
        "density": Input(Entropic, unless=("ritz",), lacking=_other_method),
        "graph": Input(Graph, follows="ritz", optional=True),
    },
)

EXPLANATION = Explanation(
    formula=(
        "D times the mean weight of the runs, or of a density, below λ*, deepest point "
        "of the widest gap up to the median; bounds by Chebyshev, Markov and Stieltjes"
    ),
    source=(
        "Granziol (2020), Algorithm 5, for the count; Golub and Meurant (2010), "
        "section 2.2, for the bounds; Saade, Krzakala and Zdeborova (2014), "
        "arXiv:1406.1880, for the Bethe Hessian"
    ),
    cost="none: no product; eigenvalues of some 500 small matrices",
    example="""\
study: example
stages:
  graph: {use: data.random_graph, model: planted_clusters, links: 5,
          clusters: [{model: erdos_renyi, count: 6, size: 40, p: 0.4}]}
  spectrum: {use: probe.spectrum, graph: graph, num_runs: 20, num_steps: 30}
  clusters: {use: probe.cluster_count, ritz: spectrum}
""",
    page="graphs.md#how-many-clusters",
    units={"least_gap": "as the eigenvalues"},
)
