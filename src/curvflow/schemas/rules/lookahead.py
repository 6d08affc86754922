"""Lookahead around another rule."""

from __future__ import annotations

import operator
from functools import reduce
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from curvflow.schemas.explanations import Section
from curvflow.schemas.rules._base import OF_TRAINING, Rule
from curvflow.schemas.rules._files import specifications

if TYPE_CHECKING:
    Inner = Rule
else:
    _OTHERS = specifications(but=["lookahead"]).values()
    Inner = Annotated[
        reduce(operator.or_, (rule for rule in _OTHERS if not rule.not_inside)),
        Field(discriminator="rule"),
    ]


class Lookahead(Rule):
    """Slow weights that follow those of another rule, and set them back."""

    not_inside: ClassVar[bool] = True

    rule: Literal["lookahead"] = "lookahead"
    inner: Inner = Field(description="the rule that steps between two moves")
    k: int = Field(5, ge=1, description="steps between two moves of the slow weights")
    alpha: float = Field(
        0.5, gt=0, le=1, description="share of the way to the fast weights"
    )

    @property
    def base_lr(self) -> float:
        """The learning rate of the inner rule before any schedule."""
        return self.inner.base_lr

    def product_from(self) -> int | None:
        """Return the epoch from which the inner rule needs H w, if ever."""
        return self.inner.product_from()

    @field_validator("inner")
    @classmethod
    def _leaves_training_to_the_outer(cls, inner: Inner) -> Inner:
        for name in OF_TRAINING:
            if getattr(inner, name) is not None:
                raise ValueError(
                    f"{name} cannot be combined with inner. Move it to lookahead itself"
                )
        return inner


RULE = Lookahead

EXPLANATION = Section(
    group="Averages of weights",
    summary="lets slow weights follow those of another rule",
    text="""\
s ← s + α (w − s), w ← s after every `k` steps of the rule `inner`, with α = `alpha`;
the result is s. `inner` is any rule but `torch_optimizer`, `spectral_sgd`,
`spectral_swa` and those of this section, with all its hyper-parameters, and keeps its
state when w is set back; H w is taken at w. `init` and `schedule` stand next to
`inner`; a schedule multiplies the learning rate within. A preset, which brings an
`init`, is not taken there.
""",
    source="""\
Zhang et al. (2019), arXiv:1907.08610.
""",
    example="""\
axes:
  rule:
    sgd: {rule: lookahead, inner: {rule: sgd, lr: 0.1}, k: 5, alpha: 0.5}
    adam: {rule: lookahead, inner: {rule: adam, lr: 0.001}}
    metric: {rule: lookahead, inner: {rule: metric, lr: 0.1, rate: 0.0001}}
""",
)
