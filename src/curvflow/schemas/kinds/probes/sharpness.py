"""Declaration of `probe.sharpness`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Input, Kind, Variable
from curvflow.schemas.kinds.shared.operators import ModeParams
from curvflow.schemas.nodes import Array, Data, Numbers, Preconditioned

UNITS = "1 / learning rate"


class SharpnessParams(ModeParams):
    """Tolerances of the sharpness and of the critical learning rate."""

    tol: float = Field(
        1e-4, gt=0, lt=1, description="residual allowed relative to the sharpness"
    )
    max_iterations: int = Field(
        300, ge=1, description="products with a block of two vectors at most"
    )
    critical_tol: float = Field(
        0.01, gt=0, lt=1, description="relative error allowed of the critical rate"
    )
    max_passes: int = Field(
        60, ge=1, description="evaluations of the loss at most, for the critical rate"
    )
    seed: int = Field(
        0, ge=0, description="seed of the first block, and of masks in mode train"
    )
    dtype: Literal["float32", "float64"] = Field(
        "float64", description="precision of products and losses"
    )


def _truth(
    _: SharpnessParams, eigenvalues: Array, __: Mapping[str, Array]
) -> dict[str, Array]:
    """Return that of a rule without a preconditioner."""
    return {"sharpness": eigenvalues.max()}


KIND = Kind(
    name="probe.sharpness",
    version=2,
    summary="Sharpness as the learning rule sees it, and how near it is to its edge.",
    params=SharpnessParams,
    returns=Numbers,
    outputs=(
        Variable(
            "sharpness",
            "largest eigenvalue of P^-1/2 H P^-1/2, P the rule's preconditioner and H "
            "the Hessian of the loss; NaN before the first step of an adaptive rule",
            units=UNITS,
            judged_by="converged",
        ),
        Variable("residual", "a bound on its error", units=UNITS, error_of="sharpness"),
        Variable(
            "converged",
            "whether the residual is within tol; true where there is no sharpness",
            dtype="bool",
        ),
        Variable("rule_lr", "learning rate of the rule at this checkpoint"),
        Variable("scaled_sharpness", "rule_lr times sharpness", judged_by="converged"),
        Variable(
            "stable_up_to",
            "the scaled sharpness above which steps grow on a quadratic: 2 for plain "
            "steps, 2 (1 + momentum) for heavy ball",
        ),
        Variable(
            "edge",
            "scaled_sharpness / stable_up_to: 1 is the edge of stability",
            judged_by="converged",
        ),
        Variable(
            "critical_lr",
            "smallest learning rate at which a step along -P^-1 g raises the loss, g "
            "its gradient over all the data",
            judged_by="critical_converged",
        ),
        Variable(
            "critical_sharpness",
            "2 / critical_lr; for a quadratic not above the sharpness",
            units=UNITS,
            judged_by="critical_converged",
        ),
        Variable(
            "critical_converged",
            "whether it was found within tolerance; true where there is none",
            dtype="bool",
        ),
        Variable("num_matvecs", "work: products with the Hessian", dtype="int64"),
        Variable(
            "num_passes",
            "work: evaluations of the loss for the critical rate",
            dtype="int64",
        ),
    ),
    accelerated=True,
    main=("sharpness",),
    inputs={
        "weights": Input(Preconditioned, keeps="keep_preconditioner"),
        "data": Input(Data, follows="weights", by_rows=True),
    },
    varying=("seed",),
    truth=_truth,
)

EXPLANATION = Explanation(
    formula=(
        "λ_max(P^-1/2 H P^-1/2); edge = η λ_max / stable_up_to; critical_lr = least "
        "η with L(w - η P⁻¹g) > L(w)"
    ),
    source=(
        "Cohen et al. (2021), arXiv:2103.00065, and (2022), arXiv:2207.14484; Kalra "
        "et al. (2026), arXiv:2601.16979"
    ),
    cost=(
        "2 products an iteration until the residual is within tol (num_matvecs); "
        "one gradient and num_passes losses for the critical rate"
    ),
    example="""\
study: example
stages:
  digits: {use: data.digits, num_train: 200}
  fit: {use: train, data: digits, model: {kind: mlp, hidden: [8]},
        rule: {rule: sgd, lr: 0.1}, epochs: 5, keep_preconditioner: true}
  sharpness: {use: probe.sharpness, weights: fit}
""",
    page="sharpness.md",
)
