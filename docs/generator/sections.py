"""Sections of hand-written pages that are made from specifications and declarations.

A page has a comment where they go: `<!-- rules -->` is the overview of all learning
rules, `<!-- rules: Adaptive rules -->` are the sections of those in one group, and
`<!-- data -->` is the overview of the kinds of data sets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from curvflow.cli.text.kind_page import Forms, plain
from curvflow.schemas.explanations import Section
from curvflow.schemas.rules import all_rules, sections
from docs.generator import kinds
from docs.generator.markdown import code, linked, prose, table

_MARK = re.compile(r"^<!-- (\w+)(?:: (.*))? -->$", re.MULTILINE)
# Of every rule, and explained once.
_COMMON = {"rule", "init", "schedule"}
_FORMS = {"inner": "a learning rule"}


def filled(text: str) -> str:
    """Return a page with what its comments ask for in their place."""
    groups = [group for name, group in _MARK.findall(text) if name == "rules" and group]

    def made(mark: re.Match[str]) -> str:
        name, group = mark.groups()
        if name == "rules":
            return "\n\n".join(_sections(group)) if group else _overview(groups)
        return _data() if name == "data" else mark[0]

    return _MARK.sub(made, text)


def _overview(groups: Sequence[str]) -> str:
    rows = []
    for group in groups:
        family = f"[{group}](#{kinds.anchor(group)})"
        for name, section in _rules(group):
            rows.append((family, f"[{code(name)}](#{name})", prose(section.summary)))
            family = ""
    return table(("Family", "Rule", "What it does"), rows)


def _rules(group: str) -> list[tuple[str, Section]]:
    return [(n, section) for n, section in sections().items() if section.group == group]


def _sections(group: str) -> Iterator[str]:
    heads = ("Name", "Default", "Values, and what they mean")
    for name, section in _rules(group):
        yield f"### {code(name)}"
        yield section.text.strip()
        yield f"Source: {linked(section.source.strip())}"
        yield f"```yaml\n{section.example}```"
        yield table(heads, _parameters(all_rules()[name].model_json_schema()))


def _parameters(schema: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    forms = Forms(schema.get("$defs", {}))
    for name, field in schema["properties"].items():
        if name in _COMMON:
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
