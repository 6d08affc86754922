"""Declaration of `data.modular`."""

from __future__ import annotations

from math import isqrt
from typing import Literal

from pydantic import Field, model_validator

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Kind, Samples
from curvflow.schemas.kinds.shared.datasets import OUTPUTS
from curvflow.schemas.nodes import Data
from curvflow.schemas.params import Params

Operation = Literal["addition", "subtraction", "multiplication", "division"]


class ModularParams(Params):
    """Modulus and operation, the form of a sample, and the share that is trained on."""

    p: int = Field(
        97, ge=2, le=4096, description="modulus, and number of classes; prime to divide"
    )
    operation: Operation = Field(
        "addition",
        description="c = a + b, a - b, a b or a / b mod p, this one of b other than 0",
    )
    equals_token: bool = Field(
        True,
        description="a sample is (a, b, p), p the token of the equals sign; false: "
        "(a, b)",
    )
    train_fraction: float = Field(
        0.5, gt=0, le=1, description="share of all pairs trained on; the rest is tested"
    )
    seed: int = Field(0, ge=0, description="seed of the split")

    @model_validator(mode="after")
    def _can_be_computed(self) -> ModularParams:
        if self.operation == "division" and (factor := _least_factor(self.p)) < self.p:
            raise ValueError(
                f"operation: division cannot be combined with p {self.p}, a multiple "
                f"of {factor}. Take a prime p, or multiply."
            )
        if self.num_train < 2:
            raise ValueError(
                f"expected at least 2 pairs to train on, got {self.num_train} of "
                f"{self.num_pairs}. Raise train_fraction."
            )
        return self

    @property
    def num_pairs(self) -> int:
        """Number of pairs a, b that the operation is defined for."""
        return self.p * (self.p - 1 if self.operation == "division" else self.p)

    @property
    def num_train(self) -> int:
        """Number of pairs trained on."""
        return round(self.train_fraction * self.num_pairs)


def _least_factor(p: int) -> int:
    """Return the smallest divisor of p but 1; p itself if it is prime."""
    return next((d for d in range(2, isqrt(p) + 1) if p % d == 0), p)


def known_samples(params: ModularParams, _: Samples) -> Samples:
    """Return the form of the samples: two or three tokens, and one of p classes."""
    if params.equals_token:
        return Samples((3,), "labels", params.p, vocabulary=params.p + 1)
    return Samples((2,), "labels", params.p, vocabulary=params.p)


KIND = Kind(
    name="data.modular",
    version=1,
    summary="All pairs of numbers below p as tokens, and their sum or product mod p.",
    params=ModularParams,
    returns=Data,
    outputs=OUTPUTS,
    varying=("seed",),
    known_samples=known_samples,
)

EXPLANATION = Explanation(
    formula=(
        "x = (a, b, p), y = a ∘ b mod p, of all a, b in 0..p-1; the seed draws "
        "round(train_fraction · pairs) to train on, the others are tested"
    ),
    source=(
        "Power et al. (2022), arXiv:2201.02177; Nanda et al. (2023), arXiv:2301.05217"
    ),
    cost="none: arrays are made once and kept",
    example="""\
study: example
axes: {seed: 3}
stages:
  sums: {use: data.modular, p: 97, operation: addition, train_fraction: 0.3,
         seed: "${seed}"}
""",
    page="data.md#modular-arithmetic",
    units={"p": "1", "train_fraction": "1"},
)
