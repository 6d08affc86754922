"""Declaration of `data.curves`."""

from __future__ import annotations

from pydantic import Field

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Kind, Samples
from curvflow.schemas.kinds.shared.images import IMAGE_OUTPUTS
from curvflow.schemas.nodes import Data
from curvflow.schemas.params import Params


class CurvesParams(Params):
    """Number and size of the pictures, and the pen that draws them."""

    num_train: int = Field(2000, ge=2, description="training pictures")
    num_test: int = Field(0, ge=0, description="test pictures")
    size: int = Field(28, ge=4, description="side of a picture, pixels")
    pen: float = Field(
        1.5, gt=0, description="width of the line, where it has half of full intensity"
    )
    seed: int = Field(0, ge=0, description="seed of the points")


def known_samples(params: CurvesParams, _: Samples) -> Samples:
    """Return the form of the samples: pictures whose targets are their pixels."""
    return Samples((1, params.size, params.size), "values", params.size**2)


KIND = Kind(
    name="data.curves",
    version=1,
    summary="Pictures of curves through three random points, their own targets.",
    params=CurvesParams,
    returns=Data,
    outputs=IMAGE_OUTPUTS,
    varying=("seed",),
    known_samples=known_samples,
)

EXPLANATION = Explanation(
    formula=(
        "c(t) = (1 - t)(1 - 2t) p₀ + 4t(1 - t) p₁ + t(2t - 1) p₂ for t in [0, 1], "
        "p ~ U([0.15, 0.85]²) of the picture; a pixel at distance d of it, in pixels, "
        "is (1 + pen) / 2 - d within [0, 1]; y = x as a row"
    ),
    source=(
        "like the CURVES of Hinton and Salakhutdinov (2006), "
        "doi:10.1126/science.1127647; not the published file"
    ),
    cost="none: pictures are drawn once and kept",
    example="""\
study: example
axes: {seed: 3}
stages:
  curves: {use: data.curves, num_train: 200, size: 14, seed: "${seed}"}
  fit: {use: train, data: curves,
        model: {kind: autoencoder, hidden: [32, 8]},
        rule: {rule: adam, lr: 0.003}, seed: "${seed}", epochs: 5,
        batch_size: 50}
""",
    page="data.md#curves",
    units={"size": "pixel", "pen": "pixel"},
)
