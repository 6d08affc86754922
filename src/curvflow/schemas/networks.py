"""Specifications of models and of their initial weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, PositiveInt, Tag, TypeAdapter

from curvflow.schemas.factory import Factory
from curvflow.schemas.params import Params

Activation = Literal["relu", "tanh", "gelu", "sigmoid", "identity"]


class Normal(Params):
    """All weights and biases from N(0, normal^2)."""

    normal: float = Field(gt=0, description="standard deviation, not the variance")


class Uniform(Params):
    """All weights and biases from the uniform law on [-uniform, uniform]."""

    uniform: float = Field(gt=0, description="largest absolute value")


class Glorot(Params):
    """Weights uniform within +-glorot sqrt(6 / (fan_in + fan_out)), biases zero."""

    glorot: float = Field(gt=0, description="factor on the bound of Glorot and Bengio")


def _only_key(value: object) -> str | None:
    if isinstance(value, Params):
        return next(iter(type(value).model_fields))
    if isinstance(value, Mapping) and len(value) == 1:
        return str(next(iter(value)))
    return None


Init = Annotated[
    Annotated[Normal, Tag("normal")]
    | Annotated[Uniform, Tag("uniform")]
    | Annotated[Glorot, Tag("glorot")],
    Discriminator(_only_key),
]


class Mlp(Params):
    """Dense layers with one activation between them and a linear last layer."""

    kind: Literal["mlp"] = "mlp"
    hidden: Annotated[tuple[PositiveInt, ...], Field(strict=False)] = Field(
        description="widths of the hidden layers, first to last; none is linear"
    )
    activation: Activation = Field("relu", description="between the layers")
    bias: bool = Field(True, description="whether every layer has a bias")
    init: Init = Field(Glorot(glorot=1.0), description="law of the initial weights")


class Linear(Params):
    """One dense layer: linear or softmax regression."""

    kind: Literal["linear"] = "linear"
    bias: bool = Field(True, description="whether the layer has a bias")
    init: Init = Field(Glorot(glorot=1.0), description="law of the initial weights")


class FactoryModel(Factory):
    """A `torch.nn.Module` that a function of the user's own returns."""

    init: Init | None = Field(
        None, description="law of the initial weights; null keeps the module's own"
    )


def _model_tag(value: object) -> str | None:
    if isinstance(value, Params):
        return str(getattr(value, "kind", "factory"))
    if not isinstance(value, Mapping):
        return None
    if "kind" in value:
        return str(value["kind"])
    return "factory" if "factory" in value else None


ModelSpec = Annotated[
    Annotated[Mlp, Tag("mlp")]
    | Annotated[Linear, Tag("linear")]
    | Annotated[FactoryModel, Tag("factory")],
    Discriminator(_model_tag),
]

_adapter: TypeAdapter[Mlp | Linear | FactoryModel] = TypeAdapter(ModelSpec)


def parse_model(plain: Mapping[str, Any]) -> Mlp | Linear | FactoryModel:
    """Turn plain values back into the specification they came from.

    Args:
        plain: as `model_dump` gives it.

    Returns:
        The specification.
    """
    return _adapter.validate_python(plain)
