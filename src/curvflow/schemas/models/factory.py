"""A module of the user's own."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from curvflow.schemas.explanations import Section
from curvflow.schemas.kinds.shared.networks import Factory, Init


class FactoryModel(Factory):
    """A `torch.nn.Module` that a function of the user's own returns."""

    fits_values: ClassVar[bool] = True
    takes_tokens: ClassVar[bool] = True
    is_tried: ClassVar[bool] = True
    module: ClassVar[str] = "factory"

    init: Init | None = Field(
        None, description="law of the initial weights; null keeps the module's own"
    )


MODEL = FactoryModel
SEES = "unknown"

EXPLANATION = Section(
    group="A module of one's own",
    summary="what it takes; its own parameters; training and evaluation",
    text="""\
f(x) is what a `torch.nn.Module` computes that a function returns. `factory` names it,
`kwargs` are its arguments; see [a model of your own](how-to/own-model.md). Its own
initial parameters are taken, drawn from the seed, unless `init` names a law. In
training its layers are as the function returns them, batch norm and dropout included;
it is evaluated and probed after `eval()`. Layers that mix samples or draw at random
there are refused; one without second derivatives is named by what needs them.
""",
    source="",
    example="""\
stages:
  fit_factory:
    use: train
    data: digits
    model: {factory: "nets:make_net", kwargs: {width: 32}}
    rule: {rule: sgd, lr: 0.1}
    seed: "${seed}"
    epochs: 5
""",
)
