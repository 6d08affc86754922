"""Declaration of `probe.eigenvalue_tracking`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from pydantic import Field

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Input, Kind, Variable
from curvflow.schemas.kinds.probes.extremes.eigenvalues import (
    EigenvaluesParams,
    most_wanted,
)
from curvflow.schemas.kinds.shared.operators import (
    OF_GRAPHS,
    UNITS,
    no_operator_of_weights,
)
from curvflow.schemas.nodes import Array, Data, Numbers, Trajectory


class EigenvalueTrackingParams(EigenvaluesParams):
    """The same as for one checkpoint, and how the next one begins."""

    warm_start: bool = Field(
        True,
        description="whether to begin each checkpoint with the eigenvectors of the one "
        "before, and a thousandth of random directions; false begins each anew",
    )


def _by_rank(
    name: str, description: str, units: str = UNITS, dtype: str = "float64"
) -> Variable:
    return Variable(
        name,
        description,
        ("checkpoint", "rank"),
        units=units,
        dtype=dtype,
        series=True,
    )


def _truth(
    params: EigenvalueTrackingParams, checkpoints: Array, _: Mapping[str, Array]
) -> dict[str, Array]:
    wanted = [most_wanted(params, eigenvalues) for eigenvalues in checkpoints]
    return {"eigenvalues": np.stack(wanted)}


KIND = Kind(
    name="probe.eigenvalue_tracking",
    version=1,
    summary="Extreme eigenvalues along training, each checkpoint from the one before.",
    params=EigenvalueTrackingParams,
    returns=Numbers,
    outputs=(
        Variable(
            "checkpoint",
            "epochs whose weights are looked at",
            ("checkpoint",),
            dtype="int64",
            units="epoch",
            series=True,
        ),
        Variable("rank", "1 is the most wanted", ("rank",), dtype="int64", series=True),
        replace(_by_rank("eigenvalues", "signed eigenvalues"), judged_by="converged"),
        replace(
            _by_rank("residuals", "||Hv - lambda v||, a bound on the error"),
            error_of="eigenvalues",
        ),
        _by_rank("converged", "whether the residual is within tol", "1", "bool"),
        Variable(
            "checkpoint_matvecs",
            "work: products with the matrix at each checkpoint",
            ("checkpoint",),
            dtype="int64",
            series=True,
        ),
        Variable("num_matvecs", "work: products at all checkpoints", dtype="int64"),
        Variable("all_converged", "whether all residuals are within tol", dtype="bool"),
        Variable(
            "eigenvectors",
            "unit eigenvectors, if requested",
            ("checkpoint", "rank", "parameter"),
            bulk=True,
            optional=True,
        ),
    ),
    accelerated=True,
    inputs={
        "trajectory": Input(
            Trajectory, settles=OF_GRAPHS, lacking=no_operator_of_weights
        ),
        "data": Input(Data, follows="trajectory", by_rows=True),
    },
    varying=("seed",),
    truth=_truth,
    truth_of="checkpoints",
)

EXPLANATION = Explanation(
    formula=(
        "A v = λ v at every checkpoint, begun with the eigenvectors v of the "
        "checkpoint before"
    ),
    source="the methods of probe.eigenvalues; see there",
    cost=(
        "products of one block times its columns at each checkpoint, until the "
        "residuals are within tol (checkpoint_matvecs)"
    ),
    example="""\
study: example
stages:
  digits: {use: data.digits, num_train: 200}
  fit: {use: train, data: digits, model: {kind: mlp, hidden: [8]},
        rule: {rule: sgd, lr: 0.1}, epochs: 10, checkpoints: {every: 2}}
  tracked: {use: probe.eigenvalue_tracking, trajectory: fit, method: lanczos,
            k: 2}
""",
    page="spectrum.md#few-eigenvalues",
)
