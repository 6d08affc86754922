"""Networks with long short-term memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field, PositiveInt, model_validator

from curvflow.schemas.explanations import Section
from curvflow.schemas.models._base import SequenceModel


class Recurrent(SequenceModel):
    """Recurrent layers, one after another."""

    layers: PositiveInt = Field(1, description="number of recurrent layers")
    hidden: PositiveInt = Field(description="units of each layer")
    embedding: PositiveInt | None = Field(
        None,
        description="entries of the vector of a token; null for as many as units; none "
        "where inputs are vectors",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.readout == "first":
            raise ValueError(
                f"readout first cannot be combined with {self.kind}, where the first "
                "token sees no other. Take last or mean."
            )
        if self.dropout and self.layers == 1:
            raise ValueError(
                f"expected two layers or more with dropout {self.dropout}, which is "
                "between them, got 1. Add one, or remove dropout."
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
        if len(shape) == 2 and self.embedding is not None:
            yield (
                f"expected tokens with embedding, got vectors of shape {shape}",
                "Remove embedding, or give tokens.",
            )


class Lstm(Recurrent):
    """Recurrent layers with long short-term memory, and a dense layer."""

    kind: Literal["lstm"] = "lstm"


MODEL = Lstm
SEES = "sequence"

EXPLANATION = Section(
    group="Networks of sequences",
    summary="rows of tokens or vectors; 4 (in + H + 2) H parameters per layer of H "
    "units; dropout",
    text="""\
Token after token, each of H = `hidden` units has a state h and a memory m, which begin
at 0: m ← σ(f) m + σ(i) tanh(g), h ← σ(o) tanh(m). The gates i, f, g and o are dense
layers of the token's vector x and the last h, W x + b + U h + c. As in PyTorch both
have a bias, of which only the sum matters, so that 4 H directions of each layer change
nothing. `bias: false` leaves out all of them. A token has a vector of `embedding`
entries; inputs that are vectors go in as they are. The h of one of the `layers` are the
x of the next. f(x) is a dense layer of the last h, for `readout: mean` of the mean of
all, or of each where each token has a label. `dropout` leaves out entries of h between
layers.
""",
    source="""\
Hochreiter and Schmidhuber (1997), doi:10.1162/neco.1997.9.8.1735; Gers, Schmidhuber and
Cummins (2000), doi:10.1162/089976600300015015, for the gate f.
""",
    example="""\
stages:
  words: {use: data.factory, factory: "words:windows", kwargs: {length: 8},
          num_classes: 32}
  fit_lstm:
    use: train
    data: words
    model: {kind: lstm, layers: 2, hidden: 16, embedding: 8, dropout: 0.1}
    rule: {rule: adam, lr: 0.01}
    seed: "${seed}"
    epochs: 5
    batch_size: 16
""",
)
