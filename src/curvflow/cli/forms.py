"""Types of parameters in words: choices, bounds, lists and mappings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from curvflow.schemas.study.yaml_source import shown

_TYPES = {"string": "text", "boolean": "true | false"}
Schema = Mapping[str, Any]


class Forms:
    """Names the types of a JSON Schema as a person would."""

    def __init__(self, definitions: Schema) -> None:
        """Remember the schemas that others refer to, by name."""
        self.definitions = definitions

    def mappings(self, schema: Schema) -> Iterator[Schema]:
        """Yield the mappings with named fields that a value may be or hold."""
        if "$ref" in schema:
            schema = self.definitions[schema["$ref"].rpartition("/")[2]]
            if "properties" in schema:
                yield schema
                return
        inner = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
        inner += schema.get("prefixItems", ())
        inner += [schema[k] for k in ("items", "additionalProperties") if k in schema]
        for item in inner:
            if isinstance(item, Mapping):
                yield from self.mappings(item)

    def type(self, schema: Schema) -> str:
        """Name the type of a value with its bounds, or its choices."""
        if "$ref" in schema:
            return self.type(self.definitions[schema["$ref"].rpartition("/")[2]])
        choices = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
        if choices:
            return " | ".join(map(plain, choices))
        if forms := schema.get("anyOf") or schema.get("oneOf"):
            return " | ".join(map(self.type, forms))
        named = schema.get("type", "any value")
        if named == "object":
            return self.mapping(schema)
        if named == "array":
            return self.sequence(schema)
        return f"{_TYPES.get(named, named)}{_bounds(schema)}"

    def mapping(self, schema: Schema) -> str:
        """Write a mapping by the fields that tell it from others."""
        fields = schema.get("properties")
        if not fields:
            values = schema.get("additionalProperties")
            return f"mapping to {self.type(values) if values else 'any value'}"
        telling = [name for name, item in fields.items() if "const" in item]
        telling = telling or schema.get("required") or []
        inside = [f"{name}: {self.type(fields[name])}" for name in telling]
        inside += ["..."] if len(telling) < len(fields) else []
        return "{" + ", ".join(inside) + "}"

    def sequence(self, schema: Schema) -> str:
        """Write a list by its items."""
        if items := schema.get("prefixItems"):
            return "[" + ", ".join(map(self.type, items)) + "]"
        what = f"[{self.type(schema.get('items', {}))}, ...]"
        least = schema.get("minItems", 0)
        return f"{what} of at least {least}" if least > 1 else what


def _bounds(schema: Schema) -> str:
    low = _bound(schema, ("exclusiveMinimum", "<"), ("minimum", "<="))
    high = _bound(schema, ("exclusiveMaximum", "<"), ("maximum", "<="))
    if low and high:
        text = f" {low[0]} {low[1]} . {high[1]} {high[0]}"
    elif low:
        text = f" {low[1].replace('<', '>')} {low[0]}"
    else:
        text = f" {high[1]} {high[0]}" if high else ""
    step = schema.get("multipleOf")
    return f"{text}, a multiple of {step}" if step else text


def _bound(schema: Schema, *keys: tuple[str, str]) -> tuple[Any, str] | None:
    return next(((schema[key], sign) for key, sign in keys if key in schema), None)


def plain(value: object) -> str:
    """Write a value as a study would."""
    return value if isinstance(value, str) and value else shown(value)
