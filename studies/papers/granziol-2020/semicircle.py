"""Moments of the semicircle, exact; `figure-3.2.yaml` uses them."""

import numpy as np
from pydantic import Field

import curvflow


class Semicircle(curvflow.Params):
    """Radius, and the number of moments."""

    radius: float = Field(gt=0, description="half of the support")
    num_moments: int = Field(ge=2, description="highest order, K")


@curvflow.stage(
    "probe.semicircle",
    version=1,
    returns=curvflow.Moments,
    outputs=[
        curvflow.Variable("moments", "means of T_k over the support", ("order",)),
        curvflow.Variable("moments_covariance", "none", ("order", "order_2")),
        curvflow.Variable("basis", "chebyshev", dtype="str"),
        curvflow.Variable("support", "from -radius to radius", ("end",)),
        curvflow.Variable("size", "1, as a law is of no matrix", dtype="int64"),
    ],
)
def semicircle(params: Semicircle) -> dict[str, np.ndarray]:
    """Moments of sin^2 by cos k: of order 0 they are 1, of order 2 -1/2, others 0."""
    moments = np.zeros(params.num_moments + 1)
    moments[[0, 2]] = 1.0, -0.5
    return {
        "moments": moments,
        "moments_covariance": np.zeros((len(moments), len(moments))),
        "basis": np.array("chebyshev"),
        "support": np.array([-params.radius, params.radius]),
        "size": np.array(1),
    }
