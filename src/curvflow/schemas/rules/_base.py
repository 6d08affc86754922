"""Base of the specifications of learning rules, and their schedules.

Of each, `scale(at)` is the multiple of the learning rate for the step at a position.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, PositiveInt, model_validator

from curvflow.schemas.kinds.shared.networks import Init
from curvflow.schemas.params import Neutral, Params


class Position(NamedTuple):
    """The step that is to be taken, as schedules see it.

    Attributes:
        epoch: epochs completed.
        epochs: of the training.
        step: steps of the epoch that are completed.
        steps: of an epoch.
    """

    epoch: int
    epochs: int
    step: int = 0
    steps: int = 1


class Scheduled(Params):
    """Base of the schedules: they change by epoch or by step, after a warm-up.

    Reference: Goyal et al. (2017), arXiv:1706.02677, for the gradual warm-up.
    """

    per: Annotated[Literal["epoch", "step"], Neutral("epoch")] = Field(
        "epoch", description="whether the rate changes after each epoch or each step"
    )
    warmup_epochs: Annotated[int, Neutral(0)] = Field(
        0, ge=0, description="epochs in which the rate rises linearly at first"
    )
    warmup_steps: Annotated[int, Neutral(0)] = Field(
        0, ge=0, description="the same in steps, whatever the rest changes by"
    )

    @property
    def is_extendable(self) -> bool:
        """True if longer training begins as shorter training does."""
        return True

    @property
    def by_step(self) -> bool:
        """True if the rate may change within an epoch."""
        return self.per == "step" or self.warmup_steps > 0

    def scale(self, at: Position) -> float:
        """Return the multiple of the rate for a step.

        In a warm-up of n it is that of the schedule times 1, 2, ... n in n + 1.
        """
        if self.warmup_steps:
            done, length = at.epoch * at.steps + at.step, self.warmup_steps
        else:
            done, length = self._done(at), self.warmup_epochs * self._unit(at)
        return min(1.0, (done + 1) / (length + 1)) * self._height(at)

    def _height(self, at: Position) -> float:
        """Return the multiple apart from the warm-up."""
        raise NotImplementedError

    def _unit(self, at: Position) -> int:
        """Return in how many parts the rate may change in an epoch."""
        return at.steps if self.per == "step" else 1

    def _done(self, at: Position) -> int:
        """Return how many of these parts are completed."""
        return at.epoch * at.steps + at.step if self.per == "step" else at.epoch

    def _warmup(self, at: Position) -> float:
        """Return the length of the warm-up in these parts."""
        if self.warmup_steps:
            return self.warmup_steps * self._unit(at) / at.steps
        return self.warmup_epochs * self._unit(at)

    @model_validator(mode="after")
    def _has_one_warmup(self) -> Self:
        if self.warmup_epochs and self.warmup_steps:
            raise ValueError(
                "warmup_epochs cannot be combined with warmup_steps. Remove one."
            )
        return self


class Constant(Scheduled):
    """The rate is kept, after a warm-up if there is one."""

    kind: Literal["constant"] = "constant"

    def _height(self, at: Position) -> float:
        del at
        return 1.0


class Over(Scheduled):
    """A schedule that ends at an epoch; from there on it keeps its last value."""

    epochs: PositiveInt | None = Field(
        None, description="its length; null takes that of the training"
    )

    @property
    def is_extendable(self) -> bool:
        """True if longer training begins as shorter training does."""
        return self.epochs is not None

    def _length(self, at: Position) -> int:
        return (self.epochs or at.epochs) * self._unit(at)

    def _progress(self, at: Position) -> float:
        """Return the share that has passed of what follows the warm-up."""
        warmup = self._warmup(at)
        done, length = self._done(at) - warmup, self._length(at) - warmup
        return min(1.0, max(0.0, done) / length) if length > 0 else 0.0

    @model_validator(mode="after")
    def _outlasts_its_warmup(self) -> Self:
        if self.epochs is not None and self.warmup_epochs >= self.epochs:
            raise ValueError(
                f"expected warmup_epochs below the {self.epochs} epochs, got "
                f"{self.warmup_epochs}. Lower it."
            )
        return self


class Step(Scheduled):
    """The rate is multiplied by `factor` at each of some epochs."""

    kind: Literal["step"] = "step"
    at: Annotated[tuple[PositiveInt, ...], Field(strict=False)] = Field(
        min_length=1, description="epochs completed before each change, such as [100]"
    )
    factor: float = Field(0.1, gt=0, description="what the rate is multiplied by")

    def _height(self, at: Position) -> float:
        return self.factor ** sum(at.epoch >= change for change in self.at)


class Cosine(Over):
    """Half a cosine from the rate to `final` times the rate.

    Reference: Loshchilov and Hutter (2017), arXiv:1608.03983, eq. 5, without restarts.
    """

    kind: Literal["cosine"] = "cosine"
    final: float = Field(0.0, ge=0, le=1, description="last multiple of the rate")

    def _height(self, at: Position) -> float:
        return _between(1.0, self.final, self._progress(at), "cosine")


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

    def _height(self, at: Position) -> float:
        passed = (self._progress(at) - self.start) / (self.end - self.start)
        return _between(1.0, self.final, min(1.0, max(0.0, passed)), "linear")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.start >= self.end:
            raise ValueError(
                f"expected start below end, got {self.start:g} and {self.end:g}. Swap "
                "them, or move one."
            )
        return self


class OneCycle(Over):
    """The rate rises from `first` to 1 and falls to `final`, within the training.

    Reference: Smith and Topin (2019), arXiv:1708.07120, in three phases and linear;
    the defaults and where phases end are those of torch's `OneCycleLR`.
    """

    kind: Literal["one_cycle"] = "one_cycle"
    per: Literal["epoch", "step"] = Field(
        "step", description="whether the rate changes after each epoch or each step"
    )
    peak: float = Field(0.3, gt=0, lt=1, description="share at which it is 1")
    first: float = Field(0.04, gt=0, le=1, description="first multiple of the rate")
    final: float = Field(4e-6, gt=0, le=1, description="last multiple of the rate")
    shape: Literal["cosine", "linear"] = Field(
        "cosine", description="half cosines, or straight lines"
    )
    three_phase: bool = Field(
        False, description="fall to `first` as fast as it rose, and then to `final`"
    )

    def _height(self, at: Position) -> float:
        # The last value belongs to the last step, and a peak to the one before.
        length = self._length(at)
        ends = [self.peak * length - 1, length - 1.0]
        heights = [self.first, 1.0, self.final]
        if self.three_phase:
            ends.insert(1, 2 * self.peak * length - 2)
            heights.insert(2, self.first)
        done = min(self._done(at), length - 1)
        phase = next(number for number, end in enumerate(ends) if done <= end)
        start, end = ends[phase - 1] if phase else 0.0, ends[phase]
        passed = (done - start) / (end - start) if end > start else 1.0
        return _between(heights[phase], heights[phase + 1], passed, self.shape)

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        if self.three_phase and self.peak >= 0.5:
            raise ValueError(
                f"expected peak below 0.5 with three_phase, got {self.peak:g}. Lower "
                "it."
            )
        for name in ("warmup_epochs", "warmup_steps"):
            if getattr(self, name):
                raise ValueError(
                    f"{name} cannot be combined with one_cycle, which rises itself. "
                    "Set peak and first."
                )
        return self


class Cyclic(Scheduled):
    """The rate rises from `low` to 1 and falls to it, over and over.

    Reference: Smith (2017), arXiv:1506.01186, triangular and triangular2.
    """

    kind: Literal["cyclic"] = "cyclic"
    per: Literal["epoch", "step"] = Field(
        "step", description="whether the rate changes after each epoch or each step"
    )
    low: float = Field(0.1, gt=0, lt=1, description="lowest multiple of the rate")
    up: float = Field(gt=0, description="epochs in which it rises")
    down: float | None = Field(
        None, gt=0, description="epochs in which it falls; null takes as many"
    )
    halved: bool = Field(
        False, description="rise half as far above `low` in each cycle as in the last"
    )

    def _height(self, at: Position) -> float:
        rise = self.up * self._unit(at)
        length = rise + (self.down or self.up) * self._unit(at)
        cycle, passed = divmod(max(0.0, self._done(at) - self._warmup(at)), length)
        fall = (length - passed) / (length - rise)
        share = passed / rise if passed <= rise else fall
        share *= 2.0**-cycle if self.halved else 1.0
        return self.low + (1 - self.low) * share


def _between(first: float, last: float, passed: float, shape: str) -> float:
    """Return the height at a share of the way from one to another."""
    if shape == "cosine":
        passed = (1 - math.cos(math.pi * passed)) / 2
    return first - (first - last) * passed


Schedule = Annotated[
    Constant | Step | Cosine | Linear | OneCycle | Cyclic, Field(discriminator="kind")
]


class Rule(Params):
    """Base of the rules.

    Each rule narrows `rule` to a literal equal to its file's name. A field that is a
    float or a flag is a hyper-parameter: it may differ between the models of one
    program. All other fields are choices, which models trained together share.

    Attributes:
        not_inside: whether it can be no rule within another, as `lookahead` has one: it
            chooses its rate, or gives other weights than those it steps from.
        checks_problem: whether its functions refuse some models or losses, by `check`.
    """

    not_inside: ClassVar[bool] = False
    checks_problem: ClassVar[bool] = False

    rule: str
    init: Init | None = Field(
        None, description="law of the initial weights; null takes the model's"
    )
    schedule: Schedule | None = Field(
        None, description="how the learning rate changes; null keeps it"
    )
    clip_norm: Annotated[float | None, Neutral(None)] = Field(
        None,
        gt=0,
        description="largest Euclidean norm of a gradient, to which longer ones are "
        "shortened; null takes all as they are",
    )

    @property
    def module(self) -> str:
        """The place below `schemas/rules/`, as `adaptive.adam`.

        Its functions have the same below `tasks/rules/`.
        """
        return type(self).__module__.removeprefix("curvflow.schemas.rules.")

    @property
    def innermost(self) -> Rule:
        """The rule that steps, which may be one within this."""
        return self

    @property
    def is_extendable(self) -> bool:
        """True if longer training begins as shorter training does.

        True for constant and epoch-wise schedules. A rule that depends on the whole
        length, as a cosine without `epochs`, is trained from the beginning.
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
    def records(self) -> tuple[str, ...]:
        """Names of the numbers that the rule records, of `RULES_RECORD`."""
        return ()

    @property
    def has_preconditioner(self) -> bool:
        """True if steps are P^-1 times a mean of gradients, with a known P."""
        return False

    @property
    def has_blocks(self) -> bool:
        """True if P has a block for each layer, and is not diagonal."""
        return False

    def preconditioner_size(self, shapes: Sequence[tuple[int, ...]]) -> int:
        """Return how many numbers a stored P has, at most.

        Args:
            shapes: of the parameter tensors.
        """
        return sum(map(math.prod, shapes))

    @property
    def gradients_per_step(self) -> int:
        """Gradients of its batch that a step takes; `num_gradients` counts them."""
        return 1

    def product_from(self) -> int | None:
        """Return the epoch, from 0, from which `step` needs H w; None if never."""
        return None

    def averages_from(self) -> int:
        """Return the epochs completed when weights are first averaged; 0 if never."""
        return 0

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
OF_TRAINING = ("init", "schedule", "clip_norm")
