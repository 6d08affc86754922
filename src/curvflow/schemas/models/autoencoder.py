"""Autoencoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

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
