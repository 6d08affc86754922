"""The page of one kind: all that a study can write for it, within 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from curvflow.schemas.draft import takes_weights
from curvflow.schemas.jsonschema import AT
from curvflow.schemas.kind import Kind
from curvflow.schemas.variables import Variable
from curvflow.schemas.written import shown

_WIDTH = 80
_TYPES = {"string": "text", "boolean": "true | false"}
_REFERENCES = 'Any value may be "${axis}" or "${axis.field}", in quotes.'
Schema = Mapping[str, Any]


def kind_page(kind: Kind) -> str:
    """Describe one kind with its inputs, parameters and variables.

    Args:
        kind: the declaration.

    Returns:
        Several lines.
    """
    schema = kind.params.model_json_schema()
    forms = _Forms(schema.get("$defs", {}))
    lines = _wrapped(f"{kind.name} (version {kind.version})", 0)
    lines += _wrapped(kind.summary, 2)
    if kind.inputs:
        lines += ["inputs", *_inputs(kind)]
    if takes_weights(kind):
        lines += ["epochs", *forms.field("at", AT, 2)]
    parameters = forms.fields(schema, 2)
    lines += ["parameters", *(parameters or ["  none"])]
    if parameters:
        lines += _wrapped(_REFERENCES, 2)
    lines.append(f"returns {kind.returns.__name__}")
    lines += [line for v in kind.outputs for line in _wrapped(_variable(v), 2)]
    return "\n".join(lines)


def _inputs(kind: Kind) -> Iterator[str]:
    for name, taken in kind.inputs.items():
        text = f"{name}: a stage that returns {taken.edge.__name__}"
        if taken.many:
            text += " or a list of such stages"
        need = " (required)"
        if taken.follows:
            need = f", by default the {name} of its {taken.follows}"
        elif taken.unless:
            need = f" (this or {' or '.join(taken.unless)})"
        elif taken.optional:
            need = " (optional)"
        yield from _wrapped(f"{text}{need}", 2)


def _variable(variable: Variable) -> str:
    dims = f"({', '.join(variable.dims)})"
    head = f"{variable.name} {dims} {variable.dtype} [{variable.units}]"
    return f"{head}: {variable.description}"


def _wrapped(text: str, indent: int) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 4),
        break_on_hyphens=False,
    )


class _Forms:
    """Writes JSON Schema as a person would; explains each mapping only once."""

    def __init__(self, definitions: Schema) -> None:
        self.definitions = definitions
        self.explained: list[Schema] = []

    def fields(self, schema: Schema, indent: int) -> list[str]:
        """Describe the fields of a mapping, apart from those that tell its form."""
        needed = schema.get("required", ())
        return [
            line
            for name, item in schema.get("properties", {}).items()
            if "const" not in item
            for line in self.field(name, item, indent, required=name in needed)
        ]

    def field(
        self, name: str, schema: Schema, indent: int, *, required: bool = False
    ) -> list[str]:
        """Describe one field, then the mappings that it may hold."""
        need = " (required)" if required else " (optional)"
        if "default" in schema:
            need = f", default {_plain(schema['default'])}"
        description = schema.get("description", "")
        text = f"{name}: {self.type(schema)}{need}"
        lines = _wrapped(f"{text}; {description}" if description else text, indent)
        for form in self.mappings(schema):
            if form not in self.explained:
                self.explained.append(form)
                lines += self.explanation(form, indent + 2)
        return lines

    def explanation(self, form: Schema, indent: int) -> list[str]:
        """Describe one form of a mapping."""
        text = f"{self.type(form)}: {form.get('description', '')}".rstrip(": ")
        return [*_wrapped(text, indent), *self.fields(form, indent + 2)]

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
            return " | ".join(map(_plain, choices))
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


def _plain(value: object) -> str:
    return value if isinstance(value, str) and value else shown(value)
