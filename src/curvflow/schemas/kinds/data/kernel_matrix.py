"""Declaration of `data.kernel_matrix`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Kind
from curvflow.schemas.kinds.shared.datasets import MATRIX_OUTPUTS
from curvflow.schemas.nodes import Matrix
from curvflow.schemas.params import Params


class KernelMatrixParams(Params):
    """The points, the function of two of them, and how it is stored."""

    kernel: Literal["squared_exponential", "exponential", "matern32", "matern52"] = (
        Field(
            "squared_exponential",
            description="of r, the distance over length_scale: exp(-r^2 / 2), exp(-r), "
            "(1 + s) exp(-s) with s = r sqrt(3), (1 + s + s^2 / 3) exp(-s) with s = r "
            "sqrt(5)",
        )
    )
    length_scale: float = Field(0.5, gt=0, description="in units of the points")
    noise: float = Field(1e-8, ge=0, description="added to the diagonal")
    num_points: int = Field(1000, ge=2, description="rows of the matrix, D")
    dimension: int = Field(6, ge=1, description="coordinates of a point")
    points: Literal["uniform", "normal"] = Field(
        "uniform", description="law of the coordinates: on (0, 1), or N(0, 1)"
    )
    form: Literal["dense", "kernel"] = Field(
        "dense", description="dense holds every entry; kernel computes them as needed"
    )
    seed: int = Field(0, ge=0, description="seed of the points")

    @property
    def rows(self) -> int:
        """Rows of the matrix, D."""
        return self.num_points


KIND = Kind(
    name="data.kernel_matrix",
    version=1,
    summary="Kernel matrix of random points, as entries or as products only.",
    params=KernelMatrixParams,
    returns=Matrix,
    outputs=MATRIX_OUTPUTS,
    varying=("seed",),
)

EXPLANATION = Explanation(
    formula="Aᵢⱼ = k(|xᵢ - xⱼ| / length_scale) + noise [i = j], of random points x",
    source="Granziol (2020), chapter 2, compares log-determinants of such matrices",
    cost=(
        "none: D² evaluations of k for form: dense; for form: kernel they are made "
        "anew in each product"
    ),
    example="""\
study: example
stages:
  kernel: {use: data.kernel_matrix, kernel: matern52, num_points: 300,
           noise: 1.0e-4}
  logdet: {use: probe.logdet, matrix: kernel, rank: 60}
""",
    page="moments.md#matrices-as-data",
    units={
        "length_scale": "as the points",
        "noise": "as the entries",
        "num_points": "point",
        "dimension": "coordinate",
    },
)
