"""Declaration of `data.digits`."""

from __future__ import annotations

from pydantic import Field, model_validator

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Kind, Samples
from curvflow.schemas.kinds.shared.datasets import OUTPUTS
from curvflow.schemas.nodes import Data
from curvflow.schemas.params import Params

NUM_SAMPLES = 1797
# Of so many a digit is absent with a probability of 1e-13.
ALL_DIGITS = 300


class DigitsParams(Params):
    """Part of the 1797 handwritten digits that is used, and its split."""

    test_fraction: float = Field(0.2, ge=0, lt=1, description="share held out")
    seed: int = Field(0, ge=0, description="seed of the split")
    num_train: int | None = Field(
        None, ge=2, description="training samples kept; null keeps all"
    )

    @model_validator(mode="after")
    def _enough_samples(self) -> DigitsParams:
        if (self.num_train or 0) > (left := NUM_SAMPLES - self.num_test):
            raise ValueError(
                f"expected num_train of at most the {left} samples that are not held "
                f"out, got {self.num_train}. Lower num_train or test_fraction."
            )
        return self

    @property
    def num_test(self) -> int:
        """Number of samples held out."""
        return round(self.test_fraction * NUM_SAMPLES)


def known_samples(params: DigitsParams, _: Samples) -> Samples:
    """Return the form of the samples; of few of them some digits may be absent."""
    few = (
        params.num_train is not None and params.num_train + params.num_test < ALL_DIGITS
    )
    return Samples((64,), "labels", None if few else 10)


KIND = Kind(
    name="data.digits",
    version=1,
    summary="1797 handwritten digits of 8x8 pixels, scaled to [0, 1], in 10 classes.",
    params=DigitsParams,
    returns=Data,
    outputs=OUTPUTS,
    varying=("seed",),
    known_samples=known_samples,
)

EXPLANATION = Explanation(
    formula=(
        "x = pixels / 16, rows of 64; round(1797 test_fraction) samples are held out"
    ),
    source="Alpaydin and Kaynak (1998), doi:10.24432/C50P49",
    cost="none: arrays are drawn once and kept",
    example="""\
study: example
axes: {seed: 3}
stages:
  digits: {use: data.digits, num_train: 1000, seed: "${seed}"}
""",
    page="data.md#digits",
)
