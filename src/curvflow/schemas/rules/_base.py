"""Base of the specifications of learning rules, and their schedules.

Of each, `scale(epoch, epochs)` is the multiple in the epoch under way, from 0, of a
training of so many epochs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from curvflow.schemas.kinds.shared.networks import Init
from curvflow.schemas.params import Params


class Over(Params):
    """A schedule that ends at an epoch; from there on it keeps its last value."""

    epochs: PositiveInt | None = Field(
        None, description="its length; null takes that of the training"
    )

    @property
    def is_extendable(self) -> bool:
        """True if longer training begins as shorter training does."""
        return self.epochs is not None

    def _progress(self, epoch: int, epochs: int) -> float:
        return min(1.0, epoch / (self.epochs or epochs))


class Step(Params):
    """The rate is multiplied by `factor` at each of some epochs."""

    kind: Literal["step"] = "step"
    at: Annotated[tuple[PositiveInt, ...], Field(strict=False)] = Field(
        min_length=1, description="epochs completed before each change, such as [100]"
    )
    factor: float = Field(0.1, gt=0, description="what the rate is multiplied by")

    @property
    def is_extendable(self) -> bool:
        """True if longer training begins as shorter training does."""
        return True

    def scale(self, epoch: int, epochs: int) -> float:
        """Return the power of `factor` that an epoch has come to."""
        del epochs
        return self.factor ** sum(epoch >= change for change in self.at)


class Cosine(Over):
    """Half a cosine from the rate to `final` times the rate.

    Reference: Loshchilov and Hutter (2017), arXiv:1608.03983, eq. 5, without restarts.
    """

    kind: Literal["cosine"] = "cosine"
    final: float = Field(0.0, ge=0, le=1, description="last multiple of the rate")

    def scale(self, epoch: int, epochs: int) -> float:
        """Return the height of the half cosine in an epoch."""
        fallen = (1 - math.cos(math.pi * self._progress(epoch, epochs))) / 2
        return 1 - (1 - self.final) * fallen


class Linear(Over):
    """The rate is kept, falls linearly, and is kept again.

    With t the share of the length that has passed it is 1 up to `start`, and `final`
    from `end` on. Reference: Granziol (2020), eq. 5.37, with 0.5, 0.9 and 0.01.
    """

    kind: Literal["linear"] = "linear"
    start: float = Field(
        0.5, ge=0, lt=1, description="share at which it begins to fall"
    )
    end: float = Field(0.9, gt=0, le=1, description="share at which it has fallen")
    final: float = Field(0.01, ge=0, le=1, description="last multiple of the rate")

    def scale(self, epoch: int, epochs: int) -> float:
        """Return the height of the three pieces in an epoch."""
        passed = (self._progress(epoch, epochs) - self.start) / (self.end - self.start)
        return 1 - (1 - self.final) * min(1.0, max(0.0, passed))

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.start >= self.end:
            raise ValueError(
                f"expected start below end, got {self.start:g} and {self.end:g}"
            )
        return self


Schedule = Annotated[Step | Cosine | Linear, Field(discriminator="kind")]


class Rule(Params):
    """Base of the rules.

    Each rule narrows `rule` to a literal equal to its file's name. A field that is a
    float or a flag is a hyper-parameter: it may differ between the models of one
    program. All other fields are choices, which models trained together share.

    Attributes:
        not_inside: whether it can be no rule within another, as `lookahead` has one: it
            chooses its rate, or gives other weights than those it steps from.
    """

    not_inside: ClassVar[bool] = False

    rule: str
    init: Init | None = Field(
        None, description="law of the initial weights; null takes the model's"
    )
    schedule: Schedule | None = Field(
        None, description="how the learning rate changes; null keeps it"
    )

    @property
    def module(self) -> str:
        """The name of the file of this specification, and of that of its functions."""
        return type(self).__module__.rpartition(".")[2]

    @property
    def is_extendable(self) -> bool:
        """True if longer training begins as shorter training does.

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
        """True if the rule is given the validation loss after each epoch."""
        return False

    @property
    def chooses_momentum(self) -> bool:
        """True if the momentum changes along training, so that it is recorded."""
        return False

    @property
    def has_preconditioner(self) -> bool:
        """True if steps are P^-1 times a mean of gradients, with a known diagonal P."""
        return False

    @property
    def gradients_per_step(self) -> int:
        """Gradients of its batch that a step takes; `num_gradients` counts them."""
        return 1

    def product_from(self) -> int | None:
        """Return the epoch, from 0, from which `step` needs H w; None if never."""
        return None

    def scratch(
        self, shapes: Sequence[tuple[int, ...]], batch_size: int, outputs: int
    ) -> int:
        """Return the count of numbers that a rule holds besides copies of the weights.

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
        names = [name for name in type(self).model_fields if name not in OF_TRAINING]
        return [(name, getattr(self, name)) for name in names]


# Fields that training itself reads; `step` never sees them.
OF_TRAINING = ("init", "schedule")
