"""Declaration of `probe.susceptibility`."""

from __future__ import annotations

from pydantic import Field

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Kind
from curvflow.schemas.kinds.shared.observables import (
    Observed,
    average_variables,
    drawn_input,
)
from curvflow.schemas.kinds.shared.operators import LOCALIZATION, NBETA
from curvflow.schemas.nodes import Numbers
from curvflow.schemas.params import Params


class SusceptibilityParams(Params):
    """Shifts of the data, and the observables that respond."""

    shifts: Observed = Field(
        Observed(),
        description="samples towards which the weights of the data are shifted",
    )
    observables: Observed | None = Field(
        None,
        description="losses that respond, after the loss over all data, which is "
        "always the first; null takes that alone",
    )


KIND = Kind(
    name="probe.susceptibility",
    version=1,
    summary="Response of losses to a shift of the weights of the data.",
    params=SusceptibilityParams,
    returns=Numbers,
    outputs=(
        *average_variables(
            "susceptibility",
            "derivative of the observable's mean by the part h of the data's weight "
            "that is moved to the samples of the shift",
            ("observable", "shift"),
            units="loss",
        ),
        NBETA,
        LOCALIZATION,
    ),
    inputs={"draws": drawn_input("shifts", "observables", is_full=True)},
    vectorised=False,
)

EXPLANATION = Explanation(
    formula=(
        "χ = dE φ / dh at h = 0 under nβ ((1 - h) L + h Lₛ) = -nβ Cov(φ, Lₛ - L), Lₛ "
        "the mean loss over the samples of the shift"
    ),
    source=(
        "Baker et al. (2025), arXiv:2504.18274, who divide by nβ; Vehtari et al. "
        "(2021), doi:10.1214/20-BA1221, for errors"
    ),
    cost="none of the network; a transform of the draws for each pair",
    example="""\
study: example
stages:
  moons: {use: data.two_moons, num_samples: 40}
  fit: {use: train, data: moons,
        model: {kind: mlp, hidden: [3], activation: tanh},
        rule: {rule: sgd, lr: 0.1}, epochs: 50}
  llc: {use: probe.llc, weights: fit, num_draws: 100, layers: [layer1.*],
        num_steps_bw_draws: 5, keep_losses: samples}
  responses: {use: probe.susceptibility, draws: llc, shifts: {by: label}}
""",
    page="observables.md#susceptibilities",
    units={"shifts.subsets": "sample", "observables.subsets": "sample"},
)
