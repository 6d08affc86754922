"""Lookahead around another rule."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from curvflow.schemas.rules._base import OF_TRAINING, Rule
from curvflow.schemas.rules.adagrad import Adagrad
from curvflow.schemas.rules.adam import Adam
from curvflow.schemas.rules.adamw import AdamW
from curvflow.schemas.rules.l2 import L2
from curvflow.schemas.rules.l2_stopped import L2Stopped
from curvflow.schemas.rules.l2_stopped_selective import L2StoppedSelective
from curvflow.schemas.rules.lanczos_newton import LanczosNewton
from curvflow.schemas.rules.metric import Metric
from curvflow.schemas.rules.ngd import Ngd
from curvflow.schemas.rules.ngd_online import NgdOnline
from curvflow.schemas.rules.padam import Padam
from curvflow.schemas.rules.path_sgd import PathSgd
from curvflow.schemas.rules.rmsprop import RmsProp
from curvflow.schemas.rules.selective_l2 import SelectiveL2
from curvflow.schemas.rules.sgd import Sgd

# Whatever steps, and gives no other weights than those it steps from, at a rate that is
# given.
Moving = Adagrad | Adam | AdamW | Padam | RmsProp | Sgd | PathSgd
Curved = LanczosNewton | Ngd | NgdOnline
Regularised = L2 | L2Stopped | L2StoppedSelective | Metric | SelectiveL2
Inner = Annotated[Moving | Curved | Regularised, Field(discriminator="rule")]


class Lookahead(Rule):
    """Slow weights that follow those of another rule, and set them back."""

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
                raise ValueError(f"expected {name} beside inner, got it within")
        return inner


RULE = Lookahead
