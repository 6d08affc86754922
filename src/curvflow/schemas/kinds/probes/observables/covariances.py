"""Declaration of `probe.covariances`."""

from __future__ import annotations

from pydantic import Field

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Kind
from curvflow.schemas.kinds.shared.observables import (
    Observed,
    average_variables,
    drawn_input,
)
from curvflow.schemas.kinds.shared.operators import NBETA
from curvflow.schemas.nodes import Numbers
from curvflow.schemas.params import Params


class CovariancesParams(Params):
    """Observables of the rows and of the columns."""

    rows: Observed = Field(Observed(), description="observables of the rows")
    columns: Observed | None = Field(
        None, description="observables of the columns; null takes those of the rows"
    )


KIND = Kind(
    name="probe.covariances",
    version=1,
    summary="Covariances of losses of samples, tokens or groups over the posterior.",
    params=CovariancesParams,
    returns=Numbers,
    outputs=(
        *average_variables(
            "covariance",
            "of two losses at the draws",
            ("row", "column"),
            units="loss^2",
        ),
        NBETA,
    ),
    inputs={"draws": drawn_input("rows", "columns")},
    vectorised=False,
)

EXPLANATION = Explanation(
    formula="Cov(ℓᵢ, ℓⱼ) = E ℓᵢ ℓⱼ - E ℓᵢ E ℓⱼ, E over the localised posterior",
    source="the definition; Vehtari et al. (2021), doi:10.1214/20-BA1221, for errors",
    cost="none of the network; a transform of the draws for each pair",
    example="""\
study: example
stages:
  moons: {use: data.two_moons, num_samples: 40}
  fit: {use: train, data: moons,
        model: {kind: mlp, hidden: [3], activation: tanh},
        rule: {rule: sgd, lr: 0.1}, epochs: 50}
  llc: {use: probe.llc, weights: fit, num_draws: 100,
        num_steps_bw_draws: 5, keep_losses: samples}
  covariances: {use: probe.covariances, draws: llc, rows: {by: label}}
""",
    page="observables.md#covariances",
    units={"rows.subsets": "sample", "columns.subsets": "sample"},
)
