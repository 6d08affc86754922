"""Declaration of `data.sinusoid`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Kind, Samples
from curvflow.schemas.kinds.shared.datasets import OUTPUTS
from curvflow.schemas.nodes import Data
from curvflow.schemas.params import Params

Centre = Literal["none", "targets", "both"]


class SinusoidParams(Params):
    """The constants of y = a sin(X W) + a X B + eps, and how samples are split."""

    a: float = Field(1.0, description="factor of the sine and of the linear term")
    b: float = Field(2.0, gt=0, description="entries of X are uniform on (0, b)")
    c: float = Field(1.0, gt=0, description="entries of W and B are uniform on (0, c)")
    noise: float = Field(1.0, ge=0, description="standard deviation of eps, Gaussian")
    num_samples: int = Field(2000, ge=2, description="rows of X, N")
    dim: int = Field(256, ge=1, description="columns of X, inputs of a sample")
    test_fraction: float = Field(0.2, ge=0, lt=1, description="share held out")
    centre: Centre = Field(
        "targets",
        description="what has its mean over all samples taken away: none, the targets, "
        "or both targets and each input",
    )
    seed: int = Field(0, ge=0, description="seed of X, W, B and eps")

    @model_validator(mode="after")
    def _enough_left(self) -> SinusoidParams:
        if (left := self.num_samples - self.num_test) < 2:
            raise ValueError(
                f"expected at least 2 samples that are not held out, got {left} of "
                f"{self.num_samples}. Raise num_samples or lower test_fraction."
            )
        return self

    @property
    def num_test(self) -> int:
        """Number of samples held out."""
        return round(self.test_fraction * self.num_samples)


def known_samples(params: SinusoidParams, _: Samples) -> Samples:
    """Return the form of the samples."""
    return Samples((params.dim,), "values", 1)


KIND = Kind(
    name="data.sinusoid",
    version=1,
    summary="Regression on the sum of a linear function and the sine of another.",
    params=SinusoidParams,
    returns=Data,
    outputs=OUTPUTS,
    varying=("seed",),
    known_samples=known_samples,
)

EXPLANATION = Explanation(
    formula="y = a sin(X W) + a X B + ε, X ~ U(0, b), W, B ~ U(0, c), ε ~ N(0, noise²)",
    source=(
        "Jarvis (2021), Generalizing Regularization of Neural Networks to "
        "Correlated Parameter Spaces"
    ),
    cost="none: arrays are drawn once and kept",
    example="""\
study: example
axes: {seed: 3}
stages:
  sines: {use: data.sinusoid, num_samples: 500, dim: 32, seed: "${seed}"}
""",
    page="data.md#sinusoid",
    units={
        "a": "as the targets",
        "b": "as the inputs",
        "c": "1",
        "noise": "as the targets",
    },
)
