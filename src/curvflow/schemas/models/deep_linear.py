"""Deep linear network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from curvflow.schemas.models._base import Model, Widths, dense_sizes


class DeepLinear(Model):
    """Dense layers without activations or biases: a product of matrices."""

    kind: Literal["deep_linear"] = "deep_linear"
    hidden: Widths = Field(
        description="widths of the hidden layers, first to last; one is reduced-rank "
        "regression"
    )


MODEL = DeepLinear


def tensor_sizes(spec: DeepLinear, inputs: int, outputs: int) -> Mapping[str, int]:
    """Return the sizes of the parameter tensors."""
    return dense_sizes([inputs, *spec.hidden, outputs], bias=False)
