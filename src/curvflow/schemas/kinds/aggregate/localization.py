"""Declaration of `aggregate.localization`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Input, Kind, Variable
from curvflow.schemas.kinds.shared.operators import LOCALIZATION
from curvflow.schemas.kinds.shared.tables import OneOrMoreNames, failed
from curvflow.schemas.nodes import Hold, Localized
from curvflow.schemas.params import Params


class LocalizationParams(Params):
    """The estimates that share a localization, and the choice among theirs."""

    over: OneOrMoreNames = Field(
        min_length=1, description="axes whose estimates are to be of one localization"
    )
    take: Literal["largest", "median", "smallest"] = Field(
        "largest",
        description="of theirs: largest holds all that need to be held; smaller ones "
        "take less of the coefficients, and may let chains escape",
    )


def _count(name: str, description: str) -> Variable:
    return Variable(name, description, ("quantity",), dtype="int64")


def _gamma(name: str, description: str) -> Variable:
    return Variable(name, description, ("quantity",), units=LOCALIZATION.units)


KIND = Kind(
    name="aggregate.localization",
    version=1,
    summary="One localization for several estimates, of those that they chose.",
    params=LocalizationParams,
    returns=Hold,
    outputs=(
        Variable("quantity", "always localization", ("quantity",), dtype="str"),
        _gamma("localization", "gamma, the one taken"),
        _gamma("smallest", "least of theirs"),
        _gamma("largest", "largest of theirs"),
        _count("count", "estimates that have one, n"),
        _count("diverged", "estimates left out because all their chains failed"),
        failed(),
    ),
    inputs={"of": Input(Localized, many=True)},
    reduces=("over",),
    vectorised=False,
)

EXPLANATION = Explanation(
    formula="largest, median or least of n localizations",
    source="none: coefficients are compared at one localization",
    cost="none: stored numbers are read",
    example="""\
study: example
axes: {seed: 2}
stages:
  xor: {use: data.xor}
  fit: {use: train, data: xor, seed: "${seed}",
        model: {kind: mlp, hidden: [3], activation: tanh},
        rule: {rule: sgd, lr: 0.1}, epochs: 200}
  pilot: {use: probe.llc, weights: fit, num_draws: 8, num_steps_bw_draws: 2}
  hold: {use: aggregate.localization, of: pilot, over: seed}
  llc: {use: probe.llc, weights: fit, hold: hold, num_draws: 50}
""",
    page="llc.md#one-localization-for-all",
)
