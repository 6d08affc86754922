"""The convolutional network for distributed exclusive or."""

from __future__ import annotations

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
