"""Declaration of `probe.graph_functionals`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, get_args

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Input, Kind, ParamProblem, Variable
from curvflow.schemas.kinds.shared.operators import judged
from curvflow.schemas.nodes import Array, Graph, Numbers, Ritz
from curvflow.schemas.params import Params

OperatorName = Literal["normalized_laplacian", "laplacian", "adjacency"]
FunctionalName = Literal[
    "heat_trace",
    "entropy",
    "log_trees",
    "kirchhoff_index",
    "kemeny_constant",
    "estrada_index",
    "closed_walks",
    "triangles",
]

# The operators whose spectrum a functional is of.
OPERATORS: dict[str, tuple[str, ...]] = {
    "heat_trace": ("normalized_laplacian", "laplacian"),
    "entropy": ("normalized_laplacian", "laplacian"),
    "log_trees": ("normalized_laplacian", "laplacian"),
    "kirchhoff_index": ("laplacian",),
    "kemeny_constant": ("normalized_laplacian",),
    "estrada_index": ("adjacency",),
    "closed_walks": ("adjacency",),
    "triangles": ("adjacency",),
}


# Those of the eigenvalues above zero, which must be known apart from those at zero.
ABOVE_ZERO = ("log_trees", "kirchhoff_index", "kemeny_constant")


class GraphFunctionalsParams(Params):
    """Of which operator the spectrum is, and what is taken of it."""

    operator: OperatorName = Field(
        "normalized_laplacian", description="of the graph, as the Ritz data have it"
    )
    functionals: Annotated[
        tuple[FunctionalName, ...] | None, Field(strict=False, min_length=1)
    ] = Field(
        None,
        description="what is computed; null takes those that any spectrum of the "
        "operator gives, without "
        "log_trees, kirchhoff_index and kemeny_constant",
    )
    times: Annotated[tuple[PositiveFloat, ...], Field(strict=False, min_length=1)] = (
        Field(
            (0.01, 0.1, 1.0, 10.0, 100.0),
            description="t of the heat trace, tr exp(-t L)",
        )
    )
    beta: PositiveFloat = Field(1.0, description="of the Estrada index, tr exp(beta A)")
    lengths: Annotated[tuple[PositiveInt, ...], Field(strict=False, min_length=1)] = (
        Field((2, 3, 4), description="steps of the closed walks, k of tr A^k")
    )

    @model_validator(mode="after")
    def _of_operator(self) -> GraphFunctionalsParams:
        for name in self.functionals or ():
            if self.operator not in OPERATORS[name]:
                known = " or ".join(OPERATORS[name])
                raise ValueError(
                    f"functional {name} cannot be combined with operator "
                    f"{self.operator}. Take a spectrum of the {known}."
                )
        return self

    @property
    def taken(self) -> tuple[str, ...]:
        """Names of the functionals that are computed."""
        names: tuple[str, ...] = get_args(FunctionalName)
        of_any = tuple(
            name
            for name in names
            if self.operator in OPERATORS[name] and name not in ABOVE_ZERO
        )
        return self.functionals or of_any


def _other_spectrum(params: Any, name: str, spectrum: Any) -> Iterator[ParamProblem]:
    """Yield what the spectrum of a graph is not or does not hold."""
    operator = getattr(spectrum, "operator", "hessian")
    operator = "normalized_laplacian" if operator == "hessian" else operator
    if operator != params.operator:
        message = (
            f"expected a spectrum of {params.operator}, got '{name}' of {operator}"
        )
        yield ("operator",), message, "Set operator to that of the spectrum."
    if getattr(spectrum, "isolated", "zero") == "one":
        message = f"functionals cannot be combined with isolated one of '{name}'"
        hint = f"Set isolated of '{name}' to zero or drop."
        yield ("ritz",), message, hint
    above_zero = [functional for functional in params.taken if functional in ABOVE_ZERO]
    if above_zero and "components" not in getattr(spectrum, "deflate", ()):
        message = (
            f"{', '.join(above_zero)} cannot be combined with the whole spectrum of "
            f"'{name}', in which zero is not apart"
        )
        hint = f"Set deflate of '{name}' to [components]."
        yield ("functionals",), message, hint
    steps, longest = getattr(spectrum, "num_steps", None), max(params.lengths)
    walks = "closed_walks" in params.taken
    if walks and steps and longest > 2 * steps - 1:
        message = (
            f"expected lengths up to {2 * steps - 1}, which the {steps} steps of "
            f"'{name}' hold, got {longest}"
        )
        yield ("lengths",), message, f"Lower it, or raise num_steps of '{name}'."


def _judged(
    name: str, description: str, dims: tuple[str, ...] = ()
) -> tuple[Variable, ...]:
    """Return the variables of one functional."""
    all_of_it = judged(name, description, dims, flag=f"{name}_converged")
    return tuple(replace(variable, optional=True) for variable in all_of_it[:-1])


def _truth(
    params: GraphFunctionalsParams, eigenvalues: Array, _: Mapping[str, Array]
) -> dict[str, Array]:
    """Return all but the trees of several components or of a normalized operator."""
    size, scale = len(eigenvalues), np.abs(eigenvalues).max()
    above = eigenvalues[eigenvalues > 1e-9 * scale]
    shares = above / above.sum()
    known: dict[str, Callable[[], Any]] = {
        "heat_trace": lambda: [np.exp(-t * eigenvalues).sum() for t in params.times],
        "entropy": lambda: -(shares * np.log(shares)).sum(),
        "estrada_index": lambda: np.exp(params.beta * eigenvalues).sum(),
        "closed_walks": lambda: [(eigenvalues**k).sum() for k in params.lengths],
        "triangles": lambda: (eigenvalues**3).sum() / 6,
    }
    if len(above) == size - 1:
        known["kemeny_constant"] = lambda: (1 / above).sum()
        known["kirchhoff_index"] = lambda: size * (1 / above).sum()
        if params.operator == "laplacian":
            known["log_trees"] = lambda: np.log(above).sum() - np.log(size)
    return {name: np.array(known[name]()) for name in params.taken if name in known}


KIND = Kind(
    name="probe.graph_functionals",
    version=2,
    summary="Functionals of a graph's spectrum, from stored Ritz data.",
    params=GraphFunctionalsParams,
    returns=Numbers,
    outputs=(
        Variable("time", "as given in times", ("time",), optional=True),
        *_judged("heat_trace", "tr exp(-t L)", ("time",)),
        *_judged("entropy", "-tr(rho ln rho), rho = L / tr L, in natural logarithms"),
        *_judged(
            "log_trees",
            "natural logarithm of the number of spanning trees; of several components "
            "of all theirs; with weights, of the sum of their products",
        ),
        *_judged("kirchhoff_index", "D sum 1 / lambda of a connected graph"),
        *_judged("kemeny_constant", "sum 1 / lambda of a connected graph"),
        *_judged("estrada_index", "tr exp(beta A)"),
        Variable(
            "length", "as given in lengths", ("length",), dtype="int64", optional=True
        ),
        *_judged("closed_walks", "tr A^k, of so many steps", ("length",)),
        *_judged("triangles", "tr A^3 / 6; with weights, their products"),
        Variable("size", "nodes that the operator has, D", dtype="int64"),
    ),
    inputs={
        "ritz": Input(Ritz, lacking=_other_spectrum),
        "graph": Input(Graph, follows="ritz"),
    },
    truth=_truth,
)

EXPLANATION = Explanation(
    formula=(
        "tr f(A) = D Σ τ f(θ) over Ritz values θ and weights τ: f is exp(-t λ), "
        "-(λ / T) ln(λ / T) with T = tr L, ln λ, 1 / λ, exp(β λ), λ^k, λ^3 / 6"
    ),
    source=(
        "Tsitsulin et al. (2018), doi:10.1145/3219819.3219991, heat trace; "
        "Braunstein, Ghosh and Severini (2006), doi:10.1007/s00026-006-0289-3, "
        "entropy; Estrada (2000), doi:10.1016/S0009-2614(00)00158-5"
    ),
    cost="none: no product with the graph beyond one with its degrees",
    example="""\
study: example
stages:
  graph: {use: data.random_graph, model: erdos_renyi, n: 200, p: 0.05}
  spectrum: {use: probe.spectrum, graph: graph, num_runs: 5, num_steps: 30}
  heat: {use: probe.graph_functionals, ritz: spectrum,
         functionals: [heat_trace], times: [0.1, 1, 10]}
""",
    page="graphs.md#what-follows-from-a-spectrum",
    units={"times": "1 / eigenvalue", "beta": "1 / eigenvalue", "lengths": "step"},
)
