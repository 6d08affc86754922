"""The convolutional network for distributed exclusive or."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from curvflow.schemas.explanations import Section
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
    features = spec.filters * (inputs // 2)
    return {**sizes, "dense.weight": features * outputs, "dense.bias": outputs}


EXPLANATION = Section(
    group="Convolutional networks",
    summary="pairs; 3 filters + C (filters d / 2 + 1) parameters",
    text="""\
For [strings of pairs](data.md#xord). Each of the `filters` sees one pair p at a time:
f(x) = b + Σₖ Σₚ v(k, p) φ(wₖ · xₚ + aₖ), that is, a convolution of length 2 and
stride 2, φ (`activation`) and a dense layer. Each wₖ and each aₖ is a tensor of its
own; with `separate_filters: false` there is one tensor for all w and one for all a.
The function is the same, but norms that are summed over tensors are not, and `glorot`
counts other fans.
""",
    source="""\
Jarvis (2021), *Generalizing Regularization of Neural Networks to Correlated
Parameter Spaces*. The text does not print the number of filters; 6 fits its norms.
""",
    example="""\
stages:
  xord: {use: data.xord, seed: "${seed}"}
  fit_xord:
    use: train
    data: xord
    model: {kind: conv1d_xord, filters: 6, activation: tanh, init: {normal: 0.4}}
    rule: {rule: sgd, lr: 0.02}
    seed: "${seed}"
    epochs: 50
    batch_size: 3
""",
)
