"""Specifications of learning rules, found by their files; no list is kept.

A file here or in a folder names its specification `RULE`, or those of a family `RULES`;
its functions are in the file of the same place in `tasks/rules/`. `EXPLANATION`, or for
a family `EXPLANATIONS` in the same order, is the section of the documentation.
"""

from __future__ import annotations

import operator
from functools import reduce
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field

from curvflow.schemas.by_name import ByName
from curvflow.schemas.rules._base import Position, Rule
from curvflow.schemas.rules._files import named_rule, sections
from curvflow.schemas.rules._files import specifications as all_rules

__all__ = ["Position", "Rule", "RuleSpec", "all_rules", "sections"]


def _union() -> Any:
    """Return the union of all rules, or a preset."""
    # Loaded here, as the rules are: most studies name few of them.
    from curvflow.schemas.presets import Preset, written_out

    rules = reduce(operator.or_, all_rules().values())
    # A preset is written out before all else: its node has the key of its fields.
    return Annotated[
        rules,
        Field(discriminator="rule"),
        BeforeValidator(written_out, json_schema_input_type=rules | Preset),
    ]


if TYPE_CHECKING:
    RuleSpec = Rule
else:
    RuleSpec = Annotated[Rule, ByName(named_rule, _union)]
