"""Fields whose model is found by the name in their value, in the file of that name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from pkgutil import iter_modules
from typing import Annotated, Any

from pydantic import (
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)
from pydantic.json_schema import JsonSchemaValue

from curvflow.schemas.params import Params

# A template that has a reference within a value makes another value at each point.
MOST_KEPT = 256


class Siblings:
    """Models of the values of one template, as the context of validations.

    These values do not change: one object in many sets of parameters is validated
    once for each union, and is one model in all.
    """

    def __init__(self) -> None:
        """Start with none."""
        # By identity; a value that is kept leaves its identity to no other.
        self._known: dict[tuple[int, int], tuple[object, Params]] = {}

    def find(self, union: ByName, value: object) -> Params | None:
        """Return the model of a value that a union validated before."""
        known = self._known.get((id(union), id(value)))
        return known[1] if known else None

    def keep(self, union: ByName, value: object, params: Params) -> Params:
        """Keep the model of a value, and return it."""
        if len(self._known) < MOST_KEPT:
            self._known[id(union), id(value)] = value, params
        return params


@cache
def modules_by_name(package: str) -> Mapping[str, str]:
    """Return the modules of a package and its folders by their names, sorted.

    A name that `_` begins is left out; a folder of such files alone is one module.

    Args:
        package: its dotted name.

    Returns:
        The dotted names below the package, as `adaptive.adam` of `adam`.
    """
    return dict(sorted(_modules_in(import_module(package).__path__)))


def _modules_in(folders: Iterable[str], above: str = "") -> Iterator[tuple[str, str]]:
    # The folders are listed, not imported: a study that names one rule loads no others.
    for folder in folders:
        for info in iter_modules([folder]):
            if info.name.startswith("_"):
                continue
            name, inner = f"{above}{info.name}", [f"{folder}/{info.name}"]
            within = _modules_in(inner if info.ispkg else (), f"{name}.")
            yield from tuple(within) or [(info.name, name)]


@dataclass(frozen=True)
class ByName:
    """Mark of a field: of all models of a union, those that values name are loaded.

    What is wrong with a value says the whole union, which is loaded then, and for a
    JSON Schema.

    Attributes:
        find: returns the model that a value names, if a file has its name.
        union: returns the union of all.
    """

    find: Callable[[object], type[Params] | None]
    union: Callable[[], Any]

    @cached_property
    def _all(self) -> TypeAdapter[Params]:
        return TypeAdapter(self.union())

    def _validate(self, value: object, info: ValidationInfo) -> Params:
        siblings = info.context if isinstance(info.context, Siblings) else Siblings()
        if (known := siblings.find(self, value)) is not None:
            return known
        if model := self.find(value):
            try:
                return siblings.keep(self, value, model.model_validate(value))
            except ValidationError:
                pass
        return siblings.keep(self, value, self._all.validate_python(value))

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> Any:
        """Return a schema that knows of no model yet."""
        del source
        annotation = Annotated[Any, PlainValidator(self._validate)]
        return handler.generate_schema(annotation)

    def __get_pydantic_json_schema__(
        self, schema: Any, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the JSON Schema of the union."""
        del schema
        return handler(self._all.core_schema)
