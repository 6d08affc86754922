"""Declaration of `probe.moments`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from curvflow.schemas.explanations import TRAINED, Explanation
from curvflow.schemas.kind import Kind, Variable
from curvflow.schemas.kinds.shared.deflation import ATOMS, DeflatedParams
from curvflow.schemas.kinds.shared.operators import UNITS, ritz_inputs
from curvflow.schemas.nodes import Array, Moments
from curvflow.schemas.params import Floats


class MomentsParams(DeflatedParams):
    """Number of moments of the spectrum, and of probe vectors."""

    basis: Literal["power", "chebyshev"] = Field(
        "chebyshev",
        description="polynomials p_k: powers x^k, or Chebyshev's T_k over the support",
    )
    num_moments: int = Field(30, ge=1, description="highest order, K")
    num_probes: int = Field(
        50,
        ge=2,
        description="random vectors, each of K / 2 products; of Ritz data the runs",
    )
    distribution: Literal["rademacher", "gaussian"] = Field(
        "rademacher", description="law of their entries, before they are normalised"
    )
    support: Floats | None = Field(
        None,
        min_length=2,
        max_length=2,
        description="interval that holds the spectrum; null measures one, by "
        "support_steps of Lanczos with a vector of its own",
    )
    support_steps: int = Field(
        20, ge=2, description="products by which the support is measured"
    )

    @model_validator(mode="after")
    def _is_interval(self) -> MomentsParams:
        if self.support is not None and not self.support[0] < self.support[1]:
            raise ValueError(
                f"expected a support that ascends, got {list(self.support)}. "
                "Write the lower end first."
            )
        return self


def _truth(
    params: MomentsParams, eigenvalues: Array, result: Mapping[str, Array]
) -> dict[str, Array]:
    orders, x = np.arange(params.num_moments + 1), eigenvalues[:, None]
    if params.basis == "power":
        return {"moments": (x**orders).mean(0), "trace": eigenvalues.sum()}
    low, high = result["support"]
    inside = (2 * x - (low + high)) / (high - low)
    moments = np.polynomial.chebyshev.chebvander(inside[:, 0], orders[-1]).mean(0)
    return {"moments": moments, "trace": eigenvalues.sum()}


KIND = Kind(
    name="probe.moments",
    version=4,
    summary="Moments of an operator's spectrum, of all orders from one recurrence.",
    params=MomentsParams,
    returns=Moments,
    outputs=(
        Variable("order", "0, 1, ... K", ("order",), dtype="int64"),
        Variable(
            "moments",
            "tr p_k(A) / D; powers in units of the operator to the k",
            ("order",),
        ),
        Variable(
            "moments_sem",
            "standard error, from the moments of twice the order, and beyond the "
            "highest order by pairs of vectors",
            ("order",),
        ),
        Variable("moments_low", "lower ends of intervals of 95 %", ("order",)),
        Variable("moments_high", "upper ends of intervals of 95 %", ("order",)),
        Variable(
            "moments_covariance",
            "covariance of these means over the vectors; NaN for one",
            ("order", "order_2"),
            series=True,
        ),
        Variable(
            "moment_draws",
            "v.p_k(A)v of each unit vector v",
            ("probe", "order"),
            series=True,
        ),
        Variable("num_draws", "vectors averaged", dtype="int64"),
        Variable("basis", "power or chebyshev", dtype="str"),
        Variable("support", "interval of the polynomials", ("end",), units=UNITS),
        Variable("trace", "of the operator, from the first moment", units=UNITS),
        Variable("trace_sem", "standard error of the trace", units=UNITS),
        Variable("trace_low", "lower end of an interval of 95 %", units=UNITS),
        Variable("trace_high", "upper end of an interval of 95 %", units=UNITS),
        *ATOMS,
        Variable("size", "dimension of the operator, D", dtype="int64"),
        Variable(
            "num_matvecs",
            "work: products with the operator; none from Ritz data",
            dtype="int64",
        ),
    ),
    accelerated=True,
    main=("moments", "moments_sem"),
    inputs=ritz_inputs(
        "num_probes",
        "distribution",
        "support_steps",
        orders=lambda params: params.num_moments,
        reads_atoms=True,
    ),
    varying=("seed",),
    truth=_truth,
)

EXPLANATION = Explanation(
    formula=(
        "μ_k = tr p_k(A) / D ≈ mean of v.p_k(A)v over unit vectors v, p_k = x^k or "
        "Chebyshev's T_k"
    ),
    source=(
        "Hutchinson (1989), doi:10.1080/03610918908812806, for the mean over random "
        "vectors"
    ),
    cost=(
        "num_probes · num_moments / 2 products, and support_steps for the support; "
        "none from stored Ritz data"
    ),
    example=TRAINED
    + """\
  moments: {use: probe.moments, weights: fit, num_moments: 20, num_probes: 10}
""",
    page="traces.md#moments",
)
