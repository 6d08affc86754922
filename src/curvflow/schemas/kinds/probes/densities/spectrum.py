"""Declaration of `probe.spectrum`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from curvflow.schemas.explanations import TRAINED, Explanation
from curvflow.schemas.kind import Kind, Variable
from curvflow.schemas.kinds.shared.deflation import ATOMS, DeflatedParams
from curvflow.schemas.kinds.shared.operators import (
    OPERATOR_INPUTS,
    UNITS,
    LanczosParams,
)
from curvflow.schemas.nodes import Array, Ritz
from curvflow.schemas.params import Neutral


class SpectrumParams(DeflatedParams, LanczosParams):
    """The runs of Lanczos, and what counts as zero."""

    reorthogonalize: Annotated[Literal["full", "none"], Neutral("full")] = Field(
        "full",
        description="full holds all vectors of a run, and keeps them orthogonal; none "
        "holds two, in less time, and finds copies of Ritz values, whose weights "
        "together are that of one",
    )
    zero_width: float = Field(
        1e-3,
        gt=0,
        lt=1,
        description="magnitude up to which an eigenvalue counts as zero, relative to "
        "the Ritz value of largest magnitude",
    )
    degenerate_nodes: int = Field(
        1,
        ge=1,
        description="Ritz values nearest to zero whose weights make up the rank "
        "degeneracy; an indefinite spectrum may split its atom into 2",
    )


def _node(name: str, description: str, units: str = "1") -> Variable:
    return Variable(name, description, ("run", "node"), units=units, series=True)


def _fraction(name: str, of: str) -> tuple[Variable, ...]:
    return (
        Variable(name, f"fraction of the eigenvalues {of}"),
        Variable(f"{name}_sem", f"standard error over the runs of {name}"),
        Variable(f"{name}_low", f"lower end of a 95 % interval of {name}"),
        Variable(
            f"{name}_high",
            "upper end of it; random vectors and quadrature are both allowed for",
        ),
    )


def nearest(eigenvalues: Array, values: Array) -> Array:
    """Return the eigenvalue (D,) that is nearest to each value; any, to NaN."""
    apart = np.abs(np.asarray(values)[..., None] - eigenvalues)
    closest: Array = eigenvalues[apart.argmin(-1)]
    return closest


def _truth(
    _: SpectrumParams, eigenvalues: Array, result: Mapping[str, Array]
) -> dict[str, Array]:
    zero = result["zero_threshold"]
    ritz = ("ritz_values", "largest", "smallest")  # an eigenvalue is near each
    return {
        **{name: nearest(eigenvalues, result[name]) for name in ritz},
        "trace": eigenvalues.sum(),
        "zero_mass": (np.abs(eigenvalues) <= zero).mean(),
        "negative_mass": (eigenvalues < -zero).mean(),
    }


KIND = Kind(
    name="probe.spectrum",
    version=4,
    summary="Spectrum by stochastic Lanczos quadrature, as Ritz values and weights.",
    params=SpectrumParams,
    returns=Ritz,
    outputs=(
        _node("ritz_values", "nodes of each run's rule, ascending; NaN is none", UNITS),
        _node("ritz_weights", "their weights, of sum 1 over a run"),
        replace(
            _node("ritz_residuals", "||Hu - theta u|| of each Ritz vector u", UNITS),
            error_of="ritz_values",
        ),
        Variable(
            "reorthogonalized",
            "false where Ritz values may have copies; only with reorthogonalize none",
            dtype="bool",
            optional=True,
        ),
        *ATOMS,
        Variable("size", "rows of the matrix, D", dtype="int64"),
        Variable("largest", "largest Ritz value, a lower bound", units=UNITS),
        Variable(
            "largest_residual",
            "an eigenvalue is that near",
            units=UNITS,
            error_of="largest",
        ),
        Variable("smallest", "smallest Ritz value, an upper bound", units=UNITS),
        Variable(
            "smallest_residual",
            "an eigenvalue is that near",
            units=UNITS,
            error_of="smallest",
        ),
        Variable("trace", "mean of v.Hv over the runs, times D", units=UNITS),
        Variable("trace_sem", "standard error, from Ritz values", units=UNITS),
        Variable("trace_low", "lower end of an interval of 95 %", units=UNITS),
        Variable("trace_high", "upper end of an interval of 95 %", units=UNITS),
        Variable("zero_threshold", "magnitude that counts as zero", units=UNITS),
        *_fraction("zero_mass", "that count as zero"),
        *_fraction("negative_mass", "below minus the threshold"),
        Variable(
            "rank_degeneracy", "weight of the Ritz values nearest to zero, per run"
        ),
        Variable("rank_degeneracy_sem", "standard error of it over the runs"),
        Variable(
            "rank_degeneracy_value",
            "weighted mean of these Ritz values; far from zero, they are no zeros",
            units=UNITS,
        ),
        Variable("num_matvecs", "work: products with the matrix", dtype="int64"),
    ),
    accelerated=True,
    main=("largest", "smallest", "trace", "trace_sem"),
    inputs=OPERATOR_INPUTS,
    varying=("seed",),
    truth=_truth,
)

EXPLANATION = Explanation(
    formula=(
        "v.f(A)v = Σ τ f(θ), exact for polynomials of degree up to 2m - 1: Ritz "
        "values θ and weights τ of m Lanczos steps from a random unit vector v"
    ),
    source=(
        "Ubaru, Chen and Saad (2017), doi:10.1137/16M1104974; Golub and Meurant "
        "(2010), Matrices, Moments and Quadrature; Granziol (2020), section 5.9.1, "
        "for the rank degeneracy"
    ),
    cost="num_runs · num_steps products, fewer where a run ends early",
    example=TRAINED
    + """\
  spectrum: {use: probe.spectrum, weights: fit, num_runs: 5, num_steps: 40}
  smooth: {use: figure.density, of: spectrum}
""",
    page="spectrum.md",
)
