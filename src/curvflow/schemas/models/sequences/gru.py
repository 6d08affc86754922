"""Networks with gated recurrent units."""

from __future__ import annotations

from typing import Literal

from curvflow.schemas.explanations import Section
from curvflow.schemas.models.sequences.lstm import Recurrent


class Gru(Recurrent):
    """Layers of gated recurrent units, and a dense layer."""

    kind: Literal["gru"] = "gru"


MODEL = Gru
SEES = "sequence"

EXPLANATION = Section(
    group="Networks of sequences",
    summary="rows of tokens or vectors; 3 (in + H + 2) H parameters per layer of H "
    "units; dropout",
    text="""\
As [lstm](#lstm), with a state h alone: h ← (1 − z) n + z h, where n = tanh(W x + b + r
(U h + c)), and z and r are σ of dense layers of x and h, with two biases each. f(x) is
a dense layer of h, as there.
""",
    source="""\
Cho et al. (2014), arXiv:1406.1078, with r behind the product U h, as in `torch.nn.GRU`.
""",
    example="""\
stages:
  rows: {use: data.factory, factory: "words:windows", kwargs: {length: 8},
         num_classes: 32}
  fit_gru:
    use: train
    data: rows
    model: {kind: gru, hidden: 16}
    rule: {rule: adam, lr: 0.01}
    seed: "${seed}"
    epochs: 5
    batch_size: 16
""",
)
