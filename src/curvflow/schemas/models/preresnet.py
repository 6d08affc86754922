"""Residual networks with pre-activation for small images."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from curvflow.schemas.explanations import Section
from curvflow.schemas.models._base import Activation, Model


class Preresnet(Model):
    """Three stages of residual blocks, activated before their convolutions."""

    kind: Literal["preresnet"] = "preresnet"
    depth: int = Field(
        20, ge=8, description="layers with weights on the way through, 6 n + 2"
    )
    width: float = Field(
        1.0, gt=0, description="multiple of the 16, 32 and 64 channels"
    )
    batch_norm: bool = Field(
        True, description="batch normalisation before every activation"
    )
    activation: Activation = Field("relu", description="before every convolution")

    @field_validator("depth")
    @classmethod
    def _has_whole_blocks(cls, depth: int) -> int:
        if depth % 6 != 2:
            less = depth - (depth - 2) % 6
            raise ValueError(
                f"expected a depth of 6 n + 2, got {depth}. Take {less} or {less + 6}."
            )
        return depth


MODEL = Preresnet
SEES = "image"

EXPLANATION = Section(
    group="Convolutional networks",
    summary="images; 272,282 parameters for depth 20, 3×32×32, 10 classes; "
    "batch norm by choice",
    text="""\
A 3×3 convolution, then three stages of n residual blocks with 16, 32 and 64 channels,
where `depth` = 6 n + 2 and `width` multiplies the channels. A block is x + W₂ φ(N(W₁
φ(N(x)))) with 3×3 convolutions W and a batch norm N; the first block of the second
and the third stage goes by strides of 2 and adds a 1×1 convolution of x in place of
x. At the end φ(N(·)), the mean over all places, and a dense layer: f(x). `batch_norm:
false` leaves out every N, and gives the convolutions a bias instead. `activation` is
φ.
""",
    source="""\
He, Zhang, Ren and Sun (2016), arXiv:1603.05027, with the stages of
arXiv:1512.03385, section 4.2.
""",
    example="""\
stages:
  fit_preresnet:
    use: train
    data: colours
    model: {kind: preresnet, depth: 20, width: 0.5, batch_norm: true}
    rule: {rule: sgd, lr: 0.1, momentum: 0.9, weight_decay: 0.0005}
    seed: "${seed}"
    epochs: 2
    batch_size: 128
""",
)
