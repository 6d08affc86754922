"""Declaration of `probe.cluster_count`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Input, Kind, ParamProblem, Variable
from curvflow.schemas.kinds.probes.densities.kpm import KpmParams
from curvflow.schemas.kinds.shared.operators import judged
from curvflow.schemas.nodes import (
    Array,
    Eigenvalues,
    Entropic,
    Graph,
    Numbers,
    Ritz,
)
from curvflow.schemas.params import Neutral, Params

# The operator that a method takes Ritz data of; the others take something else.
OPERATORS = {
    "slq": "normalized_laplacian",
    "smoothed_lanczos": "normalized_laplacian",
    "bethe_hessian": "bethe_hessian",
}

# Widths of the kernel within the least width of a gap, unless it is given.
WIDTHS = 20


class ClusterCountParams(Params):
    """By which method, and what counts as a gap."""

    method: Literal[
        "slq", "maxent", "bethe_hessian", "smoothed_lanczos", "eigengap"
    ] = Field(
        "slq",
        description="slq: eigenvalues of the normalized Laplacian below its gap; "
        "maxent: the same by a density; smoothed_lanczos: by Ritz values that a "
        "kernel smooths; eigengap: by the lowest eigenvalues, one by one; "
        "bethe_hessian: negative ones of the Bethe Hessian, where sparse groups "
        "leave no gap",
    )
    least_gap: float = Field(
        0.03,
        gt=0,
        lt=1,
        description="width that a gap has at least, beside that of what lies below it",
    )
    sigma: Annotated[float | None, Neutral(None)] = Field(
        None,
        gt=0,
        description="width of the Gaussian kernel of smoothed_lanczos; null takes a "
        f"{WIDTHS}th of least_gap",
    )

    @model_validator(mode="after")
    def _has_a_kernel(self) -> Self:
        if self.sigma is not None and self.method != "smoothed_lanczos":
            raise ValueError(
                f"sigma cannot be combined with method {self.method}. Remove sigma, or "
                "take smoothed_lanczos."
            )
        return self

    @property
    def kernel_width(self) -> float:
        """Width of the kernel."""
        return self.least_gap / WIDTHS if self.sigma is None else self.sigma


# The input of methods that take no Ritz data, and what it holds.
OTHERS = {
    "maxent": ("density", "a density"),
    "eigengap": ("eigenvalues", "eigenvalues"),
}


def _unfit(params: ClusterCountParams, name: str, what: str) -> Iterator[ParamProblem]:
    field, wanted = OTHERS.get(params.method, ("ritz", "Ritz data"))
    message = f"expected {wanted} for {params.method}, got {what} of '{name}'"
    yield ("method",), message, f"Give {field}: instead, or take another method."


def _isolated_ones(params: Any, name: str, spectrum: Any) -> Iterator[ParamProblem]:
    # A node without edges is a component, and so an eigenvalue of zero or none.
    if getattr(spectrum, "isolated", "zero") == "one":
        message = f"isolated one of '{name}' cannot be combined with {params.method}"
        yield ("method",), message, f"Set isolated of '{name}' to zero or drop."


def _operator(spectrum: Any) -> str:
    operator = str(getattr(spectrum, "operator", "hessian"))
    return "normalized_laplacian" if operator == "hessian" else operator


def _other_spectrum(params: Any, name: str, spectrum: Any) -> Iterator[ParamProblem]:
    if params.method in OTHERS:
        yield from _unfit(params, name, "the Ritz data")
        return
    wanted, operator = OPERATORS[params.method], _operator(spectrum)
    if operator != wanted:
        message = f"expected a spectrum of {wanted}, got '{name}' of {operator}"
        yield ("method",), message, f"Set operator of '{name}' to {wanted}."
    yield from _isolated_ones(params, name, spectrum)


def _other_density(params: Any, name: str, density: Any) -> Iterator[ParamProblem]:
    if params.method != "maxent":
        yield from _unfit(params, name, "the density")
    elif isinstance(density, KpmParams):
        message = f"expected a density of probe.maxent, got '{name}' of probe.kpm"
        yield ("density",), message, "Name a probe.maxent of the same moments."


def _other_end(params: Any, name: str, lowest: Any) -> Iterator[ParamProblem]:
    if params.method != "eigengap":
        yield from _unfit(params, name, "the eigenvalues")
        return
    operator, which = _operator(lowest), getattr(lowest, "which", "LM")
    if operator != "normalized_laplacian":
        message = f"expected eigenvalues of normalized_laplacian, got '{name}' of "
        hint = f"Set operator of '{name}' to normalized_laplacian."
        yield ("eigenvalues",), f"{message}{operator}", hint
    if which != "SA":
        message = f"expected the lowest eigenvalues, got '{name}' with which {which}"
        yield ("eigenvalues",), message, f"Set which of '{name}' to SA."
    yield from _isolated_ones(params, name, lowest)


def _truth(
    _: ClusterCountParams, eigenvalues: Array, result: Mapping[str, Array]
) -> dict[str, Array]:
    """Return the eigenvalues below the point in the gap, which may be none."""
    return {"count": np.array((eigenvalues < result["gap_at"]).sum())}


# What densities and eigenvalues do not tell, as they have no rule.
OF_RULES = ("count_quadrature",)

_COUNT = judged(
    "count",
    "clusters; NaN without a gap; of a density all errors are those of the vectors, "
    "beside half an eigenvalue in the interval, and of eigenvalues there is none",
)

KIND = Kind(
    name="probe.cluster_count",
    version=3,
    summary="Clusters of a graph, counted below the gap of its spectrum, if any.",
    params=ClusterCountParams,
    returns=Numbers,
    outputs=(
        Variable(
            "verdict",
            "gap; no gap, as there are eigenvalues in every interval so wide; "
            "unresolved by so many steps, moments or eigenvalues",
            dtype="str",
        ),
        *(
            replace(variable, optional=variable.name in OF_RULES)
            for variable in _COUNT[:-1]
        ),
        Variable(
            "gap_low",
            "lower end of an interval without an eigenvalue; of a density, and of "
            "smoothed Ritz values, with half an eigenvalue at most as they have it",
        ),
        Variable("gap_high", "upper end of it"),
        Variable("gap_at", "point below which is counted; NaN without a gap"),
        Variable(
            "gap_depth",
            "eigenvalues that there may be at that point, by the rules; in the "
            "interval, by a density; 0 of eigenvalues",
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
        "ritz": Input(Ritz, unless=("density", "eigenvalues"), lacking=_other_spectrum),
        "density": Input(
            Entropic, unless=("ritz", "eigenvalues"), lacking=_other_density
        ),
        "eigenvalues": Input(
            Eigenvalues, unless=("ritz", "density"), lacking=_other_end
        ),
        "graph": Input(Graph, follows=("ritz", "eigenvalues"), optional=True),
    },
    truth=_truth,
)

EXPLANATION = Explanation(
    formula=(
        "D times the mean weight of the runs, or of a density, below λ*, deepest point "
        "of the widest gap up to the median; bounds by Chebyshev, Markov and Stieltjes"
    ),
    source=(
        "Granziol (2020), Algorithm 5, for the count; Golub and Meurant (2010), "
        "section 2.2, for the bounds; Lin, Saad and Yang (2016), "
        "doi:10.1137/130934283, for the kernel; Saade, Krzakala and Zdeborova (2014), "
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
    units={"least_gap": "as the eigenvalues", "sigma": "as the eigenvalues"},
)
