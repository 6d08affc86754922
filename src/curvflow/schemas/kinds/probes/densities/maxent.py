"""Declaration of `probe.maxent`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from curvflow.schemas.explanations import TRAINED, Explanation
from curvflow.schemas.kind import Input, Kind, ParamProblem, Variable
from curvflow.schemas.kinds.shared.deflation import ATOMS, no_atoms
from curvflow.schemas.nodes import Array, Density, Moments
from curvflow.schemas.params import Floats, Neutral, Params


class MaxentParams(Params):
    """Family of the density, and the number of moments it is fitted to."""

    num_moments: int | None = Field(
        None, ge=0, description="orders used, 1 .. K; null takes all that are given"
    )
    basis: Literal["chebyshev", "legendre", "power"] = Field(
        "chebyshev",
        description="of the multipliers; moments of another basis are turned into it",
    )
    prior: Literal["flat", "log", "arcsine"] = Field(
        "flat",
        description="density where moments say nothing: flat; log, as 1/x, with nodes "
        "spaced alike in log x; arcsine, that of Chebyshev's polynomials",
    )
    support: Floats | None = Field(
        None,
        min_length=2,
        max_length=2,
        description="interval of the density; null takes that of the moments",
    )
    num_points: int = Field(
        1000, ge=50, description="nodes of the integrals, which are also the grid"
    )
    error_floor: float = Field(
        1e-6, gt=0, description="least standard error that a moment is taken to have"
    )
    max_iterations: int = Field(
        500, ge=1, description="Newton steps, or rounds of iterative scaling"
    )
    solver: Annotated[Literal["newton", "iterative_scaling"], Neutral("newton")] = (
        Field(
            "newton",
            description="newton, within the moments' errors; iterative_scaling, to "
            "compare with: moments exact, and rarely met in the rounds allowed",
        )
    )

    atoms: Annotated[Literal["within", "apart"], Neutral("within")] = Field(
        "within",
        description="of moments with deflate: within, the density is of all "
        "eigenvalues; apart, of those that were not taken out, of integral 1",
    )

    @model_validator(mode="after")
    def _is_interval(self) -> MaxentParams:
        if self.support is not None and not self.support[0] < self.support[1]:
            raise ValueError(
                f"expected a support that ascends, got {list(self.support)}. "
                "Write the lower end first."
            )
        if self.support is not None and self.prior == "log" and self.support[0] <= 0:
            raise ValueError(
                f"expected a support above zero with prior log, got "
                f"{list(self.support)}. Raise its lower end, or take another prior."
            )
        return self


def too_few_moments(params: Any, name: str, moments: Any) -> Iterator[ParamProblem]:
    """Yield what moments lack of those requested, and of eigenvalues kept apart."""
    given = getattr(moments, "num_moments", None)
    if given and params.num_moments and params.num_moments > given:
        message = f"expected at most the {given} of '{name}', got {params.num_moments}"
        hint = f"Lower it, or raise num_moments of '{name}'."
        yield ("num_moments",), message, hint
    yield from no_atoms(params, name, moments)


def _unfit_moments(params: Any, name: str, moments: Any) -> Iterator[ParamProblem]:
    yield from too_few_moments(params, name, moments)
    support = getattr(moments, "support", None)
    if params.support is not None or support is None:
        return
    if params.prior == "log" and support[0] <= 0:
        message = f"expected flat or arcsine, as '{name}' has the support "
        message += f"{list(support)}, got log"
        yield ("prior",), message, "Give a support above zero, or another prior."


def _judged(name: str, description: str) -> Variable:
    return Variable(name, description, judged_by="converged")


def _kept(name: str, description: str, *dims: str, dtype: str = "float64") -> Variable:
    """Declare what distances are computed of, which older results lack."""
    return Variable(name, description, dims, dtype, series=True, optional=True)


def _on_grid(name: str, description: str) -> Variable:
    return Variable(name, description, ("point",), series=True, optional=True)


NUM_DRAWS = Variable(
    "num_draws", "random vectors averaged", dtype="int64", optional=True
)

INTERVAL = (
    _on_grid(
        "density_low",
        "lower end of an interval of 95 % of the density that exact moments have; NaN "
        "for one vector",
    ),
    _on_grid("density_high", "upper end of it"),
)

# Of all eigenvalues, those set apart among them as steps.
CUMULATIVE = (
    _on_grid("cumulative", "fraction of all eigenvalues up to each point of the grid"),
    _on_grid(
        "cumulative_sem",
        "its standard error by the random vectors; NaN for one vector",
    ),
    _on_grid(
        "cumulative_low",
        "lower end of an interval of 95 % at least of what the moments leave open and "
        "the random vectors together; NaN for one vector",
    ),
    _on_grid("cumulative_high", "upper end of it"),
)


def fractions_below(
    _: Params, eigenvalues: Array, result: Mapping[str, Array]
) -> dict[str, Array]:
    """Return what a cumulative density at a grid truly is, if it is of all of them."""
    below = np.searchsorted(np.sort(eigenvalues), result["grid"], side="right")
    return {"cumulative": below / len(eigenvalues)}


KIND = Kind(
    name="probe.maxent",
    version=1,
    summary="Spectral density of largest entropy that has measured moments.",
    params=MaxentParams,
    returns=Density,
    outputs=(
        Variable(
            "grid", "nodes at which the density is given", ("point",), series=True
        ),
        Variable("density", "of integral 1 over the support", ("point",), series=True),
        Variable(
            "mass", "of each point of the grid, of sum 1", ("point",), series=True
        ),
        _judged("entropy", "differential entropy, -int q log q"),
        _judged("kl", "relative entropy with respect to the prior"),
        _judged(
            "dual",
            "-kl less half the squared misfit in standard errors; falls as moments are "
            "added",
        ),
        Variable("order", "1 .. K", ("order",), dtype="int64", series=True),
        Variable("multipliers", "alpha of each order", ("order",), series=True),
        Variable(
            "slack", "moment of the density less that given", ("order",), series=True
        ),
        Variable("strain", "largest slack in standard errors"),
        Variable("residual", "largest entry of the gradient that is to vanish"),
        Variable(
            "feasible",
            "whether the moments are met within 6 standard errors, as those of a "
            "density on the support are",
            dtype="bool",
        ),
        Variable(
            "noisy",
            "whether errors of the moments, not their number, limit the density: more "
            "than half are below twice their standard error",
            dtype="bool",
        ),
        Variable("converged", "whether the residual is within 1e-9", dtype="bool"),
        Variable("iterations", "Newton steps, or rounds", dtype="int64"),
        *(
            replace(atom, description=atom.description.replace("deflate", "apart"))
            for atom in ATOMS
        ),
        Variable("size", "dimension of the operator, D", dtype="int64"),
        _kept("basis", "polynomials of the multipliers", dtype="str"),
        _kept("basis_support", "interval that they are taken over", "end"),
        _kept("prior", "density where moments say nothing", dtype="str"),
        _kept("support", "interval of the density", "end"),
        _kept(
            "multipliers_covariance",
            "covariance of the multipliers that comes from the random vectors, to "
            "first order; NaN for one vector",
            "order",
            "order_2",
        ),
        _on_grid(
            "density_sem",
            "standard error of the density by the random vectors, to first order; NaN "
            "for one vector",
        ),
        *INTERVAL,
        *CUMULATIVE,
        NUM_DRAWS,
    ),
    main=("entropy", "kl"),
    inputs={"moments": Input(Moments, lacking=_unfit_moments)},
    null_takes={"support": "moments"},
    vectorised=False,
    truth=fractions_below,
)

EXPLANATION = Explanation(
    formula=(
        "q = q₀ exp(-α.f) / Z, α least of log ∫ q₀ exp(-α.f) + α.μ + ½ ‖s α‖², μ "
        "the moments and s their errors"
    ),
    source="Granziol (2020), Algorithm 1, with differences that the page lists",
    cost="none: moments are read; Newton steps on num_points nodes",
    example=TRAINED
    + """\
  moments: {use: probe.moments, weights: fit, num_moments: 10, num_probes: 10}
  density: {use: probe.maxent, moments: moments}
""",
    page="moments.md#density-of-largest-entropy",
    units={
        "num_points": "point",
        "error_floor": "as the moments",
        "max_iterations": "step",
    },
)
