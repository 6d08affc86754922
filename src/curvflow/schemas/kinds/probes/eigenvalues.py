"""Declaration of `probe.eigenvalues`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curvflow.schemas.kind import Input, Kind
from curvflow.schemas.nodes import Data, Numbers, Weights
from curvflow.schemas.params import Params
from curvflow.schemas.variables import Variable

UNITS = "loss / parameter^2"


class EigenvaluesParams(Params):
    """How many eigenvalues, and when they count as found."""

    k: int = Field(3, ge=1, description="eigenvalues of largest magnitude wanted")
    oversampling: int = Field(
        8, ge=0, description="further columns iterated, for faster convergence"
    )
    tol: float = Field(
        1e-6, gt=0, lt=1, description="residual allowed relative to the eigenvalue"
    )
    max_iterations: int = Field(500, ge=1, description="products with the block")
    seed: int = Field(0, ge=0, description="seed of the first block")
    dtype: Literal["float32", "float64"] = Field(
        "float64", description="precision of the products"
    )


KIND = Kind(
    name="probe.eigenvalues",
    version=1,
    summary="Largest Hessian eigenvalues by magnitude, by block power iteration.",
    params=EigenvaluesParams,
    returns=Numbers,
    outputs=(
        Variable("rank", "1 is the largest magnitude", ("rank",), dtype="int64"),
        Variable("eigenvalues", "signed eigenvalues", ("rank",), units=UNITS),
        Variable(
            "residuals",
            "||Hv - lambda v||, a bound on the error",
            ("rank",),
            units=UNITS,
        ),
        Variable(
            "converged", "whether the residual is within tol", ("rank",), dtype="bool"
        ),
        Variable("iterations", "products with the block", dtype="int64"),
        Variable("num_matvecs", "work: products with the Hessian", dtype="int64"),
    ),
    accelerated=True,
    inputs={"weights": Input(Weights), "data": Input(Data, follows="weights")},
    varying=("seed",),
)
