"""What every learning rule has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from curvflow.schemas.initial import Init
from curvflow.schemas.params import Params
from curvflow.schemas.schedules import Schedule


class Rule(Params):
    """Base of the rules.

    Each rule narrows `rule` to a literal equal to its file's name. A field that is a
    float or a flag is a hyper-parameter: it may differ between the models of one
    program. All other fields are choices, which models trained together share.
    """

    rule: str
    init: Init | None = Field(
        None, description="law of the initial weights; null takes the model's"
    )
    schedule: Schedule | None = Field(
        None, description="how the learning rate changes; null keeps it"
    )

    @property
    def is_extendable(self) -> bool:
        """Whether longer training begins as shorter training does.

        True for constant and epoch-wise schedules. A rule that depends on the whole
        length, as a cosine without epochs of its own, is trained from the beginning.
        """
        return self.schedule is None or self.schedule.is_extendable

    @property
    def base_lr(self) -> float:
        """The learning rate before any schedule."""
        return float(self.hyper()["lr"])

    @property
    def watches(self) -> bool:
        """Whether the rule is told the validation loss after each epoch."""
        return False

    @property
    def chooses_momentum(self) -> bool:
        """Whether the momentum changes along training, so that it is recorded."""
        return False

    @property
    def has_preconditioner(self) -> bool:
        """Whether steps are P^-1 times a mean of gradients, with a known diagonal P."""
        return False

    def product_from(self) -> int | None:
        """Return the epoch, from 0, from which `step` needs H w; None if never."""
        return None

    def scratch(
        self, shapes: Sequence[tuple[int, ...]], batch_size: int, outputs: int
    ) -> int:
        """Return how many numbers a rule holds that are many beside the parameters.

        Memory is planned by it. Moments of the size of the parameters and a few
        temporaries are counted anyway; what a rule within the rule holds counts here.

        Args:
            shapes: of the tensors of parameters.
            batch_size: samples of a step.
            outputs: of the network, C.
        """
        inner = [value for _, value in self._fields() if isinstance(value, Rule)]
        return sum(rule.scratch(shapes, batch_size, outputs) for rule in inner)

    def hyper(self) -> dict[str, float]:
        """Return the hyper-parameters by name, flags as 0 and 1."""
        return {n: float(v) for n, v in self._fields() if isinstance(v, bool | float)}

    def choices(self) -> dict[str, Any]:
        """Return what models trained together share, by name."""
        return {n: v for n, v in self._fields() if not isinstance(v, bool | float)}

    def _fields(self) -> list[tuple[str, Any]]:
        own = [name for name in type(self).model_fields if name not in OF_TRAINING]
        return [(name, getattr(self, name)) for name in own]


# Fields that training itself heeds; `step` never sees them.
OF_TRAINING = ("init", "schedule")
