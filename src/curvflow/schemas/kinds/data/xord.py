"""Declaration of `data.xord`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Kind, Samples
from curvflow.schemas.kinds.shared.datasets import OUTPUTS
from curvflow.schemas.nodes import Data
from curvflow.schemas.params import Params

Positives = Literal["one", "any"]


class XordParams(Params):
    """Length and number of the strings, and the rule for positive ones."""

    pairs: int = Field(
        5, ge=1, le=10, description="pairs of signs in a string, which has 4^pairs"
    )
    num_train: int = Field(
        12, ge=2, description="training samples, half of them positive"
    )
    num_test: int = Field(10, ge=0, description="test samples, half of them positive")
    positives: Positives = Field(
        "one",
        description="one: a positive string has exactly one pair whose signs differ; "
        "any: one or more",
    )
    labels: Literal["sign", "index"] = Field(
        "sign", description="targets -1 and 1 as values, or class labels 0 and 1"
    )
    seed: int = Field(0, ge=0, description="seed of the draw")

    @model_validator(mode="after")
    def _strings_enough(self) -> XordParams:
        for name, count in (("num_train", self.num_train), ("num_test", self.num_test)):
            if count % 2:
                raise ValueError(
                    f"expected an even {name}, half of it positive, got {count}. "
                    f"Take {count - 1} or {count + 1}."
                )
        # Positive strings are never fewer than negative ones.
        wanted, most = self.num_train + self.num_test, 2 * 2**self.pairs
        if wanted > most:
            enough = next((p for p in range(1, 11) if 2 * 2**p >= wanted), None)
            hint = "" if enough is None else f", or take pairs of {enough}"
            raise ValueError(
                f"expected num_train + num_test of at most {most}, for only "
                f"2^pairs = {most // 2} strings are negative, got {self.num_train} + "
                f"{self.num_test}. Lower them{hint}."
            )
        return self


def known_samples(params: XordParams, _: Samples) -> Samples:
    """Return the form of the samples."""
    if params.labels == "index":
        return Samples((params.pairs, 2), "labels", 2)
    return Samples((params.pairs, 2), "values", 1)


KIND = Kind(
    name="data.xord",
    version=1,
    summary="Strings of pairs of signs; 1 where a pair differs, -1 where none does.",
    params=XordParams,
    returns=Data,
    outputs=OUTPUTS,
    varying=("seed",),
    known_samples=known_samples,
)

EXPLANATION = Explanation(
    formula=(
        "x ∈ {-1, 1}^(2 pairs); y = -1 if the signs of no pair differ, 1 if those "
        "of one do (or of one or more)"
    ),
    source=(
        "Jarvis (2021), Generalizing Regularization of Neural Networks to "
        "Correlated Parameter Spaces"
    ),
    cost="none: arrays are drawn once and kept",
    example="""\
study: example
axes: {seed: 3}
stages:
  xord: {use: data.xord, pairs: 5, seed: "${seed}"}
""",
    page="data.md#xord",
)
