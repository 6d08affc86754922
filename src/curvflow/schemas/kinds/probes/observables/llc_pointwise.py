"""Declaration of `probe.llc_pointwise`."""

from __future__ import annotations

from pydantic import Field

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Kind, Variable
from curvflow.schemas.kinds.shared.observables import (
    Observed,
    average_variables,
    drawn_input,
)
from curvflow.schemas.kinds.shared.operators import LOCALIZATION, NBETA
from curvflow.schemas.nodes import Numbers
from curvflow.schemas.params import Params


class LlcPointwiseParams(Params):
    """Observables among which the coefficient is divided."""

    observables: Observed = Field(
        Observed(), description="losses of samples, tokens or groups"
    )


KIND = Kind(
    name="probe.llc_pointwise",
    version=1,
    summary="Learning coefficient by samples, tokens or groups, whose mean it is.",
    params=LlcPointwiseParams,
    returns=Numbers,
    outputs=(
        *average_variables(
            "llc",
            "nbeta (E loss - loss at the weights); over all training samples its mean "
            "is llc_mean",
            ("observable",),
            units="1",
        ),
        Variable(
            "init_loss",
            "loss at the weights",
            ("observable",),
            units="loss",
            series=True,
        ),
        NBETA,
        LOCALIZATION,
    ),
    inputs={"draws": drawn_input("observables")},
    vectorised=False,
)

EXPLANATION = Explanation(
    formula="λᵢ = nβ (E ℓᵢ(w) - ℓᵢ(w*)); over all training samples (1/n) Σ λᵢ = λ̂",
    source=(
        "Lau et al. (2023), arXiv:2308.12108, equation 20, sample by sample; Vehtari "
        "et al. (2021), doi:10.1214/20-BA1221, for errors"
    ),
    cost="none of the network; a transform of the draws for each observable",
    example="""\
study: example
stages:
  moons: {use: data.two_moons, num_samples: 40}
  fit: {use: train, data: moons,
        model: {kind: mlp, hidden: [3], activation: tanh},
        rule: {rule: sgd, lr: 0.1}, epochs: 50}
  llc: {use: probe.llc, weights: fit, num_draws: 100,
        num_steps_bw_draws: 5, keep_losses: labels}
  by_label: {use: probe.llc_pointwise, draws: llc}
""",
    page="observables.md#the-coefficient-of-each-sample",
    units={"observables.subsets": "sample"},
)
