"""Declaration of `probe.influence`."""

from __future__ import annotations

from pydantic import Field

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Kind, Variable
from curvflow.schemas.kinds.shared.observables import (
    Observed,
    average_variables,
    drawn_input,
)
from curvflow.schemas.kinds.shared.operators import NBETA
from curvflow.schemas.nodes import Numbers
from curvflow.schemas.params import Params


class InfluenceParams(Params):
    """Training samples, and the losses that they influence."""

    samples: Observed = Field(
        Observed(), description="losses whose weight in the posterior is raised"
    )
    queries: Observed = Field(
        Observed(split="test"), description="losses that respond to it"
    )


KIND = Kind(
    name="probe.influence",
    version=1,
    summary="Bayesian influence of samples on the losses of others.",
    params=InfluenceParams,
    returns=Numbers,
    outputs=(
        *average_variables(
            "influence",
            "minus the covariance of the two losses at the draws: the change of the "
            "query's mean loss per inverse temperature of the sample; negative if the "
            "sample helps",
            ("sample", "query"),
            units="loss^2",
        ),
        NBETA,
        Variable("num_samples", "samples of the data, n", dtype="int64"),
    ),
    inputs={"draws": drawn_input("samples", "queries")},
    vectorised=False,
)

EXPLANATION = Explanation(
    formula=(
        "BIF(i, j) = ∂E ℓⱼ / ∂βᵢ = -Cov(ℓᵢ, ℓⱼ) under p(w) ∝ exp(-Σ βᵢ ℓᵢ(w) - "
        "γ/2 ‖w - w*‖²), every βᵢ nβ / n"
    ),
    source=(
        "Kreer et al. (2025), arXiv:2509.26544, the local Bayesian influence function; "
        "Vehtari et al. (2021), doi:10.1214/20-BA1221, for errors"
    ),
    cost="none of the network; a transform of the draws for each pair",
    example="""\
study: example
stages:
  moons: {use: data.two_moons, num_samples: 40}
  fit: {use: train, data: moons,
        model: {kind: mlp, hidden: [3], activation: tanh},
        rule: {rule: sgd, lr: 0.1}, epochs: 50}
  llc: {use: probe.llc, weights: fit, num_draws: 100,
        num_steps_bw_draws: 5, keep_losses: samples, observed: both}
  influence: {use: probe.influence, draws: llc,
              queries: {split: test, by: all}}
""",
    page="observables.md#influence",
    units={"samples.subsets": "sample", "queries.subsets": "sample"},
)
