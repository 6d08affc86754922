"""Sections of hand-written pages that are made from specifications and declarations.

A page has a comment where they go: `<!-- rules -->` is the overview of all learning
rules, `<!-- rules: Adaptive rules -->` are the sections of those in one group; so for
`models`. `<!-- data -->` is the overview of the kinds of data sets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from curvflow.cli.text.kind_page import TypeNames, plain
from curvflow.schemas import models, rules
from curvflow.schemas.explanations import Section
from curvflow.schemas.params import Params
from docs.generator import kinds
from docs.generator.markdown import code, linked, prose, table

_MARK = re.compile(r"^<!-- (\w+)(?:: (.*))? -->$", re.MULTILINE)
_FORMS = {"inner": "a learning rule"}


@dataclass(frozen=True)
class _Topic:
    """Specifications that a page lists, with their sections.

    Attributes:
        heads: of the overview.
        specifications: by name.
        sections: by name.
        common: fields that all have, explained once.
    """

    heads: tuple[str, str, str]
    specifications: Mapping[str, type[Params]]
    sections: Mapping[str, Section]
    common: frozenset[str]


def _topics() -> dict[str, _Topic]:
    return {
        "rules": _Topic(
            ("Family", "Rule", "What it does"),
            rules.all_rules(),
            rules.sections(),
            frozenset({"rule", "init", "schedule", "clip_norm"}),
        ),
        "models": _Topic(
            ("Family", "Model", "Inputs, parameters and parts"),
            models.all_models(),
            models.sections(),
            frozenset({"kind", "init"}),
        ),
    }


@cache
def filled(text: str) -> str:
    """Return a page with what its comments ask for in their place."""
    marks, topics = _MARK.findall(text), _topics()

    def made(mark: re.Match[str]) -> str:
        name, group = mark.groups()
        if name in topics:
            if group:
                return "\n\n".join(_sections(topics[name], group))
            return _overview(topics[name], [g for n, g in marks if n == name and g])
        return _data() if name == "data" else mark[0]

    return _MARK.sub(made, text)


def _overview(topic: _Topic, groups: Sequence[str]) -> str:
    rows = []
    for group in groups:
        family = f"[{group}](#{kinds.anchor(group)})"
        for name, section in _members(topic, group):
            rows.append((family, f"[{code(name)}](#{name})", section.summary))
            family = ""
    return table(topic.heads, rows)


def _members(topic: _Topic, group: str) -> list[tuple[str, Section]]:
    return [
        (n, section) for n, section in topic.sections.items() if section.group == group
    ]


def _sections(topic: _Topic, group: str) -> Iterator[str]:
    heads = ("Name", "Default", "Values, and what they mean")
    for name, section in _members(topic, group):
        yield f"### {code(name)}"
        yield section.text.strip()
        if section.source:
            yield f"Source: {linked(section.source.strip())}"
        yield f"```yaml\n{section.example}```"
        schema = topic.specifications[name].model_json_schema()
        if rows := list(_parameters(schema, topic.common)):
            yield table(heads, rows)


def _parameters(
    schema: dict[str, Any], common: frozenset[str]
) -> Iterator[tuple[str, str, str]]:
    forms = TypeNames(schema.get("$defs", {}))
    for name, field in schema["properties"].items():
        if name in common:
            continue
        default = code(plain(field["default"])) if "default" in field else ""
        need = "required" if name in schema.get("required", ()) else default or "none"
        form = _FORMS.get(name) or code(forms.type(field))
        yield code(name), need, f"{form}<br>{prose(field.get('description', ''))}"


def _data() -> str:
    rows = [
        (f"[{code(kind.name)}](reference/kinds/{kind.name}.md)", prose(kind.summary))
        for kind in kinds.grouped()["Data"]
    ]
    return table(("Kind", "What it returns"), rows)
