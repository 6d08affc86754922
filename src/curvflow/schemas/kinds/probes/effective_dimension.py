"""Declaration of `probe.effective_dimension`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import numpy as np
from pydantic import Field, PositiveFloat

from curvflow.schemas.explanations import TRAINED, Explanation
from curvflow.schemas.kind import Kind, Variable
from curvflow.schemas.kinds.shared.operators import (
    UNITS,
    RefinedParams,
    judged,
    ritz_inputs,
)
from curvflow.schemas.nodes import Array, Numbers


class EffectiveDimensionParams(RefinedParams):
    """At which prior precisions, and the runs of Lanczos unless they are stored."""

    prior_precision: Annotated[
        tuple[PositiveFloat, ...], Field(strict=False, min_length=1)
    ] = Field(
        (1e-4, 1e-3, 1e-2, 0.1, 1.0),
        description="numbers in units of the eigenvalues: a prior's precision divided "
        "by the number of samples, as the loss is their mean",
    )


def _truth(
    params: EffectiveDimensionParams, eigenvalues: Array, _: Mapping[str, Array]
) -> dict[str, Array]:
    positive = eigenvalues.clip(0)
    alphas = np.array(params.prior_precision)[:, None]
    return {"effective_dimension": (positive / (positive + alphas)).sum(1)}


KIND = Kind(
    name="probe.effective_dimension",
    version=4,
    summary="Effective dimension, sum of lambda / (lambda + prior precision).",
    params=EffectiveDimensionParams,
    returns=Numbers,
    outputs=(
        Variable("prior_precision", "as given", ("prior_precision",), units=UNITS),
        *judged(
            "effective_dimension",
            "sum over the eigenvalues; negative ones count as zero",
            ("prior_precision",),
        ),
        Variable(
            "effective_dimension_draws",
            "estimate of each run",
            ("prior_precision", "run"),
            series=True,
        ),
        Variable("size", "rows of the matrix, D: the most it can be", dtype="int64"),
        Variable(
            "num_matvecs",
            "work: products made here, none from stored Ritz data",
            dtype="int64",
        ),
    ),
    accelerated=True,
    main=("effective_dimension", "effective_dimension_sem"),
    inputs=ritz_inputs("num_runs", "num_steps", "distribution", "rel_error"),
    varying=("seed",),
    truth=_truth,
)

EXPLANATION = Explanation(
    formula=(
        "Σ max(λ, 0) / (max(λ, 0) + α), α each prior_precision; by quadrature D Σ τ "
        "θ / (θ + α) over Ritz values θ and weights τ"
    ),
    source="MacKay (1992), doi:10.1162/neco.1992.4.3.415",
    cost=(
        "none from stored Ritz data, else num_runs · num_steps products; with "
        "rel_error more where they are needed"
    ),
    example=TRAINED
    + """\
  spectrum: {use: probe.spectrum, weights: fit, num_runs: 5, num_steps: 40}
  dimension: {use: probe.effective_dimension, ritz: spectrum,
              prior_precision: [1.0e-3, 0.01]}
""",
    page="spectrum.md#effective-dimension",
    units={"prior_precision": "as the eigenvalues"},
)
