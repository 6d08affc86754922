"""Declaration of `probe.eigenvalues`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from curvflow.schemas.explanations import TRAINED, Explanation
from curvflow.schemas.kind import Kind, ParamProblem, Variable
from curvflow.schemas.kinds.shared.operators import (
    OPERATOR_OR_RITZ_INPUTS,
    UNITS,
    OperatorParams,
    more_than_rows,
    no_operator_of_graphs,
    of_all_eigenvalues,
    ritz_inputs,
)
from curvflow.schemas.kinds.shared.preconditioners import preconditioner_input
from curvflow.schemas.nodes import Array, Numbers
from curvflow.schemas.params import Neutral


class EigenvaluesParams(OperatorParams):
    """Number, end, method and tolerance of the eigenvalues."""

    k: int = Field(3, ge=1, description="eigenvalues wanted")
    which: Annotated[Literal["LM", "LA", "SA"], Neutral("LM")] = Field(
        "LM",
        description="LM, largest magnitude; LA, largest; SA, smallest with its sign",
    )
    method: Annotated[Literal["power", "lanczos", "lobpcg"], Neutral("power")] = Field(
        "power",
        description="power, simultaneous iteration, LM alone; lanczos, by blocks with "
        "thick restarts, in the fewest products; lobpcg, LA or SA in little memory; "
        "stored Ritz data need none",
    )
    oversampling: int = Field(
        8,
        ge=0,
        description="further columns iterated by power and lobpcg, for faster "
        "convergence",
    )
    block: Annotated[int, Neutral(4)] = Field(
        4,
        ge=1,
        description="columns of lanczos: it finds a repeated eigenvalue so many times",
    )
    tol: float = Field(
        1e-6, gt=0, lt=1, description="residual allowed relative to the eigenvalue"
    )
    max_iterations: int = Field(500, ge=1, description="products with the block")
    eigenvectors: Annotated[bool, Neutral(False)] = Field(
        False, description="whether to store the eigenvectors, too"
    )

    @model_validator(mode="after")
    def _which_by_method(self) -> Self:
        if self.method == "power" and self.which != "LM":
            raise ValueError(
                f"which {self.which} cannot be combined with method power. Take "
                "lanczos, or which LM."
            )
        if self.method == "lobpcg" and self.which == "LM":
            raise ValueError(
                "which LM cannot be combined with method lobpcg. Take lanczos."
            )
        return self


def _lacks_of_graphs(params: Any, name: str, graph: Any) -> Iterator[ParamProblem]:
    yield from no_operator_of_graphs(params, name, graph)
    yield from more_than_rows(params, name, graph)


_INPUTS = ritz_inputs("oversampling", "block", "max_iterations", "eigenvectors")


def _lacks_of_ritz(params: Any, name: str, ritz: Any) -> Iterator[ParamProblem]:
    yield from of_all_eigenvalues("ritz")(params, name, ritz)
    steps = getattr(ritz, "num_steps", None)  # all eigenvalues are no runs
    if steps is not None and params.k > steps:
        message = f"expected at most the {steps} steps of '{name}', got {params.k}"
        yield ("k",), message, f"Lower it, or raise num_steps of '{name}'."


def _not_lobpcg(params: Any, name: str, _: Any) -> Iterator[ParamProblem]:
    if params.method != "lobpcg":
        message = f"method {params.method} cannot be combined with factors '{name}'"
        yield ("method",), message, "Take lobpcg, or remove preconditioner."


# Magnitudes that differ by less are one, such as those of a bipartite graph.
TIED = 1e-9


def most_wanted(params: EigenvaluesParams, eigenvalues: Array) -> Array:
    """Return the eigenvalues that are wanted of all (D,), the most wanted first."""
    size = {"LM": -np.abs(eigenvalues), "LA": -eigenvalues, "SA": eigenvalues}
    return eigenvalues[np.argsort(size[params.which])][: params.k]


def _truth(
    params: EigenvaluesParams, eigenvalues: Array, result: Mapping[str, Array]
) -> dict[str, Array]:
    """Return the wanted; of two of one magnitude the one whose sign was found."""
    wanted = most_wanted(params, eigenvalues)
    estimates = np.asarray(result.get("eigenvalues", wanted))
    apart = np.abs(eigenvalues + wanted[:, None]).min(1)
    is_either = (params.which == "LM") & (apart <= TIED * np.abs(wanted))
    return {
        "eigenvalues": np.where(is_either & (estimates * wanted < 0), -wanted, wanted)
    }


KIND = Kind(
    name="probe.eigenvalues",
    version=1,
    summary="Extreme eigenvalues with bounds: by power iteration, Lanczos or LOBPCG.",
    params=EigenvaluesParams,
    returns=Numbers,
    outputs=(
        Variable("rank", "1 is the most wanted", ("rank",), dtype="int64"),
        Variable(
            "eigenvalues",
            "signed eigenvalues",
            ("rank",),
            units=UNITS,
            judged_by="converged",
        ),
        Variable(
            "residuals",
            "||Hv - lambda v||, a bound on the error",
            ("rank",),
            units=UNITS,
            error_of="eigenvalues",
        ),
        Variable(
            "converged",
            "whether the residual is within tol, and lanczos cannot have missed copies "
            "of an eigenvalue before it",
            ("rank",),
            dtype="bool",
        ),
        Variable("iterations", "products with the block", dtype="int64"),
        Variable("num_matvecs", "work: products with the matrix", dtype="int64"),
        Variable("size", "rows of the matrix, D", dtype="int64", optional=True),
        Variable(
            "columns",
            "how often a repeated eigenvalue is found for certain: vectors multiplied "
            "at once, D where the whole matrix was, 1 from stored Ritz data",
            dtype="int64",
            optional=True,
        ),
        Variable(
            "eigenvectors",
            "unit eigenvectors, if requested",
            ("rank", "parameter"),
            bulk=True,
            optional=True,
        ),
    ),
    accelerated=True,
    main=("eigenvalues",),
    inputs={
        **_INPUTS,
        "matrix": replace(OPERATOR_OR_RITZ_INPUTS["matrix"], lacking=more_than_rows),
        "graph": replace(OPERATOR_OR_RITZ_INPUTS["graph"], lacking=_lacks_of_graphs),
        "ritz": replace(_INPUTS["ritz"], lacking=_lacks_of_ritz),
        "preconditioner": preconditioner_input(lacking=_not_lobpcg),
    },
    varying=("seed",),
    truth=_truth,
)

EXPLANATION = Explanation(
    formula="A v = λ v, with |λ - an eigenvalue| ≤ ‖A v - λ v‖",
    source=(
        "Wu and Simon (2000), doi:10.1137/S0895479898334605, thick restarts; "
        "Knyazev (2001), doi:10.1137/S1064827500366124, and Duersch, Shao, Yang and "
        "Gu (2018), doi:10.1137/17M1129830, LOBPCG"
    ),
    cost=(
        "iterations · columns of the block, in products (num_matvecs): k + "
        "oversampling of power and lobpcg, block of lanczos; none from stored Ritz "
        "data. Of lobpcg with which SA factors save products, as preconditioner"
    ),
    example=TRAINED
    + """\
  top: {use: probe.eigenvalues, weights: fit, method: lanczos, which: LA,
        k: 3}
""",
    page="spectrum.md#few-eigenvalues",
)
