"""Autoencoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from curvflow.schemas.explanations import Section
from curvflow.schemas.models._base import Activation, Model, SomeWidths, dense_sizes


class Autoencoder(Model):
    """A dense encoder and its mirror image, from the inputs to as many outputs."""

    kind: Literal["autoencoder"] = "autoencoder"
    hidden: SomeWidths = Field(
        description="widths of the encoder; the last is the code"
    )
    activation: Activation = Field("tanh", description="between the layers")
    linear_code: bool = Field(
        True, description="whether the code goes without activation"
    )
    bias: bool = Field(True, description="whether every layer has a bias")


MODEL = Autoencoder


def tensor_sizes(spec: Autoencoder, inputs: int, outputs: int) -> Mapping[str, int]:
    """Return the sizes of the parameter tensors."""
    return dense_sizes(
        [inputs, *spec.hidden, *spec.hidden[-2::-1], inputs], bias=spec.bias
    )


def fixed_outputs(spec: Autoencoder, inputs: int) -> int:
    """Return the number of outputs, whatever the loss."""
    return inputs


EXPLANATION = Section(
    group="Dense networks",
    summary="any shape, targets equal to inputs; parameters as `mlp`",
    text="""\
A dense network from the inputs through the widths `hidden`, the last of which is the
code, and back through their mirror image to as many outputs: `hidden: [64, 16]` gives
d-64-16-64-d. The code is linear unless `linear_code: false`; φ is `activation`, and
`bias: false` leaves out every b.

f(x) is to be x, so the data must have their inputs for targets, as rows: `targets:
inputs` of `data.modify`, or of an image set itself, [makes them
so](data.md#modifications).
""",
    source="""\
Hinton and Salakhutdinov (2006), doi:10.1126/science.1127647; weights are neither
tied nor pre-trained.
""",
    example="""\
stages:
  themselves: {use: data.modify, data: digits, targets: inputs}
  fit_autoencoder:
    use: train
    data: themselves
    model: {kind: autoencoder, hidden: [32, 8]}
    rule: {rule: adam, lr: 0.001}
    seed: "${seed}"
    epochs: 5
    batch_size: 64
""",
)
