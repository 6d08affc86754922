"""Specifications of models, found by their files; no list is kept.

A model is one file here or in a folder of its family, which names its specification
`MODEL`, and one file of the same place in `tasks/models/`, which holds its function
`build`. `EXPLANATION` is its section of the documentation.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import cache, reduce
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Discriminator, Tag, TypeAdapter

from curvflow.schemas.by_name import ByName, modules_by_name
from curvflow.schemas.explanations import Section
from curvflow.schemas.models._base import Model
from curvflow.schemas.models.factory import FactoryModel
from curvflow.schemas.params import Params

__all__ = [
    "AnyModel",
    "ModelSpec",
    "all_models",
    "model_name",
    "parse_model",
    "sections",
]

AnyModel = Model | FactoryModel


def _module(name: str) -> ModuleType:
    return import_module(f"{__name__}.{modules_by_name(__name__)[name]}")


def all_models() -> dict[str, type[Params]]:
    """Return the specification of every model by its name, sorted."""
    return {name: _module(name).MODEL for name in modules_by_name(__name__)}


def sections() -> dict[str, Section]:
    """Return the section of the documentation of every model, by its name."""
    return {name: _module(name).EXPLANATION for name in modules_by_name(__name__)}


def model_name(value: object) -> str | None:
    """Return the name of a model from its specification, checked or as written."""
    if isinstance(value, Params):
        return str(getattr(value, "kind", "factory"))
    if not isinstance(value, Mapping):
        return None
    if "kind" in value:
        return str(value["kind"])
    return "factory" if "factory" in value else None


def _named(value: object) -> type[Params] | None:
    """Return the model that a specification names, if there is one."""
    name = model_name(value)
    return _model_in_its_file(name) if name in modules_by_name(__name__) else None


@cache
def _model_in_its_file(name: str) -> type[Params]:
    model: type[Params] = _module(name).MODEL
    return model


def _union() -> Any:
    """Return the union of all models."""
    models = (Annotated[model, Tag(name)] for name, model in all_models().items())
    return Annotated[reduce(operator.or_, models), Discriminator(model_name)]


if TYPE_CHECKING:
    ModelSpec = AnyModel
else:
    ModelSpec = Annotated[AnyModel, ByName(_named, _union)]

_adapter: TypeAdapter[AnyModel] = TypeAdapter(ModelSpec)


def parse_model(plain: Mapping[str, Any]) -> AnyModel:
    """Turn plain values back into the specification they came from.

    Args:
        plain: as `model_dump` gives it.

    Returns:
        The specification.
    """
    return _adapter.validate_python(plain)
