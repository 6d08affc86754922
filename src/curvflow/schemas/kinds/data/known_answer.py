"""Declaration of `data.known_answer`."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Kind, Samples
from curvflow.schemas.kinds.shared.datasets import OUTPUTS
from curvflow.schemas.kinds.shared.known_answers import (
    KnownAnswerParams,
    known,
    refuse_rank_above,
)
from curvflow.schemas.models.deep_linear import DeepLinear
from curvflow.schemas.models.normal_crossing import NormalCrossing
from curvflow.schemas.models.quadratic_well import QuadraticWell
from curvflow.schemas.nodes import Data

_NOISE = 1.0


class KnownAnswerDataParams(KnownAnswerParams):
    """The model whose truth is sampled, and how."""

    inputs: int | None = Field(
        None, ge=1, description="of deep_linear: inputs of a sample; null for others"
    )
    outputs: int | None = Field(
        None, ge=1, description="of deep_linear: outputs of a sample; null for others"
    )
    num_samples: int | None = Field(
        None,
        ge=2,
        description="training samples, with noise; null takes the whole population "
        "without noise, whose mean loss is the exact one",
    )
    noise: float = Field(
        _NOISE,
        ge=0,
        description="standard deviation of what is added to the targets of samples",
    )
    seed: int = Field(0, ge=0, description="seed of the samples and their noise")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        model = known(self)
        if self.num_samples is None and self.noise not in (0, _NOISE):
            raise ValueError(
                f"noise {self.noise:g} cannot be combined with num_samples null, the "
                "whole population, which has none. Give num_samples, or remove noise."
            )
        sizes = [self.inputs, self.outputs]
        if not isinstance(model, DeepLinear):
            if sizes != [None, None]:
                raise ValueError(
                    f"inputs and outputs cannot be combined with {model.kind}. "
                    "Remove them."
                )
            return self
        if self.inputs is None or self.outputs is None:
            raise ValueError(
                "expected inputs and outputs with deep_linear, got null. Give both."
            )
        refuse_rank_above(min(self.inputs, self.outputs, *model.hidden), self.rank)
        return self


def known_samples(params: KnownAnswerDataParams, _: Samples) -> Samples:
    """Return the form of the samples."""
    match params.model:
        case DeepLinear() if params.inputs is not None:
            return Samples((params.inputs,), "values", params.outputs)
        case NormalCrossing():
            return Samples((1,), "values", len(params.model.powers))
        case QuadraticWell():
            return Samples((1,), "values", len(params.model.eigenvalues))
    return Samples((1,), "values", 1)


KIND = Kind(
    name="data.known_answer",
    version=1,
    summary="Inputs and true targets of a model whose learning coefficient is known.",
    params=KnownAnswerDataParams,
    returns=Data,
    outputs=OUTPUTS,
    varying=("seed",),
    known_samples=known_samples,
)

EXPLANATION = Explanation(
    formula=(
        "deep_linear: y = x₁ … x_rank, then zeros; others: y = 0; samples have "
        "noise · N(0, 1) added"
    ),
    source=(
        "Aoyagi and Watanabe (2005), doi:10.1016/j.neunet.2005.03.014; Aoyagi "
        "(2024), doi:10.1016/j.neunet.2024.106132; Watanabe (2009), Algebraic "
        "Geometry and Statistical Learning Theory"
    ),
    cost="none: arrays are drawn once and kept",
    example="""\
study: example
stages:
  population: {use: data.known_answer,
               model: {kind: deep_linear, hidden: [3]},
               inputs: 5, outputs: 4, rank: 2}
""",
    page="known-answers.md#data",
    units={"rank": "1", "noise": "as the targets"},
)
