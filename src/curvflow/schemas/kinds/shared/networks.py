"""Laws of initial weights, and references to a user's own function.

They draw weights and biases; scales and shifts of a normalisation begin at 1 and 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from importlib import import_module
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, JsonValue, Tag

from curvflow.errors import InputError, nearest
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
    laws = [key for key in keys if key in LAWS]
    if len(laws) == 1:
        return str(laws[0])
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


class Factory(Params):
    """Function of the user's own that returns a model or a data set."""

    names_code_in: ClassVar[str] = "factory"

    factory: str = Field(
        pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$",
        description="`package.module:function`",
    )
    kwargs: dict[str, JsonValue] = Field(
        default_factory=dict, description="keyword arguments of the function"
    )

    def call(self) -> Any:
        """Import the function and call it with the keyword arguments.

        Returns:
            What the function returned.

        Raises:
            InputError: the module or the function does not exist, or does not take
                these arguments.
            TypeError: as any other error, if the function itself raises it.
        """
        function = self.find()
        try:
            # It may change them, and is called more than once.
            return function(**deepcopy(self.kwargs))
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next:
                raise  # the function was called, and something in it failed
            raise InputError(
                f"factory: expected {self.factory} to take the keyword arguments "
                f"{', '.join(self.kwargs) or '(none)'}, got TypeError: {error}. "
                "Correct kwargs."
            ) from error

    def find(self) -> Callable[..., Any]:
        """Import the function.

        Returns:
            The function, which has not been called.

        Raises:
            InputError: the module or the function does not exist.
        """
        path, _, name = self.factory.partition(":")
        try:
            module = import_module(path)
        except ModuleNotFoundError as error:
            raise InputError(
                f"factory: expected a module that can be imported, got '{path}' "
                f"({error}). Install it, or add its folder to PYTHONPATH."
            ) from error
        function = getattr(module, name, None)
        if not callable(function):
            known = [n for n, v in vars(module).items() if callable(v)]
            raise InputError(
                f"factory: expected a function of module '{path}', got '{name}'. "
                f"{nearest(name, known)}"
            )
        checked: Callable[..., Any] = function
        return checked
