"""The JSON Schema of a study, so that editors complete and check the file.

It follows the registry: every known kind is one form of a stage. Dependences on other
stages (edges, dimensions, labels) are beyond JSON Schema; `load_study` checks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from curvflow.schemas.kind import Input, Kind
from curvflow.schemas.kinds import all_kinds
from curvflow.schemas.study.axes import MAX_LABELS, RESERVED
from curvflow.schemas.study.draft import declared_keys, takes_weights
from curvflow.schemas.study.expectations import Expectation
from curvflow.schemas.study.study import STUDY_NAME

Schema = dict[str, Any]

_NAME = "^[A-Za-z_][A-Za-z0-9_]*$"
_REFERENCE: Schema = {
    "type": "string",
    "pattern": r"^\$\{[A-Za-z_]\w*(\.\w+)*\}$",
    "description": "${axis} or ${axis.field}",
}
_SCALAR: Schema = {"type": ["string", "number", "boolean"]}
_AXIS: Schema = {
    "description": "a count n for 0 .. n-1, a list, or a mapping of labels to values",
    "anyOf": [
        {"type": "integer", "minimum": 1, "maximum": MAX_LABELS},
        {"type": "array", "minItems": 1, "uniqueItems": True, "items": _SCALAR},
        {"type": "object", "minProperties": 1},
    ],
}
AT: Schema = {
    "description": "epochs of the weights looked at; all but final and a single epoch "
    "add the dimension epoch",
    "default": "final",
    "anyOf": [
        {"enum": ["final", "all"]},
        {"type": "integer", "minimum": 0},
        {
            "type": "object",
            "properties": {"every": {"type": "integer", "minimum": 1}},
            "required": ["every"],
            "additionalProperties": False,
        },
        {
            "type": "array",
            "items": {"type": "integer", "minimum": 0},
            "minItems": 1,
            "uniqueItems": True,
        },
    ],
}


def study_schema() -> Schema:
    """Return the JSON Schema, draft 2020-12, of studies with all registered kinds."""
    kinds = all_kinds()
    definitions: Schema = {"reference": _REFERENCE, "stage": _stage(kinds)}
    for kind in kinds.values():
        definitions |= _definitions(kind)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "curvflow study",
        "type": "object",
        "required": ["study", "stages"],
        "additionalProperties": False,
        "properties": _sections(),
        "$defs": definitions,
    }


def _sections() -> Schema:
    return {
        "study": {
            "type": "string",
            "pattern": STUDY_NAME,
            "description": "name under which runs are numbered",
        },
        "axes": {
            "type": "object",
            "description": "named lists of values; each becomes a dimension",
            "propertyNames": {"pattern": _NAME, "not": {"enum": list(RESERVED)}},
            "additionalProperties": _AXIS,
        },
        "stages": {
            "type": "object",
            "description": "what is done, by name",
            "minProperties": 1,
            "propertyNames": {"pattern": _NAME},
            "additionalProperties": {"$ref": "#/$defs/stage"},
        },
        "expect": {
            "type": "array",
            "description": "known values with their sources",
            "items": Expectation.model_json_schema(),
        },
        "profiles": {
            "type": "object",
            "description": "named overrides, `a.b: value`",
            "additionalProperties": {"type": "object"},
        },
    }


def _stage(kinds: Mapping[str, Kind]) -> Schema:
    named: Schema = {"enum": list(kinds)}
    user_kind: Schema = {
        "type": "string",
        "pattern": "^[^:]+:[^:]+$",
        "description": "a kind of your own, package.module:function",
    }
    # An if per kind, not one big oneOf: editors then complain about the one key.
    forms = [
        {
            "if": {"properties": {"use": {"const": name}}, "required": ["use"]},
            "then": {"$ref": f"#/$defs/{name}"},
        }
        for name in kinds
    ]
    return {
        "type": "object",
        "required": ["use"],
        "properties": {
            "use": {"description": "the kind of stage", "anyOf": [named, user_kind]}
        },
        "allOf": forms,
    }


def _definitions(kind: Kind) -> Schema:
    # Models nested in the parameters get the kind's name too: two kinds may each have
    # a model `Checkpoints`.
    params = kind.params.model_json_schema(
        ref_template=f"#/$defs/{kind.name}:{{model}}"
    )
    nested = params.pop("$defs", {})
    properties = {
        "use": {"const": kind.name},
        **{name: _input(name, taken) for name, taken in kind.inputs.items()},
        **({"at": AT} if takes_weights(kind) else {}),
        **{key: _texts(key) for key in declared_keys(kind)},
    }
    for name, field in _with_references(params).get("properties", {}).items():
        either = {"anyOf": [properties[name], field]} if name in properties else field
        properties[name] = either
    needed = [
        name
        for name, taken in kind.inputs.items()
        if not (taken.follows or taken.unless or taken.optional)
    ]
    stage = {
        "title": kind.name,
        "description": kind.summary,
        "type": "object",
        "properties": properties,
        "required": ["use", *needed, *params.get("required", [])],
        "additionalProperties": False,
    }
    inner = {f"{kind.name}:{n}": _with_references(s) for n, s in nested.items()}
    return {kind.name: stage, **inner}


def _texts(key: str) -> Schema:
    meanings = {
        "files": "files that results stand on, as paths or patterns",
        "env": "environment variables that results stand on",
    }
    text: Schema = {"type": "string", "minLength": 1}
    listed: Schema = {"type": "array", "items": text, "uniqueItems": True}
    return {"description": meanings[key], **listed}


def _input(name: str, taken: Input) -> Schema:
    stage: Schema = {"type": "string", "pattern": _NAME}
    meaning = f"a stage that returns {taken.edge.__name__}"
    if taken.follows:
        meaning += f"; by default the {name} of its {' or '.join(taken.sources)}"
    if taken.unless:
        meaning += f"; or else {' or '.join(taken.unless)}"
    if taken.optional:
        meaning += "; optional"
    if not taken.many:
        return {"description": meaning, **stage}
    several = {"type": "array", "items": stage, "minItems": 1, "uniqueItems": True}
    return {"description": f"{meaning}, or several", "anyOf": [stage, several]}


def _with_references(schema: Schema) -> Schema:
    # Every value within a model may be a reference to an axis instead.
    result = {k: v for k, v in schema.items() if k != "discriminator"}
    if "properties" in schema:
        fields = schema["properties"].items()
        result["properties"] = {name: _or_reference(item) for name, item in fields}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            result[key] = _or_reference(schema[key])
    if "prefixItems" in schema:
        result["prefixItems"] = [_or_reference(item) for item in schema["prefixItems"]]
    # Where tags may be references, a value may fit several forms: any will do.
    forms = schema.get("oneOf", schema.get("anyOf"))
    if forms:
        result.pop("oneOf", None)
        result["anyOf"] = [_with_references(form) for form in forms]
    return result


def _or_reference(schema: Schema) -> Schema:
    # Texts that editors show stay outside the choice.
    inner = _with_references(schema)
    outside = ("title", "description", "default")
    shown: Schema = {key: inner.pop(key) for key in outside if key in inner}
    return {**shown, "anyOf": [inner, {"$ref": "#/$defs/reference"}]}
