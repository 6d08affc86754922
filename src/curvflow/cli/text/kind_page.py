"""The page of one kind: its inputs, parameters and variables, within 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from curvflow.errors import UnknownNameError, nearest
from curvflow.schemas.explanations import Explanation, explanations
from curvflow.schemas.kind import Kind, Variable
from curvflow.schemas.params import Params
from curvflow.schemas.study.draft import takes_weights
from curvflow.schemas.study.jsonschema import AT
from curvflow.schemas.study.yaml_source import short_yaml

_TYPES = {"string": "text", "boolean": "true | false"}
Schema = Mapping[str, Any]


class TypeNames:
    """Readable names of the types in a JSON Schema."""

    def __init__(self, definitions: Schema) -> None:
        """Store the schemas that others refer to, by name."""
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
        """Write a mapping by the fields that distinguish it."""
        fields = schema.get("properties")
        if not fields:
            values = schema.get("additionalProperties")
            return f"mapping to {self.type(values) if values else 'any value'}"
        required = [name for name, item in fields.items() if "const" in item]
        required = required or schema.get("required") or []
        inside = [f"{name}: {self.type(fields[name])}" for name in required]
        inside += ["..."] if len(required) < len(fields) else []
        return "{" + ", ".join(inside) + "}"

    def sequence(self, schema: Schema) -> str:
        """Write a list by its items."""
        if items := schema.get("prefixItems"):
            return "[" + ", ".join(map(self.type, items)) + "]"
        text = f"[{self.type(schema.get('items', {}))}, ...]"
        least = schema.get("minItems", 0)
        return f"{text} of at least {least}" if least > 1 else text


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
    return value if isinstance(value, str) and value else short_yaml(value)


_WIDTH = 80
_MANY = 6  # forms of one parameter, beyond which their number stands for them
_LONG = 30  # lines on the forms of one parameter, beyond which each has one
_REFERENCES = 'Any value may be "${axis}" or "${axis.field}", in quotes.'


def kind_page(kind: Kind, *, name: str = "", whole: bool = False) -> str:
    """Return the page of a kind; `whole` prints all forms of every parameter."""
    schema = _schema(kind.params)
    explanation = _explanation(kind)
    forms = _writer(kind, schema, "" if whole else name or kind.name)
    lines = _wrapped(f"{kind.name} (version {kind.version})", 0)
    lines += _wrapped(kind.summary, 2)
    lines += _explanation_lines(explanation) if explanation else []
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
    if explanation:
        lines += [
            "example",
            *(f"  {line}" for line in explanation.example.splitlines()),
        ]
    return "\n".join(lines)


@cache
def _schema(params: type[Params]) -> Schema:
    """Return the JSON Schema of parameters, which several pages of a kind read."""
    return params.model_json_schema()


def parameter_page(kind: Kind, path: str) -> str:
    """Return one parameter in full, or with `rule.sgd` one of its forms."""
    schema = _schema(kind.params)
    forms = _writer(kind, schema, "")
    name, dot, wanted = path.partition(".")
    parameter = _known(name, schema.get("properties", {}), f"{kind.name}: a parameter")
    if not dot:
        needed = name in schema.get("required", ())
        return "\n".join(forms.field(name, parameter, 0, required=needed))
    named = {_form_name(form): form for form in forms.mappings(parameter)}
    form = _known(wanted, named, f"{kind.name}: a form of {name}")
    return "\n".join(forms.explanation(form, 0, f"{name}."))


def _known(name: str, known: Mapping[str, Schema], place: str) -> Schema:
    if name not in known:
        of, _, expected = place.partition(": ")
        hint = nearest(name, known) or "It has none."
        raise UnknownNameError(f"{of}: expected {expected}, got '{name}'. {hint}")
    return known[name]


def _form_name(form: Schema) -> str:
    """Return the word by which one form of a mapping is chosen, such as `sgd`."""
    fields = form["properties"]
    chosen = (item["const"] for item in fields.values() if "const" in item)
    return str(next(chosen, next(iter(form.get("required", fields)))))


def _explanation(kind: Kind) -> Explanation | None:
    return explanations().get(kind.name) if not kind.home else None


def _writer(kind: Kind, schema: Schema, shortened: str) -> _FieldWriter:
    explanation = _explanation(kind)
    units = explanation.units_of(kind.params.model_fields) if explanation else {}
    return _FieldWriter(schema.get("$defs", {}), units, shortened)


def _explanation_lines(explanation: Explanation) -> list[str]:
    texts = {
        "formula": explanation.formula,
        "source": explanation.source,
        "cost": explanation.cost,
    }
    return [line for name in texts for line in (name, *_wrapped(texts[name], 2))]


def _inputs(kind: Kind) -> Iterator[str]:
    for name, taken in kind.inputs.items():
        text = f"{name}: a stage that returns {taken.edge.__name__}"
        if taken.many:
            text += " or a list of such stages"
        need = " (required)"
        if taken.follows:
            need = f", by default the {name} of its {' or '.join(taken.sources)}"
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


class _FieldWriter(TypeNames):
    """Writes fields line by line; explains each mapping only once."""

    def __init__(
        self, definitions: Schema, units: Mapping[str, str], shortened: str
    ) -> None:
        super().__init__(definitions)
        self.units = units
        self.shortened = shortened  # the kind's name, if long parameters are cut
        self.explained: list[Schema] = []

    def fields(self, schema: Schema, indent: int, prefix: str = "") -> list[str]:
        """Describe the fields of a mapping, except those that choose its form."""
        needed = schema.get("required", ())
        return [
            line
            for name, item in schema.get("properties", {}).items()
            if "const" not in item
            for line in self.field(
                name, item, indent, prefix=prefix, required=name in needed
            )
        ]

    def field(
        self,
        name: str,
        schema: Schema,
        indent: int,
        *,
        prefix: str = "",
        required: bool = False,
    ) -> list[str]:
        """Describe one field, then the mappings that it may hold."""
        need = " (required)" if required else " (optional)"
        if "default" in schema:
            need = f", default {plain(schema['default'])}"
        description = schema.get("description", "")
        unit = self.units.get(prefix + name)
        before, new = [*self.explained], []
        for form in self.mappings(schema):
            if form not in self.explained:
                self.explained.append(form)
                new += self.explanation(form, indent + 2, f"{prefix}{name}.")
        shape = self.type(schema)
        if self.shortened and not prefix and len(new) > _LONG:
            self.explained = before
            forms = [*self.mappings(schema)]
            new = self.listed(name, forms, indent + 2)
            if len(forms) > _MANY:
                shape = f"one of {len(forms)} forms"
        text = f"{name}: {shape}{f' [{unit}]' if unit else ''}{need}"
        lines = _wrapped(f"{text}; {description}" if description else text, indent)
        return lines + new

    def listed(self, name: str, forms: Sequence[Schema], indent: int) -> list[str]:
        """Describe each form of a long parameter on one line, and name the command."""
        lines = []
        for form in forms:
            summary, _, _ = form.get("description", "").partition("\n\n")
            lines += _wrapped(f"{_form_name(form)}: {summary}".rstrip(": "), indent)
        example = f"{self.shortened} {name}.{_form_name(forms[0])}"
        return [*lines, *_wrapped(f"one in full: curvflow kinds {example}", indent)]

    def explanation(self, form: Schema, indent: int, prefix: str) -> list[str]:
        """Describe one form of a mapping."""
        text = f"{self.type(form)}: {form.get('description', '')}".rstrip(": ")
        return [*_wrapped(text, indent), *self.fields(form, indent + 2, prefix)]
