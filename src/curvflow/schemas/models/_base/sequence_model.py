"""Base of the specifications of models of sequences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field, PositiveInt

from curvflow.schemas.models._base.model import Model

Readout = Literal["first", "last", "mean", "tokens"]


class SequenceModel(Model):
    """Base of the models of rows of tokens, integers (T,) or vectors (T, F)."""

    takes_tokens: ClassVar[bool] = True

    vocabulary: PositiveInt | None = Field(
        None,
        description="number of different tokens that inputs may name; null for the "
        "number of labels, where each token has one; none where inputs are vectors",
    )
    readout: Literal["auto", "first", "last", "mean", "tokens"] = Field(
        "auto",
        description="what outputs are computed from: one token, the mean of all, or "
        "each by itself, for labels of tokens",
    )
    bias: bool = Field(True, description="whether layers have a bias")
    dropout: float = Field(0.0, ge=0, lt=1, description="share left out at each step")

    @property
    def reads(self) -> Readout:
        """The readout of samples with one target."""
        return "last" if self.readout == "auto" else self.readout

    def readout_for(self, tokens: int | None) -> Readout:
        """Return the readout of samples with so many labels each, None for one target.

        Args:
            tokens: labels of one sample.
        """
        if self.readout == "auto" and tokens is not None:
            return "tokens"
        return self.reads

    def misfits(
        self, shape: tuple[int, ...], tokens: int | None, outputs: int | None
    ) -> Iterator[tuple[str, str]]:
        """Yield the faults of samples for this model, and the remedies.

        Args:
            shape: of the inputs of one sample.
            tokens: labels of one sample; None for one target.
            outputs: of a sample, or of each token; None where it is not known.
        """
        if len(shape) not in (1, 2):
            yield (
                f"expected rows of tokens, or of vectors, for {self.kind}, got inputs "
                f"of shape {shape}",
                "Take a model of images, or reshape them to (tokens, features).",
            )
            return
        yield from self._readout_misfits(tokens)
        if tokens not in (None, shape[0]):
            yield (
                f"expected a label for each of {shape[0]} tokens, got {tokens}",
                "Take as many labels as tokens, or a module of your own.",
            )
        if len(shape) == 2 and self.vocabulary is not None:
            yield (
                f"expected tokens with vocabulary, got vectors of shape {shape}",
                "Remove vocabulary, or give tokens.",
            )
        if len(shape) == 1 and self.vocabulary is None and tokens is None:
            yield (
                "expected a vocabulary for tokens with one target a sample, got none",
                "Set vocabulary to the number of different tokens.",
            )

    def _readout_misfits(self, tokens: int | None) -> Iterator[tuple[str, str]]:
        if tokens is None and self.readout == "tokens":
            yield (
                "expected a label for each token with readout tokens, got one target a "
                "sample",
                "Take readout last or mean.",
            )
        if tokens is not None and self.readout not in ("auto", "tokens"):
            yield (
                f"expected one target a sample with readout {self.readout}, got the "
                f"labels of {tokens} tokens",
                "Take readout auto, or one label for each sample.",
            )
