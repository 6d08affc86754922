"""The convolutional network for distributed exclusive or."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from curvflow.schemas.models._base import Activation, Model


class Conv1dXord(Model):
    """Filters over the pairs of a string, and a dense layer over what they find."""

    kind: Literal["conv1d_xord"] = "conv1d_xord"
    filters: int = Field(6, ge=1, description="number of filters")
    activation: Activation = Field("tanh", description="after the filters")
    separate_filters: bool = Field(
        True,
        description="whether each filter and each of their biases is a tensor of its "
        "own, which counts where norms of tensors are added",
    )


MODEL = Conv1dXord


def tensor_sizes(spec: Conv1dXord, inputs: int, outputs: int) -> Mapping[str, int]:
    """Return the sizes of the parameter tensors."""
    names, each = ["filters"], spec.filters
    if spec.separate_filters:
        names, each = [f"filter{n}" for n in range(1, spec.filters + 1)], 1
    sizes: dict[str, int] = {}
    for name in names:
        sizes |= {f"{name}.weight": 2 * each, f"{name}.bias": each}
    found = spec.filters * (inputs // 2)
    return {**sizes, "dense.weight": found * outputs, "dense.bias": outputs}
