"""Declaration of `probe.hessian_variance`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal

from pydantic import Field

from curvflow.schemas.checks.samples import too_few_for_batches
from curvflow.schemas.explanations import TRAINED, Explanation
from curvflow.schemas.kind import Input, Kind, Variable
from curvflow.schemas.kinds.shared.operators import NetworkModeParams
from curvflow.schemas.nodes import Array, Data, Numbers, Weights

UNITS = "(loss / parameter^2)^2"


class HessianVarianceParams(NetworkModeParams):
    """Of which matrix, over which batches, along how many vectors."""

    operator: Literal["hessian", "ggn"] = Field(
        "hessian", description="of the mean training loss: hessian or ggn"
    )
    batch_size: int = Field(
        1,
        ge=1,
        description="samples per batch multiplied, B; more cost less accuracy; in "
        "mode train they meet in it",
    )
    num_batches: int | None = Field(
        None,
        ge=2,
        description="disjoint batches multiplied for each vector; null takes all",
    )
    num_probes: int = Field(
        16, ge=2, description="random vectors, each with batches of its own"
    )
    distribution: Literal["rademacher", "gaussian"] = Field(
        "rademacher", description="law of their entries"
    )
    seed: int = Field(
        0, ge=0, description="seed of vectors and batches, and of masks in mode train"
    )
    dtype: Literal["float32", "float64"] = Field(
        "float64", description="precision of the products"
    )


def _truth(
    params: HessianVarianceParams, samples: Array, _: Mapping[str, Array]
) -> dict[str, Array]:
    if params.mode == "train":  # matrices of samples that met are others
        return {}
    return {
        "hessian_variance": samples.var(0, ddof=1).sum(),
        "squared_mean": (samples.mean(0) ** 2).sum(),
    }


KIND = Kind(
    name="probe.hessian_variance",
    version=5,
    summary="Variance of the Hessian or GGN between samples and between batches.",
    params=HessianVarianceParams,
    returns=Numbers,
    outputs=(
        Variable(
            "hessian_variance",
            "sum over entries of the variance between samples, S^2, of divisor N - 1; "
            "unbiased",
            units=UNITS,
        ),
        Variable("hessian_variance_sem", "standard error", units=UNITS),
        Variable(
            "hessian_variance_low", "lower end of an interval of 95 %", units=UNITS
        ),
        Variable(
            "hessian_variance_high", "upper end of an interval of 95 %", units=UNITS
        ),
        Variable(
            "hessian_variance_draws",
            "of each vector and its batches",
            ("probe",),
            units=UNITS,
            series=True,
        ),
        Variable(
            "hessian_variance_per_parameter",
            "S^2 / D: what noise of independent entries adds to the largest eigenvalue "
            "of a batch, times the eigenvalue and the batch size",
            units=UNITS,
        ),
        Variable(
            "batch_hessian_variance",
            "S^2 of the mean over a batch, drawn without replacement: (1/B - 1/N) S^2",
            units=UNITS,
        ),
        Variable(
            "squared_mean",
            "||A||_F^2 of the matrix over all samples; unbiased",
            units=UNITS,
        ),
        Variable("squared_mean_sem", "standard error", units=UNITS),
        Variable(
            "squared_mean_low",
            "lower end of an interval of 95 %",
            units=UNITS,
            optional=True,
        ),
        Variable(
            "squared_mean_high",
            "upper end of an interval of 95 %",
            units=UNITS,
            optional=True,
        ),
        Variable("num_draws", "vectors averaged", dtype="int64"),
        Variable(
            "num_matvecs",
            "work: products with the matrix of a batch",
            dtype="int64",
        ),
    ),
    accelerated=True,
    main=("hessian_variance", "hessian_variance_sem"),
    inputs={
        "weights": Input(Weights),
        "data": Input(
            Data,
            follows="weights",
            by_rows=True,
            lacking=partial(too_few_for_batches, least=2),
        ),
    },
    varying=("seed",),
    truth=_truth,
    truth_of="samples",
)

EXPLANATION = Explanation(
    formula=(
        "S² = Σ_jk Var(∂²ℓ/∂w_j∂w_k) over samples, as the mean over z of B Σ_b ‖H_b "
        "z - mean_b H_b z‖² / (K - 1)"
    ),
    source="Granziol (2020), Algorithm 8, corrected, see the page",
    cost=(
        "num_probes · num_batches products with a batch's matrix; over all batches "
        "that is num_probes products over the data"
    ),
    example=TRAINED
    + """\
  noise: {use: probe.hessian_variance, weights: fit, num_probes: 8,
          num_batches: 50}
""",
    page="traces.md#variances-between-samples",
)
