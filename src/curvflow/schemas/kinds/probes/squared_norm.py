"""Declaration of `probe.squared_norm`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from curvflow.schemas.explanations import TRAINED, Explanation
from curvflow.schemas.kind import Kind, Variable
from curvflow.schemas.kinds.shared.vectors import VectorsParams, vector_inputs
from curvflow.schemas.nodes import Array, Numbers
from curvflow.schemas.params import Neutral

UNITS = "(loss / parameter^2)^2"


class SquaredNormParams(VectorsParams):
    """Vectors and batches, and the error at which they end."""

    num_batches: Annotated[int, Neutral(8)] = Field(
        8,
        ge=2,
        description="disjoint batches for each vector, of probes_per batch; more cost "
        "less error of their choice",
    )


def _truth(
    _: SquaredNormParams, eigenvalues: Array, __: Mapping[str, Array]
) -> dict[str, Array]:
    return {"squared_norm": (eigenvalues**2).sum()}


KIND = Kind(
    name="probe.squared_norm",
    version=1,
    summary="Squared Frobenius norm of a curvature operator, to an asked error.",
    params=SquaredNormParams,
    returns=Numbers,
    outputs=(
        Variable(
            "squared_norm",
            "||A||_F^2, the sum of the squares of the eigenvalues; unbiased",
            units=UNITS,
        ),
        Variable("squared_norm_sem", "standard error", units=UNITS),
        Variable("squared_norm_low", "lower end of an interval of 95 %", units=UNITS),
        Variable("squared_norm_high", "upper end of an interval of 95 %", units=UNITS),
        Variable(
            "squared_norm_draws",
            "of each vector, and of its batches",
            ("probe",),
            units=UNITS,
            series=True,
        ),
        Variable("num_draws", "vectors averaged", dtype="int64"),
        Variable("reached", "whether the error is as small as rel_sem", dtype="bool"),
        Variable(
            "num_matvecs",
            "work: products with the operator; of batches, rounded up to as many over "
            "all data",
            dtype="int64",
        ),
    ),
    accelerated=True,
    main=("squared_norm", "squared_norm_sem"),
    inputs=vector_inputs("num_batches"),
    varying=("seed",),
    truth=_truth,
)

EXPLANATION = Explanation(
    formula=(
        "‖A‖_F² = tr A² ≈ (1/S) Σ ‖Az‖²; per batch: the mean of A_b z·A_c z over pairs "
        "of batches b ≠ c of a vector's own, with what samples have with themselves"
    ),
    source=(
        "Hutchinson (1989), doi:10.1080/03610918908812806, of A²; Hoeffding (1948), "
        "doi:10.1214/aoms/1177730196, for pairs of batches"
    ),
    cost=(
        "num_probes products; per batch, as many with the matrix of batch_size · "
        "num_batches samples; with rel_sem up to max_probes"
    ),
    example=TRAINED
    + """\
  norm: {use: probe.squared_norm, weights: fit, operator: ggn, rel_sem: 0.1}
""",
    page="traces.md#the-squared-norm",
)
