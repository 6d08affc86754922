"""Declaration of `probe.free_energy`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import Field

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


class FreeEnergyParams(Params):
    """The prior of Laplace's approximation."""

    prior_precision: float | None = Field(
        None,
        gt=0,
        description="of a normal prior about the weights, 1 / its variance; null takes "
        "the localization of the draws, which is the prior of their wbic",
    )


def _nats(name: str, description: str, **more: Any) -> Variable:
    return Variable(name, description, units="nat", **more)


def _truth(
    _: FreeEnergyParams, eigenvalues: Array, result: Mapping[str, Array]
) -> dict[str, Array]:
    """Return Laplace's approximation alone: the others are of the draws."""
    above = result["num_samples"] * eigenvalues.clip(0) / result["prior_precision"]
    return {"laplace": result["training_loss"] + np.log1p(above).sum() / 2}


KIND = Kind(
    name="probe.free_energy",
    version=5,
    summary="Free energies of a model: WBIC, Laplace, BIC and Watanabe's form.",
    params=FreeEnergyParams,
    returns=Numbers,
    outputs=(
        _nats("training_loss", "n L at the weights, which each of them begins with"),
        _nats(
            "watanabe",
            "n L + llc ln n; wbic, if that is the temperature",
            judged_by="verdict",
        ),
        _nats("watanabe_sem", "standard error, of the draws", judged_by="verdict"),
        _nats(
            "wbic",
            "n E L; lacking unless nbeta is n / ln n",
            optional=True,
            judged_by="verdict",
        ),
        _nats(
            "wbic_sem",
            "standard error, of the draws",
            optional=True,
            judged_by="verdict",
        ),
        *judged(
            "laplace",
            "n L + log det(1 + n H / prior_precision) / 2: minus the log evidence of "
            "the quadratic loss with the prior; negative eigenvalues count as zero",
            unit="nat",
            flag="laplace_converged",
        ),
        _nats("bic", "n L + d / 2 ln n"),
        Variable("prior_precision", "of the prior", units="1 / parameter^2"),
        Variable("negative_mass", "fraction of the eigenvalues below zero"),
        Variable(
            "num_samples",
            "samples of the data of which a label counts, n",
            dtype="int64",
        ),
        Variable("num_parameters", "rows of the Hessian, d", dtype="int64"),
        NBETA,
        LOCALIZATION,
        Variable("verdict", "on the chains, as probe.llc gave it", dtype="str"),
    ),
    main=("laplace", "laplace_sem"),
    inputs={
        "draws": Input(Draws, lacking=not_localised),
        "ritz": Input(Ritz, lacking=no_hessian, shares=SAME_LOSS),
    },
    vectorised=False,
    truth=_truth,
)

EXPLANATION = Explanation(
    formula=(
        "watanabe = n L + llc ln n; laplace = n L + ½ Σ ln(1 + n h / α); bic = n L "
        "+ d/2 ln n"
    ),
    source=(
        "Schwarz (1978), doi:10.1214/aos/1176344136; MacKay (1992), "
        "doi:10.1162/neco.1992.4.3.415; Watanabe (2013), JMLR 14, 867"
    ),
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
  energies: {use: probe.free_energy, draws: llc, ritz: spectrum}
""",
    page="llc.md#free-energies",
    units={"prior_precision": "1 / parameter^2"},
)
