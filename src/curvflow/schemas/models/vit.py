"""Vision transformer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from curvflow.schemas.explanations import Section
from curvflow.schemas.models._base import Activation, Model


class Vit(Model):
    """Attention between the patches of an image, in a residual stream."""

    kind: Literal["vit"] = "vit"
    patch_size: PositiveInt = Field(
        4, description="side of a square patch, pixels; it divides both of the image"
    )
    depth: PositiveInt = Field(2, description="number of blocks")
    width: PositiveInt = Field(64, description="entries of the vector of a patch")
    heads: PositiveInt = Field(4, description="heads of an attention, which share it")
    mlp_ratio: PositiveFloat = Field(
        4.0, description="units between the two dense layers of a block, over width"
    )
    pooling: Literal["cls", "mean"] = Field(
        "cls",
        description="outputs are computed from a learned token before the patches, or "
        "from the mean of the patches",
    )
    activation: Activation = Field("gelu", description="between the dense layers")
    eps: PositiveFloat = Field(1e-6, description="added to variances by layer norms")
    dropout: float = Field(0.0, ge=0, lt=1, description="share left out at each step")

    @property
    def hidden(self) -> int:
        """Units between the two dense layers of a block."""
        return round(self.mlp_ratio * self.width)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if rest := self.width % self.heads:
            raise ValueError(
                f"expected a width that is a multiple of {self.heads} heads, got "
                f"{self.width}. Take {self.width - rest + self.heads}"
            )
        if self.hidden < 1:
            raise ValueError(
                f"expected an mlp_ratio of at least one unit, {1 / self.width:.3g}, "
                f"got {self.mlp_ratio}. Raise it."
            )
        return self

    def misfits(
        self, shape: tuple[int, ...], tokens: int | None, outputs: int | None
    ) -> Iterator[tuple[str, str]]:
        """Yield the faults of samples for this model, and the remedies.

        Args:
            shape: of the inputs of one sample.
            tokens: labels of one sample; None for one target.
            outputs: of a sample, or of each token; None where it is not known.
        """
        if any(side % self.patch_size for side in shape[1:]):
            yield (
                "expected a patch_size that divides the sides of the images, "
                f"{shape[1]} and {shape[2]}, got {self.patch_size}",
                "Take another, or crop the images.",
            )


MODEL = Vit
SEES = "image"

EXPLANATION = Section(
    group="Networks of patches",
    summary="images; some 12 W² parameters per block of width W, embeddings and a "
    "place per patch; dropout",
    text="""\
The image is cut into squares of `patch_size` pixels a side, which must divide both of
its sides. The pixels of each, channel by channel, become a vector h of W = `width`
entries by one dense layer, as by a convolution of that kernel and stride. With
`pooling: cls` a learned vector goes before those of the patches; then a learned vector
for each place is added. Each of `depth` blocks adds h ← h + A(N(h)),
h ← h + W₂ φ(W₁ N(h) + b₁) + b₂: N a layer norm, A the attention of a
[transformer](#transformer) with `heads` heads in which each patch sees all, φ the
`activation`, W₁ of `mlp_ratio` × W rows. After a last N, f(x) is a dense layer of the
vector of the learned token (`cls`), or of the mean over the patches (`mean`).

`dropout` leaves out entries of the embeddings, of the weights of the attention, and of
what A and the dense layers add. Memory for activations grows by `heads` T² per block
and sample of T patches.

The [law](#initial-weights) is `{glorot: 1.0}`, which draws the dense layers as the
published network's. It draws the places, too, as if they were the weights of a layer;
the learned token begins at 0, unless a law draws biases, and scales of N at 1.
""",
    source="""\
Dosovitskiy et al. (2021), arXiv:2010.11929, section 3.1, with one dense layer as head
and dropout as in the transformers of this page; `mean`: Zhai et al. (2022),
arXiv:2106.04560.
""",
    example="""\
stages:
  fit_vit:
    use: train
    data: mnist
    model: {kind: vit, patch_size: 7, depth: 1, width: 16, heads: 2, pooling: mean}
    rule: {rule: adam, lr: 0.003}
    seed: "${seed}"
    epochs: 2
    batch_size: 64
""",
)
