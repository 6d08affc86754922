"""Specifications of learning rules, found by their files; no list is kept.

A rule is one file here, which names its specification `RULE`, and one file of the same
name in `tasks/rules/`, which holds its functions.
"""

from __future__ import annotations

import operator
import pkgutil
from functools import reduce
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator, Field

from curvflow.schemas.presets import written_out
from curvflow.schemas.rules._base import Rule
from curvflow.schemas.rules._preset import Preset

__all__ = ["Rule", "RuleSpec", "all_rules"]


def all_rules() -> dict[str, type[Rule]]:
    """Return the specification of every rule by its name, sorted."""
    names = sorted(info.name for info in pkgutil.iter_modules(__path__))
    return {
        name: import_module(f"{__name__}.{name}").RULE
        for name in names
        if not name.startswith("_")
    }


if TYPE_CHECKING:
    RuleSpec = Rule
else:
    _ANY = reduce(operator.or_, all_rules().values())
    # A preset is written out before all else: its node has the key of its fields.
    RuleSpec = Annotated[
        _ANY,
        Field(discriminator="rule"),
        BeforeValidator(written_out, json_schema_input_type=_ANY | Preset),
    ]
