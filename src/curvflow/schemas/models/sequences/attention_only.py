"""Transformer without dense layers between its attentions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from curvflow.schemas.explanations import Section
from curvflow.schemas.kinds.shared.networks import FanIn, Init
from curvflow.schemas.models._base import Readout, SequenceModel


class Attention(SequenceModel):
    """Layers of attention in a residual stream."""

    init: Init | None = Field(
        FanIn(fan_in=1.0), description="law of the initial weights"
    )
    layers: PositiveInt = Field(2, description="number of blocks")
    width: PositiveInt = Field(64, description="entries of the vector of a token")
    heads: PositiveInt = Field(4, description="heads of an attention, which share it")
    causal: bool = Field(
        True, description="a token sees none after it, as in a decoder; else all"
    )
    norm: Literal["pre", "post", "none"] = Field(
        "pre", description="layer norm before each part of a block, or after its sum"
    )
    eps: PositiveFloat = Field(1e-5, description="added to variances by layer norms")
    positions: Literal["learned", "sinusoidal", "rotary", "none"] = Field(
        "learned", description="encoding of a token's position"
    )
    context: PositiveInt | None = Field(
        None, description="number of learned positions; null for that of the tokens"
    )
    tied: bool = Field(
        False, description="outputs are products with the embeddings of the tokens"
    )
    bias: bool = Field(
        True, description="whether layers have a bias, and layer norms a shift"
    )

    @property
    def reads(self) -> Readout:
        """The readout of samples with one target."""
        if self.readout == "auto":
            return "last" if self.causal else "mean"
        return self.readout

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if rest := self.width % self.heads:
            raise ValueError(
                f"expected a width that is a multiple of {self.heads} heads, got "
                f"{self.width}. Take {self.width - rest + self.heads}"
            )
        if self.positions == "rotary" and self.width // self.heads % 2:
            raise ValueError(
                "expected an even number of entries per head with positions rotary, "
                f"got {self.width // self.heads}. Change width or heads."
            )
        if self.context is not None and self.positions != "learned":
            raise ValueError(
                f"context cannot be combined with positions {self.positions}. Remove "
                "it."
            )
        if self.causal and self.readout == "first":
            raise ValueError(
                "readout first cannot be combined with causal, where the first token "
                "sees no other. Take last, or causal false."
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
        yield from super().misfits(shape, tokens, outputs)
        if self.context is not None and shape[0] > self.context:
            yield (
                f"expected at most {self.context} tokens a sample, the context, got "
                f"{shape[0]}",
                "Raise context, or take shorter samples.",
            )
        if self.tied and len(shape) == 2:
            yield (
                f"expected tokens with tied, got vectors of shape {shape}",
                "Set tied false, or give tokens.",
            )
        if self.tied and outputs and self.vocabulary not in (None, outputs):
            yield (
                f"expected as many tokens as outputs, {outputs}, with tied, got "
                f"{self.vocabulary} tokens",
                "Set tied false, or num_classes of the data.",
            )


class AttentionOnly(Attention):
    """Layers of attention alone, in a residual stream."""

    kind: Literal["attention_only"] = "attention_only"


MODEL = AttentionOnly
SEES = "sequence"

EXPLANATION = Section(
    group="Networks of sequences",
    summary="rows of tokens or vectors; 4 (W + 1) W parameters per block of width W "
    "and embeddings; dropout",
    text="""\
A [transformer](#transformer) without its dense layers: h ← h + A(N(h)) for each of the
`layers`, and f(x) as there. With `norm: none` and `bias: false` it is the network of
which two layers can complete a pattern that they have seen before.
""",
    source="""\
Elhage et al. (2021), *A Mathematical Framework for Transformer Circuits*,
transformer-circuits.pub.
""",
    example="""\
stages:
  letters: {use: data.factory, factory: "words:windows", kwargs: {length: 8},
            num_classes: 32}
  fit_attention:
    use: train
    data: letters
    model: {kind: attention_only, layers: 2, width: 16, heads: 2, norm: none,
            bias: false}
    rule: {rule: adam, lr: 0.01}
    seed: "${seed}"
    epochs: 5
    batch_size: 16
""",
)
