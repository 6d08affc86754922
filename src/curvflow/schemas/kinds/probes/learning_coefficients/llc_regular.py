"""Declaration of `probe.llc_regular`."""

from __future__ import annotations

from collections.abc import Mapping

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Input, Kind, Variable
from curvflow.schemas.kinds.shared.operators import (
    LOCALIZATION,
    NBETA,
    SAME_LOSS,
    judged,
    no_hessian,
    not_localised,
)
from curvflow.schemas.nodes import Array, Draws, Numbers, Ritz
from curvflow.schemas.params import Params


class LlcRegularParams(Params):
    """There is nothing to choose: the draws settle it."""


def _judged(name: str, description: str) -> Variable:
    return Variable(name, description, judged_by="verdict")


def _truth(
    _: LlcRegularParams, eigenvalues: Array, result: Mapping[str, Array]
) -> dict[str, Array]:
    positive = eigenvalues.clip(0)
    shares = positive / (positive + result["prior_precision"])
    return {"llc_regular": shares.sum() / 2}


KIND = Kind(
    name="probe.llc_regular",
    version=5,
    summary="What the Hessian explains of a learning coefficient, and what not.",
    params=LlcRegularParams,
    returns=Numbers,
    outputs=(
        *judged(
            "llc_regular",
            "half the effective dimension of the Hessian at localization / nbeta: what "
            "llc would be of a quadratic loss; negative eigenvalues count as zero",
            flag="regular_converged",
        ),
        _judged("llc_mean", "as probe.llc measured it"),
        _judged("llc_sem", "its standard error"),
        _judged("llc_singular", "llc_mean - llc_regular: what is not quadratic"),
        _judged("llc_singular_sem", "standard error, of both"),
        _judged("z", "llc_singular in standard errors"),
        Variable(
            "prior_precision",
            "localization / nbeta, which eigenvalues are compared with",
            units="loss / parameter^2",
        ),
        Variable("negative_mass", "fraction of the eigenvalues below zero"),
        Variable(
            "unheld_mass",
            "fraction below -prior_precision: directions that localization does not "
            "hold, along which a quadratic loss would have no posterior",
        ),
        Variable("num_parameters", "rows of the Hessian, d", dtype="int64"),
        NBETA,
        LOCALIZATION,
        Variable("verdict", "on the chains, as probe.llc gave it", dtype="str"),
    ),
    main=("llc_regular", "llc_regular_sem"),
    inputs={
        "draws": Input(Draws, lacking=not_localised),
        "ritz": Input(Ritz, lacking=no_hessian, shares=SAME_LOSS),
    },
    vectorised=False,
    truth=_truth,
)

EXPLANATION = Explanation(
    formula=(
        "½ Σ h / (h + γ / nβ) over the eigenvalues h of the Hessian; llc_singular = "
        "llc_mean - that"
    ),
    source="MacKay (1992), doi:10.1162/neco.1992.4.3.415, for the sum",
    cost="none: draws and Ritz data are read",
    example="""\
study: example
stages:
  xor: {use: data.xor}
  fit: {use: train, data: xor,
        model: {kind: mlp, hidden: [3], activation: tanh},
        rule: {rule: sgd, lr: 0.1}, epochs: 200}
  llc: {use: probe.llc, weights: fit, num_draws: 50,
        num_steps_bw_draws: 5}
  spectrum: {use: probe.spectrum, weights: fit, num_steps: 13}
  regular: {use: probe.llc_regular, draws: llc, ritz: spectrum}
""",
    page="llc.md#what-the-hessian-explains",
)
