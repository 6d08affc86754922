"""Parameters that hold one name or several."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from curvflow.schemas.params import Names


def _several(value: object) -> object:
    return (value,) if isinstance(value, str) else value


# `over: seed` and `over: [seed]` are one value, so that they have one key.
OneOrMoreNames = Annotated[
    Names,
    BeforeValidator(_several),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}},
            ]
        }
    ),
]
