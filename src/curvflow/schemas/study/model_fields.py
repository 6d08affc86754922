"""Fields and union branches of a pydantic model at a location of an error."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Tag
from pydantic.fields import FieldInfo

from curvflow.schemas.by_name import ByName


@dataclass(frozen=True)
class Branch:
    """One model of a union.

    Attributes:
        model: the model.
        tag: its name in a union, if it was given one.
    """

    model: type[BaseModel]
    tag: str | None = None

    def names(self) -> list[str]:
        """Return its names in pydantic's locations: tag, literals, class."""
        literals = [
            typing.get_args(info.annotation)
            for info in self.model.model_fields.values()
            if typing.get_origin(info.annotation) is Literal
        ]
        # What tells the forms apart has one value in each; a choice has several.
        names = [str(value) for those in sorted(literals, key=len) for value in those]
        return [*([self.tag] if self.tag else []), *names, self.model.__name__]


def field_names(model: type[BaseModel], loc: tuple[Any, ...]) -> list[str]:
    """Return the sorted field names of the models that hold a misspelt field."""
    forms = _branches_at(model, loc[:-1])
    return sorted({info for f in forms for info in _keys(f.model)})


def branch_names(model: type[BaseModel], loc: tuple[Any, ...]) -> list[str]:
    """Return the names of the union branches of a value, in the order declared."""
    return [form.names()[0] for form in _branches_at(model, loc)]


def field_description(model: type[BaseModel], loc: tuple[Any, ...]) -> str:
    """Return the description of a field, empty if it has none."""
    for form in _branches_at(model, loc[:-1]):
        info = form.model.model_fields.get(loc[-1]) if loc else None
        if info is not None:
            return info.description or ""
    return ""


def _keys(model: type[BaseModel]) -> list[str]:
    return [info.alias or name for name, info in model.model_fields.items()]


def _branches_at(model: type[BaseModel], loc: tuple[Any, ...]) -> list[Branch]:
    forms = [Branch(model)]
    for part in loc:
        # A branch of a union comes before the field of that name within it.
        branch = [f for f in forms if len(forms) > 1 and part in f.names()]
        inner = [
            inside
            for form in forms
            for name, info in form.model.model_fields.items()
            if part in (name, info.alias)
            for inside in _branches(_whole(info))
        ]
        forms = branch or inner or forms
    return forms


def _whole(info: FieldInfo) -> Any:
    """Return the annotation of a field, with all models of one that is `ByName`."""
    unions = [mark.union() for mark in info.metadata if isinstance(mark, ByName)]
    return unions[0] if unions else info.annotation


def _branches(annotation: Any, tag: str | None = None) -> Iterator[Branch]:
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        named = [mark.tag for mark in inside[1:] if isinstance(mark, Tag)]
        yield from _branches(inside[0], named[0] if named else tag)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield Branch(annotation, tag)
    elif origin in (typing.Union, types.UnionType, list, tuple, dict):
        for part in inside:
            yield from _branches(part)
