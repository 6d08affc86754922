"""Declaration of `probe.llc_known`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

from pydantic import Field, model_validator

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Input, Kind, ParamProblem, Variable
from curvflow.schemas.kinds.shared.known_answers import KnownAnswerParams, known
from curvflow.schemas.kinds.shared.operators import (
    LOCALIZATION,
    NBETA,
    not_localised,
)
from curvflow.schemas.models.deep_linear import DeepLinear
from curvflow.schemas.models.mlp import Mlp
from curvflow.schemas.nodes import Data, Draws, Numbers


class LlcKnownParams(KnownAnswerParams):
    """The model and the rank of the truth, as the data have them."""

    seed: int = Field(0, ge=0, description="seed of the Gibbs sampler of deep_linear")

    @model_validator(mode="after")
    def _is_integrable(self) -> Self:
        if not isinstance(known(self), Mlp):
            return self
        raise ValueError(
            "expected deep_linear, quadratic_well or normal_crossing, whose posteriors "
            "are known at any localization, got mlp. Take weights.known_answer, which "
            "has the coefficient of the theory."
        )


def _noisy(params: Any, name: str, data: Any) -> Iterator[ParamProblem]:
    """Yield that targets are not those of the truth, where none else is known."""
    noise = getattr(data, "noise", 0.0)
    if getattr(data, "num_samples", None) is None:
        return  # the whole population, which has none
    if noise and not isinstance(known(params), DeepLinear):
        message = f"expected data of the truth without noise, got '{name}' with "
        yield ("data",), f"{message}{noise:g}", f"Set noise of '{name}' to 0."


KIND = Kind(
    name="probe.llc_known",
    version=1,
    summary="Coefficient of a known posterior at the localization of draws.",
    params=LlcKnownParams,
    returns=Numbers,
    outputs=(
        Variable(
            "llc_known",
            "nbeta (E L - L(w*)) at the nbeta and localization of the draws, by "
            "quadrature, or of deep_linear by an exact Gibbs sampler",
        ),
        Variable("llc_known_sem", "standard error of the Gibbs sampler, else 0"),
        NBETA,
        LOCALIZATION,
    ),
    main=("llc_known", "llc_known_sem"),
    inputs={
        "draws": Input(Draws, lacking=not_localised),
        "data": Input(Data, lacking=_noisy),
    },
    vectorised=False,
)

EXPLANATION = Explanation(
    formula="nβ (E L - L(w*)), w ~ p(w) ∝ exp(-nβ L(w) - γ/2 ‖w - w*‖²)",
    source=(
        "Geman and Geman (1984), doi:10.1109/TPAMI.1984.4767596, for the sampler of "
        "deep_linear"
    ),
    cost="of deep_linear 1,200 sweeps of 200 chains, a second or so; else none",
    example="""\
study: example
stages:
  population: {use: data.known_answer,
               model: {kind: normal_crossing, powers: [[1, 2], [1]]}}
  truth: {use: weights.known_answer, data: population,
          model: {kind: normal_crossing, powers: [[1, 2], [1]]}}
  llc: {use: probe.llc, weights: truth, nbeta: 1000.0, num_draws: 200}
  known: {use: probe.llc_known, draws: llc, data: population,
          model: {kind: normal_crossing, powers: [[1, 2], [1]]}}
""",
    page="llc.md#held-against-known-posteriors",
    units={"rank": "1"},
)
