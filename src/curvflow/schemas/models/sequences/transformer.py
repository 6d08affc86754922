"""Transformers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt

from curvflow.schemas.explanations import Section
from curvflow.schemas.models._base import Activation
from curvflow.schemas.models.sequences.attention_only import Attention


class Transformer(Attention):
    """Blocks of attention and two dense layers in a residual stream."""

    kind: Literal["transformer"] = "transformer"
    hidden: PositiveInt | None = Field(
        None, description="width between the dense layers; null for four times width"
    )
    activation: Activation = Field("gelu", description="between the dense layers")


MODEL = Transformer
SEES = "sequence"

EXPLANATION = Section(
    group="Networks of sequences",
    summary="rows of tokens or vectors; some 12 W² parameters per block of width W and "
    "embeddings; dropout",
    text="""\
Each token has a vector h of W = `width` entries: its row of a table of `vocabulary`
embeddings, or, where inputs are vectors, a dense layer of them; `positions` adds a
learned vector for each place, or sines and cosines. Each of the `layers` then adds to
it: h ← h + A(N(h)), h ← h + W₂ φ(W₁ N(h) + b₁) + b₂, where N is a layer norm, φ the
`activation`, and W₁ has `hidden` rows. A is an attention: of each of the `heads`, a
token takes the mean of the values v of all tokens, weighted by the softmax of q·k / √E
over them, where query q, key k and value v are dense layers of N(h) with E = W / heads
entries; a dense layer joins the heads. `causal: true`, a decoder, leaves out tokens
that come later; an encoder sees all. `positions: rotary` turns each pair of entries of
q and k by angles that grow with the place.

`norm: pre` is the form above, with a last N after all blocks; `post` is
h ← N(h + A(h)), and so for the dense layers; `none` leaves out every N. `bias: false`
leaves out every bias, and every shift of a norm.

f(x) is a dense layer of h, with `tied: true` the products of h with the embeddings,
which are one tensor, used twice. Where each token has a label, so it is for each of
them; where a sample has one target, `readout` takes h of the `last` or the `first`
token, or the `mean` of all. By default that is the last one of a decoder and the mean
of an encoder.

`dropout` leaves out entries of the embeddings, of the weights of the attention, and of
what A and the dense layers add. Memory for activations grows by `heads` T² per block
and sample of T tokens. Weights begin by `{fan_in: 1.0}`, so an embedding has a length
near 1.
""",
    source="""\
Vaswani et al. (2017), arXiv:1706.03762; `norm: pre`: Xiong et al. (2020),
arXiv:2002.04745; rotary positions: Su et al. (2021), arXiv:2104.09864.
""",
    example="""\
stages:
  text: {use: data.factory, factory: "words:windows", kwargs: {length: 8},
         num_classes: 32}
  fit_decoder:
    use: train
    data: text
    model: {kind: transformer, layers: 1, width: 16, heads: 2, positions: rotary,
            tied: true}
    rule: {rule: adam, lr: 0.01}
    seed: "${seed}"
    epochs: 5
    batch_size: 16
  sums: {use: data.modular, p: 13, seed: "${seed}"}
  fit_sums:
    use: train
    data: sums
    model: {kind: transformer, layers: 1, width: 32, norm: none, vocabulary: 14}
    rule: {rule: adamw, lr: 0.003, weight_decay: 1.0}
    seed: "${seed}"
    epochs: 10
""",
)
