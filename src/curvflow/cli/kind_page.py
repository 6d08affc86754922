"""The page of one kind: all that a study can write for it, within 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping

from curvflow.cli.forms import Forms, Schema, plain
from curvflow.schemas.draft import takes_weights
from curvflow.schemas.explained import explanations
from curvflow.schemas.explanation import Explanation
from curvflow.schemas.jsonschema import AT
from curvflow.schemas.kind import Kind
from curvflow.schemas.variables import Variable

_WIDTH = 80
_REFERENCES = 'Any value may be "${axis}" or "${axis.field}", in quotes.'


def kind_page(kind: Kind) -> str:
    """Describe one kind with its inputs, parameters and variables.

    Args:
        kind: the declaration.

    Returns:
        Several lines.
    """
    schema = kind.params.model_json_schema()
    told = explanations().get(kind.name) if not kind.home else None
    units = told.units_of(kind.params.model_fields) if told else {}
    forms = _Forms(schema.get("$defs", {}), units)
    lines = _wrapped(f"{kind.name} (version {kind.version})", 0)
    lines += _wrapped(kind.summary, 2)
    lines += _told(told) if told else []
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
    if told:
        lines += ["example", *(f"  {line}" for line in told.example.splitlines())]
    return "\n".join(lines)


def _told(told: Explanation) -> list[str]:
    texts = {"formula": told.formula, "source": told.source, "cost": told.cost}
    return [line for name in texts for line in (name, *_wrapped(texts[name], 2))]


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


class _Forms(Forms):
    """Writes fields line by line; explains each mapping only once."""

    def __init__(self, definitions: Schema, units: Mapping[str, str]) -> None:
        super().__init__(definitions)
        self.units = units
        self.explained: list[Schema] = []

    def fields(self, schema: Schema, indent: int, prefix: str = "") -> list[str]:
        """Describe the fields of a mapping, apart from those that tell its form."""
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
        text = f"{name}: {self.type(schema)}{f' [{unit}]' if unit else ''}{need}"
        lines = _wrapped(f"{text}; {description}" if description else text, indent)
        for form in self.mappings(schema):
            if form not in self.explained:
                self.explained.append(form)
                lines += self.explanation(form, indent + 2, f"{prefix}{name}.")
        return lines

    def explanation(self, form: Schema, indent: int, prefix: str) -> list[str]:
        """Describe one form of a mapping."""
        text = f"{self.type(form)}: {form.get('description', '')}".rstrip(": ")
        return [*_wrapped(text, indent), *self.fields(form, indent + 2, prefix)]
