"""Schedules: what the learning rate is multiplied by, epoch by epoch.

Of each, `scale(epoch, epochs)` is the multiple in the epoch under way, from 0, of a
training of so many epochs.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from curvflow.schemas.params import Params


class Over(Params):
    """A schedule that ends at an epoch; from there on it keeps its last value."""

    epochs: PositiveInt | None = Field(
        None, description="its length; null takes that of the training"
    )

    @property
    def is_extendable(self) -> bool:
        """Whether longer training begins as shorter training does."""
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
        """Whether longer training begins as shorter training does."""
        return True

    def scale(self, epoch: int, epochs: int) -> float:
        """Return the power of `factor` that an epoch has come to."""
        del epochs
        return self.factor ** sum(epoch >= one for one in self.at)


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
