"""Declaration of `probe.alignment`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, model_validator

from curvflow.schemas.checks.samples import too_few_for_batches
from curvflow.schemas.explanations import TRAINED, Explanation
from curvflow.schemas.idle_settings import Idle, idle_setting
from curvflow.schemas.kind import (
    Input,
    Kind,
    ParamProblem,
    Shares,
    Taken,
    Variable,
)
from curvflow.schemas.kinds.shared.operators import UNITS
from curvflow.schemas.nodes import Data, Factors, Numbers, Weights
from curvflow.schemas.params import Params

Reference = Literal["blocks", "newton", "absolute"]
FULL = "gauss_newton"
FACTORED = " factored"


class AlignmentParams(Params):
    """At which dampings, over which batches, and how exactly solved."""

    damping: Annotated[
        tuple[NonNegativeFloat, ...], Field(strict=False, min_length=1)
    ] = Field(
        (1e-3,),
        description="numbers added to the diagonal of every matrix, and to the "
        "quadratic model; all are solved for together",
    )
    l2: float = Field(
        0.0,
        ge=0,
        description="l2 w is added to the gradient, and l2 to every diagonal",
    )
    references: Annotated[tuple[Reference, ...], Field(strict=False)] = Field(
        ("blocks", "newton", "absolute"),
        description="directions beside the whole gauss_newton: blocks, of the same "
        "matrix without what is between layers; newton, of the Hessian; absolute, of "
        "the Hessian with the magnitudes of its eigenvalues",
    )
    inverse: Literal["exact", "factored", "both"] = Field(
        "exact",
        description="of factors: exact, of the damped block, in its eigenbasis; "
        "factored, of each factor with a part of the root of the damping, where a "
        "block is a product; both",
    )
    pi: Literal["trace", "frobenius", "spectral"] | PositiveFloat = Field(
        "trace",
        description="of the factored inverse: norm, per row, of the two factors whose "
        "root of a ratio splits the damping; or that number itself",
    )
    num_batches: int = Field(
        1,
        ge=1,
        description="disjoint batches, each with a gradient and exact matrices of its "
        "own; one takes all the data, in order",
    )
    batch_size: int | None = Field(
        None,
        ge=1,
        description="samples of a batch; null takes as many as there are for each",
    )
    tol: float = Field(
        1e-6,
        gt=0,
        lt=1,
        description="residual of the solved directions, relative to the gradient; of "
        "absolute, relative change when the steps are doubled",
    )
    max_iterations: int = Field(
        1000, ge=1, description="steps of a solver, each a product with every column"
    )
    seed: int = Field(0, ge=0, description="seed of the batches")
    dtype: Literal["float32", "float64"] = Field(
        "float64", description="precision of the products"
    )

    @model_validator(mode="after")
    def _named_once(self) -> AlignmentParams:
        for name in ("damping", "references"):
            given = getattr(self, name)
            if len(set(given)) < len(given):
                raise ValueError(
                    f"expected {name} that differ, got {', '.join(map(str, given))}. "
                    "Name each once."
                )
        return self

    def idle_settings(self) -> Iterator[Idle]:
        """Yield pi, where no damping is split."""
        if self.inverse == "exact":
            cause = "inverse exact, which splits no damping"
            yield idle_setting(self, "pi", cause, "inverse factored or both")


def _lacking(params: Any, name: str, factors: Any) -> Iterator[ParamProblem]:
    """Yield that factors are of some parameters alone."""
    if getattr(factors, "layers", None) is not None:
        message = f"expected factors of all parameters, got '{name}' with layers"
        yield ("factors",), message, f"Remove layers of '{name}'."


def _check_names(params: AlignmentParams, taken: Taken) -> Iterator[ParamProblem]:
    stages = taken.get("factors", {})
    if not stages and params.inverse != "exact":
        message = f"inverse {params.inverse} cannot be combined with factors none"
        yield ("inverse",), message, "Give factors, or remove inverse."
    names = {FULL, *params.references, *(name + FACTORED for name in stages)}
    for stage in stages:
        if stage in names:
            message = f"expected another name than that of a direction, got '{stage}'"
            yield ("factors",), message, "Rename that stage."


_BY = ("direction", "damping")


def _mean(
    name: str,
    description: str,
    dims: tuple[str, ...] = _BY,
    *,
    units: str = "1",
    flag: str = "converged",
) -> tuple[Variable, ...]:
    """Return the variables of a mean over batches."""

    def part(suffix: str, text: str) -> Variable:
        return Variable(f"{name}_{suffix}", text, dims, units=units)

    return (
        Variable(name, description, dims, units=units, judged_by=flag),
        part("sem", "standard error between batches; NaN of one batch"),
        part("low", "lower end of an interval of 95 % for the mean over batches"),
        part("high", "upper end of it"),
    )


def _of_batches(name: str, description: str, units: str = "1") -> Variable:
    return Variable(
        f"batch_{name}", description, (*_BY, "batch"), units=units, series=True
    )


KIND = Kind(
    name="probe.alignment",
    version=2,
    summary="Directions of factors and exact solves beside that of Gauss-Newton.",
    params=AlignmentParams,
    returns=Numbers,
    outputs=(
        Variable(
            "direction",
            "stages of factors, references, and gauss_newton",
            ("direction",),
            "str",
        ),
        Variable("damping", "as given", ("damping",), units=UNITS),
        Variable("layer", "modules, each with its tensors", ("layer",), "str"),
        *_mean("cosine", "cosine with the whole gauss_newton direction"),
        *_mean(
            "layer_cosine",
            "the same of the parts of a layer",
            ("layer", *_BY),
            flag="layer_converged",
        ),
        *_mean(
            "step",
            "best step along the direction, which points downhill where it is above 0",
        ),
        *_mean(
            "share",
            "decrease of the quadratic model at that step, over the largest there is",
        ),
        *_mean("decrease", "that decrease itself", units="loss"),
        _of_batches("cosine", "cosine of each batch"),
        _of_batches("step", "step of each batch"),
        _of_batches("share", "share of each batch"),
        replace(
            Variable(
                "residual",
                "largest of all batches: of the solve, relative to the gradient, in "
                "the worst layer of blocks; of absolute the last relative change; 0 of "
                "factors, whose inverse is at hand",
                _BY,
            ),
            series=True,
        ),
        Variable(
            "converged",
            "whether this direction and gauss_newton are within tol in every batch, "
            "and all numbers finite",
            _BY,
            "bool",
        ),
        Variable(
            "layer_converged",
            "the same flag, of each layer",
            ("layer", *_BY),
            "bool",
        ),
        Variable(
            "num_products",
            "products with a vector that each direction took, of all batches",
            ("direction",),
            "int64",
        ),
        Variable("samples_per_batch", "samples of a batch", dtype="int64"),
        Variable(
            "num_matvecs",
            "products with a vector in all, each over the samples of a batch",
            dtype="int64",
        ),
    ),
    accelerated=True,
    main=("cosine", "share"),
    inputs={
        "weights": Input(Weights),
        "data": Input(
            Data, follows="weights", by_rows=True, lacking=too_few_for_batches
        ),
        "factors": Input(
            Factors,
            many=True,
            optional=True,
            lacking=_lacking,
            shares=Shares("", inputs=("weights", "data")),
        ),
    },
    check_names=_check_names,
    varying=("seed",),
)

EXPLANATION = Explanation(
    formula=(
        "d = -(P + δ)⁻¹ g, g = ∇E + l2 w, δ damping + l2; step = -g·d / d·(G + δ)d; "
        "share = (g·d)² / (d·(G + δ)d · g·(G + δ)⁻¹g)"
    ),
    source=(
        "Botev (2020), sections 4.4 and 4.5; Martens and Grosse (2015), "
        "arXiv:1503.05671, section 6.4"
    ),
    cost=(
        "products until tol is met: of gauss_newton and newton one a step for each "
        "damping, of blocks one for each damping and layer, of absolute one; then one "
        "for each direction and damping"
    ),
    example=TRAINED
    + """\
  factors: {use: probe.factors, weights: fit}
  directions: {use: probe.alignment, weights: fit, factors: [factors],
               damping: [0.01], num_batches: 2, references: [blocks]}
""",
    page="kronecker.md",
    units={"damping": UNITS, "l2": UNITS, "pi": "1"},
)
