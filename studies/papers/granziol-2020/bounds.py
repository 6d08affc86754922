"""Bounds of Lanczos and of the power method on the largest eigenvalue.

`table-4.5.yaml` uses it.
"""

import math

from pydantic import Field

import curvflow


class Bounds(curvflow.Params):
    """Eigenvalues and steps."""

    gap: float = Field(gt=1, description="largest eigenvalue over the second")
    steps: int = Field(ge=2, description="steps of either method, m")


@curvflow.stage(
    "probe.bounds",
    version=1,
    outputs=[
        curvflow.Variable("lanczos", "bound on the error of Lanczos"),
        curvflow.Variable("power", "bound on the error of the power method"),
        curvflow.Variable("ratio", "the former over the latter"),
    ],
)
def bounds(params: Bounds) -> dict[str, float]:
    """Factors of (λ₁ - λ_n) tan² in equations 4.5 and 4.6, λ_n being 0."""
    # The numbers printed have the exponent 2 (m - 1), equation 4.6 has 2 m - 1.
    order = params.steps - 1
    chebyshev = math.cosh(order * math.acosh(2 * params.gap - 1))
    lanczos, power = chebyshev**-2, params.gap ** (-2 * order)
    return {"lanczos": lanczos, "power": power, "ratio": lanczos / power}
