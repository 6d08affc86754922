"""Residual networks for small images."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, PositiveInt, model_validator

from curvflow.schemas.explanations import Section
from curvflow.schemas.models._base import Activation, Model, SomeWidths

# Groups of channels, unless said otherwise.
GROUPS = 8


class Resnet(Model):
    """Stages of basic residual blocks of two convolutions."""

    kind: Literal["resnet"] = "resnet"
    widths: SomeWidths = Field((16, 32, 64), description="channels of each stage")
    blocks: SomeWidths = Field((3, 3, 3), description="residual blocks of each stage")
    norm: Literal["batch", "group", "none"] = Field(
        "batch", description="normalisation after every convolution"
    )
    groups: PositiveInt | None = Field(
        None, description="groups of channels with norm group; null for 8"
    )
    shortcut: Literal["projection", "padding"] = Field(
        "projection",
        description="how a block that changes the shape passes its inputs on: by a "
        "normalised 1x1 convolution, or with zeros as further channels",
    )
    activation: Activation = Field("relu", description="after every sum and norm")

    @property
    def num_groups(self) -> int:
        """Groups of channels of a group norm."""
        return self.groups or GROUPS

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if len(self.widths) != len(self.blocks):
            raise ValueError(
                f"expected blocks for each of {len(self.widths)} widths, got "
                f"{len(self.blocks)} numbers. Give as many."
            )
        if self.norm != "group" and self.groups is not None:
            raise ValueError(
                f"groups cannot be combined with norm {self.norm}. Remove it."
            )
        wrong = [width for width in self.widths if width % self.num_groups]
        if self.norm == "group" and wrong:
            raise ValueError(
                f"expected widths that are multiples of {self.num_groups} groups, got "
                f"{wrong[0]}. Change widths or groups."
            )
        if self.shortcut == "padding" and list(self.widths) != sorted(self.widths):
            raise ValueError(
                "shortcut padding cannot be combined with widths that fall, "
                f"{list(self.widths)}. Take shortcut projection."
            )
        return self


MODEL = Resnet
SEES = "image"

EXPLANATION = Section(
    group="Convolutional networks",
    summary="images; 269,722 parameters for shortcut padding, 3×32×32, 10 classes; "
    "batch norm, group norm or none",
    text="""\
A 3×3 convolution, N and φ, then for each of the `widths` a stage of as many basic
blocks as `blocks` says. A block is φ(x + N(W₂ φ(N(W₁ x)))) with 3×3 convolutions W; the
first block of every stage but the first goes by strides of 2. Where a block changes the
shape, `shortcut: projection` takes N of a 1×1 convolution in place of x, and `padding`
every second place of x, with zeros as further channels. At the end the mean over all
places, and a dense layer: f(x). φ is the `activation`.

N is a [batch norm](#batch-norm), with `norm: group` the same formula with μ and σ² of
each sample over all places of the channels of each of the `groups`, and no running
statistics; `norm: none` leaves out every N, and gives the convolutions a bias instead.

The defaults are the published network of 20 layers but for its shortcuts, which are
`padding`. `widths: [64, 128, 256, 512]` with `blocks: [2, 2, 2, 2]` is that of 18
layers, with a first layer for small images.
""",
    source="""\
He, Zhang, Ren and Sun (2016), arXiv:1512.03385, sections 3.3 and 4.2; `norm: group`: Wu
and He (2018), arXiv:1803.08494.
""",
    example="""\
stages:
  fit_resnet:
    use: train
    data: colours
    model: {kind: resnet, widths: [8, 16], blocks: [1, 1], norm: group, groups: 4}
    rule: {rule: sgd, lr: 0.1, momentum: 0.9}
    seed: "${seed}"
    epochs: 2
    batch_size: 128
""",
)
