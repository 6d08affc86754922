"""Declaration of `probe.dense`."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from curvflow.schemas.explanations import TRAINED, Explanation
from curvflow.schemas.kind import Kind, Variable
from curvflow.schemas.kinds.shared.operators import (
    FORMED_INPUTS,
    UNITS,
    OperatorParams,
)
from curvflow.schemas.nodes import Ritz


class DenseParams(OperatorParams):
    """Largest matrix that is formed, and the damping of its determinant."""

    max_size: int = Field(
        2000, ge=1, description="largest dimension formed; beyond it is refused"
    )
    damping: float = Field(
        0.0, ge=0, description="added to every eigenvalue, for the log-determinant"
    )
    zero_width: float = Field(
        1e-3,
        gt=0,
        lt=1,
        description="magnitude up to which an eigenvalue counts as zero, relative to "
        "the largest magnitude",
    )


def _ritz(name: str, description: str, units: str = "1") -> Variable:
    return Variable(name, description, ("run", "node"), units=units, series=True)


KIND = Kind(
    name="probe.dense",
    version=1,
    summary="All eigenvalues of a small operator from its dense matrix: exact.",
    params=DenseParams,
    returns=Ritz,
    outputs=(
        Variable(
            "eigenvalues", "all, ascending", ("eigenvalue",), units=UNITS, series=True
        ),
        Variable("trace", "sum of the eigenvalues", units=UNITS),
        Variable("frobenius", "root of the sum of their squares", units=UNITS),
        Variable("least", "smallest eigenvalue", units=UNITS),
        Variable("greatest", "largest eigenvalue", units=UNITS),
        Variable(
            "logdet", "log-determinant with damping; NaN if not positive definite"
        ),
        Variable(
            "positive_definite", "whether all are positive with damping", dtype="bool"
        ),
        Variable("zero_mass", "fraction of the eigenvalues that count as zero"),
        Variable("negative_mass", "fraction below minus the threshold"),
        _ritz("ritz_values", "the eigenvalues, as a single run", UNITS),
        _ritz("ritz_weights", "1 / D each"),
        replace(
            _ritz("ritz_residuals", "rounding of the decomposition", UNITS),
            error_of="ritz_values",
        ),
        Variable("size", "dimension of the operator, D", dtype="int64"),
        Variable("num_matvecs", "work: products with the operator", dtype="int64"),
    ),
    accelerated=True,
    main=("trace", "least", "greatest"),
    inputs=FORMED_INPUTS,
    varying=("seed",),
)

EXPLANATION = Explanation(
    formula=(
        "λ₁ … λ_D of A, its columns the products with the identity; logdet = Σ "
        "ln(λᵢ + damping)"
    ),
    source="none: a decomposition of the whole matrix",
    cost="D products, and D³ operations for the eigenvalues",
    example=TRAINED
    + """\
  exact: {use: probe.dense, weights: fit}
""",
    page="traces.md#exact-values-of-small-operators",
    units={"damping": "as the eigenvalues"},
)
