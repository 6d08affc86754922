"""Which fields and forms a parameter model knows at some depth."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Tag


@dataclass(frozen=True)
class Branch:
    """One model that a value may take the form of.

    Attributes:
        model: the model.
        tag: its name in a union, if it was given one.
    """

    model: type[BaseModel]
    tag: str | None = None

    def names(self) -> list[str]:
        """Return the names it goes by in a union: tag, literals, class."""
        literals = [
            str(value)
            for info in self.model.model_fields.values()
            if typing.get_origin(info.annotation) is Literal
            for value in typing.get_args(info.annotation)
        ]
        return [*([self.tag] if self.tag else []), *literals, self.model.__name__]


def field_names(model: type[BaseModel], loc: tuple[Any, ...]) -> list[str]:
    """List the fields that a model knows beside a misspelt one.

    Args:
        model: the outermost model.
        loc: pydantic's location of the misspelt field.

    Returns:
        Names, sorted.
    """
    forms = _branches_at(model, loc[:-1])
    return sorted({info for f in forms for info in _keys(f.model)})


def branch_names(model: type[BaseModel], loc: tuple[Any, ...]) -> list[str]:
    """List the forms among which a value had to choose.

    Args:
        model: the outermost model.
        loc: pydantic's location of the value.

    Returns:
        The names of the forms, in the order declared.
    """
    return [form.names()[0] for form in _branches_at(model, loc)]


def field_description(model: type[BaseModel], loc: tuple[Any, ...]) -> str:
    """Return what a field says that it is.

    Args:
        model: the outermost model.
        loc: pydantic's location of the field.

    Returns:
        Its description, empty if it has none.
    """
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
            for inside in _branches(info.annotation)
        ]
        forms = branch or inner or forms
    return forms


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
