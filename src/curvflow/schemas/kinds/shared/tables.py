"""Parameters that tables share: names, laws, columns and unconverged values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from curvflow.schemas.checks.name_checks import not_single
from curvflow.schemas.kind import ParamProblem, Taken, Variable
from curvflow.schemas.nodes import FAILED
from curvflow.schemas.params import Names, Neutral, Params


def _several(value: object) -> object:
    return (value,) if isinstance(value, str) else value


# `over: seed` and `over: [seed]` are one value, so that they have one key.
OneOrMoreNames = Annotated[
    Names,
    BeforeValidator(_several),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}},
            ]
        }
    ),
]


class SideBySide(Params):
    """Axes that have rows, and variables that have columns."""

    rows: OneOrMoreNames = Field(
        min_length=1,
        description="axes each of whose labels has a row; a stage that lacks some of "
        "them repeats its values",
    )
    quantities: OneOrMoreNames | None = Field(
        None,
        description="variables; main takes what the kinds declare to be their result, "
        "null all numbers that tables hold",
    )


def failed(dim: str = "quantity") -> Variable:
    """Declare the count of failed nodes; only tables made without them have it."""
    return Variable(
        FAILED,
        "nodes of the stages taken that failed; the table is made without them",
        (dim,),
        dtype="int64",
        optional=True,
    )


OUTPUTS = (
    Variable("row", "labels of the row", ("row",), dtype="str"),
    Variable(
        "column",
        "variable, with the stage's name before it if several stages have it and the "
        "element's label behind it if it has several",
        ("column",),
        dtype="str",
    ),
    Variable("column_units", "units of the column", ("column",), dtype="str"),
    Variable(
        "value",
        "the number; NaN unless it is ok",
        ("row", "column"),
        units="as the column",
    ),
    Variable(
        "cell",
        "ok, diverged, nonfinite or missing",
        ("row", "column"),
        dtype="str",
    ),
    failed("row"),
    Variable(
        "wide",
        "the same as a file: a line per row, a column per column",
        ("byte",),
        dtype="uint8",
        bulk=True,
        file=".wide.csv",
    ),
)


class NumericX(Params):
    """Numbers x that a quantity is looked at along: labels, or another variable."""

    along: str | None = Field(
        None, description="axis whose labels, which are numbers, are x"
    )
    x: str | None = Field(
        None, description="variable that is x instead, of the same or another stage"
    )

    @model_validator(mode="after")
    def _one_x(self) -> NumericX:
        if (self.along is None) == (self.x is None):
            got = "neither" if self.x is None else "both"
            raise ValueError(
                f"expected one of 'along', an axis, and 'x', a variable, got {got}. "
                "Name one."
            )
        return self


class ScalingLaw(NumericX):
    """y = prefactor x^exponent, and what x and y are."""

    y: str = Field(description="variable that the law is of, a number per node")
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


def check_names(params: ScalingLaw, taken: Taken) -> Iterator[ParamProblem]:
    """Find variables that are no single number of one stage.

    Args:
        params: the law's.
        taken: the kinds of the stages taken.

    Yields:
        The fault of a name.
    """
    yield from not_single("y", [params.y], taken)
    if params.x is not None:
        yield from not_single("x", [params.x], taken)


Unconverged = Annotated[
    Literal["count", "exclude"],
    Neutral("count"),
    Field(
        description="of values that are not converged, such as those of chains that "
        "drift, or of too few iterations: count says in a column how many there are; "
        "exclude leaves them out as well, as if they were not finite"
    ),
]

# What verdicts say of values that can be relied on, and of others that give no reason.
CONVERGED, UNCONVERGED = "converged", "unconverged"

# The columns of tables that hold how many there are.
COUNTS = (UNCONVERGED, f"candidate_{UNCONVERGED}")


def unconverged(
    description: str, dim: str = "quantity", name: str = COUNTS[0]
) -> Variable:
    """Declare the column that counts them; only tables of what is judged have it."""
    return Variable(name, description, (dim,), dtype="int64", optional=True)
