"""Declaration of `probe.logdet`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from curvflow.schemas.explanations import TRAINED, Explanation
from curvflow.schemas.kind import Kind, ParamProblem, Variable
from curvflow.schemas.kinds.shared.operators import (
    RefinedParams,
    no_operator_of_graphs,
    no_operator_of_weights,
    ritz_inputs,
)
from curvflow.schemas.kinds.shared.preconditioners import preconditioner_input
from curvflow.schemas.nodes import Array, Numbers
from curvflow.schemas.params import Neutral

Method = Literal[
    "auto",
    "slq",
    "chebyshev",
    "meme",
    "preconditioned_slq",
    "preconditioned_meme",
    "dense",
]


class LogdetParams(RefinedParams):
    """By which method, of the operator plus how much damping."""

    method: Method = Field(
        "auto",
        description="slq: quadrature of Lanczos runs; chebyshev: interpolation of log; "
        "meme: density of largest entropy; preconditioned_slq, preconditioned_meme: "
        "the same after division by the leading part; dense: Cholesky of the whole "
        "matrix; auto: dense of up to 1,024 rows in float64 where the runs "
        "would take as many products, else preconditioned_meme for dense and kernel "
        "matrices and slq for others",
    )
    reorthogonalize: Annotated[Literal["full", "none"], Neutral("full")] = Field(
        "full",
        description="full holds all vectors of a run, and keeps them orthogonal; none "
        "holds two, in less time, as a rule needs no more; auto is then slq",
    )
    damping: float = Field(0.0, ge=0, description="added to every eigenvalue first")
    floor: float | None = Field(
        None,
        gt=0,
        description="what eigenvalues, damped, are known to be above, such as the "
        "noise of a kernel; null knows of none but the damping of operators that have "
        "no negative ones",
    )
    num_moments: int | None = Field(
        None,
        ge=1,
        description="orders used by chebyshev and meme; null takes num_steps, or, "
        "preconditioned, up to 40",
    )
    basis: Literal["chebyshev", "legendre", "power"] = Field(
        "chebyshev", description="of the moments that a density is fitted to"
    )
    prior: Literal["auto", "flat", "log", "arcsine"] = Field(
        "auto",
        description="law of the density where moments say nothing; auto is flat for "
        "meme, log for preconditioned_meme",
    )
    preconditioner: Literal["auto", "cholesky", "nystrom"] = Field(
        "auto",
        description="cholesky: pivoted, from columns; nystrom: from products alone; "
        "auto takes columns where there are entries. The name of a stage takes its "
        "factors",
    )
    rank: int = Field(100, ge=1, description="columns or products it takes")
    num_blocks: int = Field(2, ge=1, description="Krylov blocks of nystrom")
    known_moments: bool = Field(
        True,
        description="whether cholesky of a dense matrix also takes tr and |.|^2 of the "
        "preconditioned matrix from its entries, to take noise off",
    )
    compare: bool = Field(
        False, description="whether to compute the dense value too, by D products"
    )

    @model_validator(mode="after")
    def _refines(self) -> LogdetParams:
        is_rule = self.method in ("auto", "slq", "chebyshev")
        if self.rel_error is not None and not is_rule:
            raise ValueError(
                f"rel_error cannot be combined with method {self.method}. Take slq or "
                "chebyshev, or remove it."
            )
        if self.rel_error is not None and self.num_moments is not None:
            raise ValueError(
                "rel_error cannot be combined with num_moments, which would stay as it "
                "is while steps are doubled. Remove one of them."
            )
        return self

    @model_validator(mode="after")
    def _holds_vectors(self) -> LogdetParams:
        takes_rules = self.method in ("auto", "slq", "chebyshev", "meme")
        if self.reorthogonalize == "none" and not takes_rules:
            raise ValueError(
                f"reorthogonalize none cannot be combined with method {self.method}. "
                "Take slq, or remove it."
            )
        return self

    @model_validator(mode="after")
    def _has_moments(self) -> LogdetParams:
        if self.num_moments and self.num_moments > 2 * self.num_steps - 1:
            raise ValueError(
                f"expected num_moments at most {2 * self.num_steps - 1} from "
                f"{self.num_steps} steps, got {self.num_moments}. Take more steps."
            )
        return self


def _orders(params: Any) -> int:
    """Return how many moments are taken of Ritz data."""
    takes = params.method in ("chebyshev", "meme")
    return (params.num_moments or params.num_steps) if takes else 0


def _of_factors(params: Any, name: str, _: Any) -> Iterator[ParamProblem]:
    """Yield what factors cannot be divided by."""
    if params.damping == 0:
        message = f"damping 0 cannot be combined with factors '{name}', which may be "
        yield ("damping",), f"{message}singular", "Set damping above 0."
    if params.reorthogonalize == "none":
        message = f"reorthogonalize none cannot be combined with factors '{name}'"
        yield ("reorthogonalize",), message, "Remove it."
    if not params.method.startswith(("auto", "preconditioned")):
        message = f"method {params.method} cannot be combined with factors '{name}'"
        hint = "Take preconditioned_slq, preconditioned_meme or auto."
        yield ("method",), message, hint


def _of_ritz(params: Any, name: str, ritz: Any) -> Iterator[ParamProblem]:
    """Yield what Ritz data lack, and what takes products, of which they have none."""
    lacking = _INPUTS["ritz"].lacking
    assert lacking is not None
    yield from lacking(params, name, ritz)
    if params.method not in ("auto", "slq", "chebyshev", "meme"):
        message = f"method {params.method} cannot be combined with Ritz data '{name}'"
        hint = "Take slq, chebyshev or meme, or weights or a matrix."
        yield ("method",), message, hint
    if params.compare:
        message = f"compare true cannot be combined with the Ritz data '{name}'"
        yield ("compare",), message, "Remove it, or take weights or a matrix."


def _lacks_of_weights(params: Any, name: str, training: Any) -> Iterator[ParamProblem]:
    yield from no_operator_of_weights(params, name, training)
    yield from _without_entries(params, name)


def _lacks_of_graphs(params: Any, name: str, graph: Any) -> Iterator[ParamProblem]:
    yield from no_operator_of_graphs(params, name, graph)
    yield from _without_entries(params, name)


def _without_entries(params: Any, name: str) -> Iterator[ParamProblem]:
    """Yield that columns are to be taken of an operator that has products alone."""
    takes = params.method.startswith("preconditioned")
    if takes and params.preconditioner == "cholesky":
        message = f"expected nystrom or auto, as '{name}' has no entries, got cholesky"
        yield ("preconditioner",), message, "Remove it."


_INPUTS = ritz_inputs(
    "num_runs",
    "num_steps",
    "distribution",
    "rel_error",
    "reorthogonalize",
    "preconditioner",
    "rank",
    "num_blocks",
    "known_moments",
    orders=_orders,
)
_LACKING = {
    "weights": _lacks_of_weights,
    "graph": _lacks_of_graphs,
    "ritz": _of_ritz,
}


def _number(name: str, description: str) -> Variable:
    return Variable(name, description)


def _error(name: str, description: str) -> Variable:
    return Variable(name, description, error_of="logdet")


def _judged(name: str, description: str, error_of: str | None = None) -> Variable:
    return Variable(
        name,
        description,
        error_of=error_of,
        judged_by="converged",
        rests_on="definite",
    )


def _truth(
    params: LogdetParams, eigenvalues: Array, _: Mapping[str, Array]
) -> dict[str, Array]:
    damped = eigenvalues + params.damping
    return {"logdet": np.log(damped).sum()} if damped.min() > 0 else {}


KIND = Kind(
    name="probe.logdet",
    version=6,
    summary="Log-determinant of a positive definite operator, by several methods.",
    params=LogdetParams,
    returns=Numbers,
    outputs=(
        _judged("logdet", "log det(A + damping I), in natural logarithms"),
        _judged(
            "logdet_sem",
            "standard error, of the vectors and of the quadrature; for dense 0, or in "
            "float32 of rounding",
            "logdet",
        ),
        _error("logdet_vectors", "standard error of the random vectors alone"),
        _error(
            "logdet_quadrature",
            "most that it may be off for all runs alike, by what their rules allow",
        ),
        _number("logdet_low", "lower end of an interval of 95 %"),
        _number("logdet_high", "upper end of an interval of 95 %"),
        Variable(
            "definite",
            "how the operator is known to be positive definite: floor, damping, "
            "gershgorin, cholesky; tested, by the weight that the runs allow about "
            "zero and below; assumed, where they do not show it",
            dtype="str",
        ),
        Variable(
            "logdet_draws", "estimate of each run", ("run",), series=True, optional=True
        ),
        _error(
            "gap",
            "difference from another rule by the same runs: Gauss-Radau for slq, slq "
            "for chebyshev and meme; 0 for dense",
        ),
        _number("strain", "largest misfit of a moment in standard errors, or NaN"),
        Variable(
            "converged",
            "whether the quadrature is off by at most rel_error of the value; without "
            "one, by two standard errors of the vectors; and "
            "a fit converged",
            dtype="bool",
        ),
        _number("scale", "Gershgorin's bound of a matrix, lambda_u; 1 of an operator"),
        _judged("logdet_scaled", "log det of the operator over lambda_u"),
        _number("smallest", "least Ritz value of the operator, damped; NaN if none"),
        Variable("rank", "of the preconditioner; 0 without", dtype="int64"),
        Variable("size", "dimension of the operator, D", dtype="int64"),
        Variable(
            "num_matvecs",
            "work: products with the operator, and columns of Cholesky as if each was "
            "one; not those of compare",
            dtype="int64",
        ),
        Variable("exact", "dense value, if compared", optional=True),
        Variable("error", "|logdet - exact| / |exact|, if compared", optional=True),
        Variable(
            "error_scaled",
            "the same of the operator over lambda_u, if compared",
            optional=True,
        ),
    ),
    accelerated=True,
    main=("logdet", "logdet_sem"),
    inputs={
        **_INPUTS,
        **{
            name: replace(_INPUTS[name], lacking=lacking)
            for name, lacking in _LACKING.items()
        },
        "preconditioner": preconditioner_input(
            "rank", "num_blocks", "known_moments", "rel_error", lacking=_of_factors
        ),
    },
    varying=("seed",),
    truth=_truth,
)

EXPLANATION = Explanation(
    formula=(
        "log det(A + damping · I) = Σ ln(λᵢ + damping), as D Σ τ ln(θ + damping) "
        "over Ritz values θ, or log det P + log det(P^-1/2 A P^-1/2), P of the leading "
        "part, or factors with the damping"
    ),
    source="Granziol (2020), chapter 2",
    cost=(
        "num_runs · num_steps products, and rank columns or num_blocks · rank "
        "products of a preconditioner; D with dense or compare; none from stored "
        "Ritz data"
    ),
    example=TRAINED
    + """\
  logdet: {use: probe.logdet, weights: fit, operator: ggn, damping: 0.01,
           num_runs: 5, num_steps: 30}
""",
    page="moments.md#log-determinants",
    units={
        "damping": "as the eigenvalues",
        "floor": "as the eigenvalues",
        "rank": "column",
    },
)
