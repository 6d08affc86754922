"""Declaration of `data.two_moons`."""

from __future__ import annotations

from pydantic import Field, model_validator

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Kind, Samples
from curvflow.schemas.kinds.shared.datasets import OUTPUTS
from curvflow.schemas.nodes import Data
from curvflow.schemas.params import Params


class TwoMoonsParams(Params):
    """Number of points, their noise, and the share that is held out."""

    num_samples: int = Field(500, ge=2, description="points on both half circles, N")
    noise: float = Field(
        0.1, ge=0, description="standard deviation of what is added to coordinates"
    )
    test_fraction: float = Field(0.2, ge=0, lt=1, description="share held out")
    seed: int = Field(0, ge=0, description="seed of the noise and of the split")

    @model_validator(mode="after")
    def _enough_left(self) -> TwoMoonsParams:
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


def known_samples(params: TwoMoonsParams, _: Samples) -> Samples:
    """Return the form of the samples: two coordinates, and one of two classes."""
    return Samples((2,), "labels", 2)


KIND = Kind(
    name="data.two_moons",
    version=1,
    summary="Points on two interleaved half circles with noise, a class each.",
    params=TwoMoonsParams,
    returns=Data,
    outputs=OUTPUTS,
    varying=("seed",),
    known_samples=known_samples,
)

EXPLANATION = Explanation(
    formula=(
        "class 0: (cos t, sin t) + ε, class 1: (1 - cos t, ½ - sin t) + ε, t evenly "
        "on [0, π], ε ~ N(0, noise² I)"
    ),
    source=(
        "make_moons of scikit-learn: Pedregosa et al. (2011), Journal of Machine "
        "Learning Research 12"
    ),
    cost="none: arrays are drawn once and kept",
    example="""\
study: example
axes: {seed: 3}
stages:
  moons: {use: data.two_moons, num_samples: 200, noise: 0.2, seed: "${seed}"}
  fit: {use: train, data: moons,
        model: {kind: mlp, hidden: [8], activation: tanh},
        rule: {rule: sgd, lr: 0.1}, seed: "${seed}", epochs: 20}
""",
    page="data.md",
    units={"noise": "as the inputs"},
)
