"""Declaration of `data.xor`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Kind, Samples
from curvflow.schemas.kinds.shared.datasets import OUTPUTS
from curvflow.schemas.nodes import Data
from curvflow.schemas.params import Params


class XorParams(Params):
    """Form of the two classes."""

    labels: Literal["sign", "index"] = Field(
        "sign", description="targets -1 and 1 as values, or class labels 0 and 1"
    )


def known_samples(params: XorParams, _: Samples) -> Samples:
    """Return the form of the samples."""
    if params.labels == "index":
        return Samples((2,), "labels", 2)
    return Samples((2,), "values", 1)


KIND = Kind(
    name="data.xor",
    version=1,
    summary="The four points (+-1, +-1); 1 where the signs differ. No test set.",
    params=XorParams,
    returns=Data,
    outputs=OUTPUTS,
    known_samples=known_samples,
)

EXPLANATION = Explanation(
    formula="x ∈ {-1, 1}², y = -x₁ x₂",
    source="none: four points; Jarvis (2021) trains on them",
    cost="none: four rows",
    example="""\
study: example
stages:
  xor: {use: data.xor}
  fit: {use: train, data: xor,
        model: {kind: mlp, hidden: [4], activation: tanh},
        rule: {rule: sgd, lr: 0.1}, epochs: 400}
""",
    page="data.md#xor",
)
