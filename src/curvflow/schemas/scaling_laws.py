"""What a power law is fitted to."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field, model_validator

from curvflow.schemas.kind import Misnomer, Taken
from curvflow.schemas.names import OneOrMoreNames
from curvflow.schemas.params import Params
from curvflow.schemas.single_numbers import not_single


class ScalingLaw(Params):
    """y = prefactor x^exponent, and what x and y are."""

    y: str = Field(description="variable that the law is of, a number per node")
    along: str | None = Field(
        None, description="axis whose labels, which are numbers, are x"
    )
    x: str | None = Field(
        None, description="variable that is x instead, of the same or another stage"
    )
    over: OneOrMoreNames | None = Field(
        None,
        description="axes of the repetitions, such as seeds, which the bootstrap draws "
        "anew; without any it draws points",
    )
    each: OneOrMoreNames = Field(
        (),
        description="further axes each of whose labels has a point, such as that which "
        "changes x where this is a variable",
    )
    label: str | None = Field(None, description="axis whose labels have a law each")
    confidence: float = Field(0.95, gt=0, lt=1, description="coverage of the intervals")
    num_resamples: int = Field(9999, ge=100, description="samples of the bootstrap")
    seed: int = Field(0, ge=0, description="seed of the bootstrap")

    @model_validator(mode="after")
    def _one_x(self) -> ScalingLaw:
        if (self.along is None) == (self.x is None):
            got = "neither" if self.x is None else "both"
            raise ValueError(
                f"expected one of 'along', an axis, and 'x', a variable, got {got}. "
                "Name one."
            )
        return self


def misnamed(params: ScalingLaw, taken: Taken) -> Iterator[Misnomer]:
    """Find variables that are no single number of one stage.

    Args:
        params: the law's.
        taken: the kinds of the stages taken.

    Yields:
        What is wrong with a name.
    """
    yield from not_single("y", [params.y], taken)
    if params.x is not None:
        yield from not_single("x", [params.x], taken)
