"""Laws of initial weights.

They draw weights and biases; scales and shifts of a normalisation begin at 1 and 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from curvflow.schemas.params import Params


class Normal(Params):
    """Weights from N(0, normal^2), biases from N(0, bias^2)."""

    normal: float = Field(gt=0, description="standard deviation, not the variance")
    bias: float | None = Field(
        None, ge=0, description="standard deviation of biases; null for that of weights"
    )


class Uniform(Params):
    """All weights and biases from the uniform law on [-uniform, uniform]."""

    uniform: float = Field(gt=0, description="largest absolute value")


class UniformPositive(Params):
    """All weights and biases from the uniform law on [0, uniform_positive]."""

    uniform_positive: float = Field(gt=0, description="largest value")


class Glorot(Params):
    """Weights uniform within +-glorot sqrt(6 / (fan_in + fan_out)), biases zero."""

    glorot: float = Field(gt=0, description="factor on the bound of Glorot and Bengio")


class VarianceScaling(Params):
    """Weights from a normal law cut at two deviations, of variance scale / fan.

    The law is corrected for the cut, so that the variance is what it says.
    """

    variance_scaling: float = Field(gt=0, description="scale of the variance")
    fan: Literal["in", "avg"] = Field(
        "avg", description="inputs of a unit, or the mean of its inputs and outputs"
    )
    bias: float = Field(0.0, ge=0, description="standard deviation of biases")


class FanIn(Params):
    """Weights from N(0, fan_in / inputs of the unit), biases zero, maybe unbalanced."""

    fan_in: float = Field(gt=0, description="variance times the inputs of a unit")
    unbalanced: float | None = Field(
        None,
        gt=0,
        description="dense networks only: as many times as a hidden layer has units, "
        "one of them is drawn, what comes in is multiplied and what goes out divided "
        "by unbalanced x c, c log-normal; the function stays the same for relu",
    )


def _main_key(value: object) -> str | None:
    if isinstance(value, Params):
        return next(iter(type(value).model_fields))
    keys = list(value) if isinstance(value, Mapping) else []
    found = [key for key in keys if key in LAWS]
    if len(found) == 1:
        return str(found[0])
    return str(keys[0]) if len(keys) == 1 else None


LAWS = (
    "normal",
    "uniform",
    "uniform_positive",
    "glorot",
    "variance_scaling",
    "fan_in",
)

Init = Annotated[
    Annotated[Normal, Tag("normal")]
    | Annotated[Uniform, Tag("uniform")]
    | Annotated[UniformPositive, Tag("uniform_positive")]
    | Annotated[Glorot, Tag("glorot")]
    | Annotated[VarianceScaling, Tag("variance_scaling")]
    | Annotated[FanIn, Tag("fan_in")],
    Discriminator(_main_key),
]
