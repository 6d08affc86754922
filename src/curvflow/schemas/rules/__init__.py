"""Specifications of learning rules, found by their files; no list is kept.

A file here names its specification `RULE`, or those of a family `RULES`; its functions
are in the file of the same name in `tasks/rules/`. `EXPLANATION`, or for a family
`EXPLANATIONS` in the same order, is the section of the documentation.
"""

from __future__ import annotations

import operator
from functools import reduce
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator, Field

from curvflow.schemas.presets import Preset, written_out
from curvflow.schemas.rules._base import Position, Rule
from curvflow.schemas.rules._files import sections
from curvflow.schemas.rules._files import specifications as all_rules

__all__ = ["Position", "Rule", "RuleSpec", "all_rules", "sections"]

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
