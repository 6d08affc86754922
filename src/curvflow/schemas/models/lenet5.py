"""LeNet-5."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curvflow.schemas.explanations import Section
from curvflow.schemas.models._base import Activation, Model, Pooling, weights_of


class Lenet5(Model):
    """Two convolutions with pooling, then dense layers of 120, 84 and the outputs."""

    kind: Literal["lenet5"] = "lenet5"
    padding: int = Field(
        2,
        ge=0,
        description="zeros around the image, pixels; 2 for sides of 28, 0 for 32",
    )
    activation: Activation = Field("tanh", description="after every layer but the last")
    pooling: Pooling = Field("avg", description="mean or largest of 2x2 places")
    dropout: float = Field(
        0.0, ge=0, lt=1, description="share of dense hidden units left out at each step"
    )

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of the parameter tensors."""
        return weights_of(("conv1", "conv2", "dense1", "dense2", "dense3"))


MODEL = Lenet5
SEES = "image"

EXPLANATION = Section(
    group="Convolutional networks",
    summary="images; 61,706 parameters for 1×28×28 and 10 classes; dropout",
    text="""\
Convolution 5×5 to 6 channels, φ, pooling 2×2; convolution 5×5 to 16 channels, φ,
pooling 2×2; dense layers of 120 and 84 units, each with φ and `dropout`; f(x) is a
dense layer of that. `padding` zeros surround the image: 2 for sides of 28, 0 for 32.
`pooling` is `avg`, the published one, or `max`; `activation` is `tanh` unless said
otherwise.
""",
    source="""\
LeCun, Bottou, Bengio and Haffner (1998), doi:10.1109/5.726791, with full
connections between its maps, pooling without coefficients, and a dense last layer.
""",
    example="""\
stages:
  fit_lenet5:
    use: train
    data: mnist
    model: {kind: lenet5, padding: 2, activation: relu, pooling: max, dropout: 0.2}
    rule: {rule: sgd, lr: 0.01, momentum: 0.9}
    seed: "${seed}"
    epochs: 2
    batch_size: 64
""",
)
