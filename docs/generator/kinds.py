"""One page for each kind, and one that lists them, from the registry."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from curvflow.cli.text.kind_page import TypeNames, plain
from curvflow.schemas.explanations import Explanation, explanations
from curvflow.schemas.kind import Input, Kind, Variable
from curvflow.schemas.kinds import all_kinds
from curvflow.schemas.nodes import Numbers
from curvflow.schemas.study.draft import takes_weights
from curvflow.schemas.study.edges import is_compatible
from curvflow.schemas.study.jsonschema import AT
from docs.generator.markdown import code, papers, prose, table, terms, units

FOLDER = "reference/kinds"
GROUPS = {
    "Data": ("data",),
    "Training and weights": ("train", "weights", "monitor"),
    "Probes": ("probe",),
    "Statistics": ("aggregate",),
    "Figures": ("figure",),
}
# Parameters whose many forms have pages of their own.
PAGES = {
    "model": "a [model](../../models.md), by its kind or a factory of yours",
    "rule": "a [learning rule](../../rules.md), by its name or a preset",
}
LINKS = {"operator": "operators.md"}
_REFERENCES = (
    'Any value may be `"${axis}"` or `"${axis.field}"`, in quotes; see '
    "[the study file](../../study.md#stages)."
)
Schema = Mapping[str, Any]


def grouped() -> dict[str, list[Kind]]:
    """Return the built-in kinds by the group that their names begin with."""
    kinds = [kind for kind in all_kinds().values() if not kind.home]
    return {
        group: [kind for kind in kinds if kind.name.partition(".")[0] in beginnings]
        for group, beginnings in GROUPS.items()
    }


def path_of(kind: Kind) -> str:
    """Return the page of a kind, from the root of the documentation."""
    return f"{FOLDER}/{kind.name}.md"


def overview() -> str:
    """Return the page that lists every kind with what it costs."""
    texts = explanations()
    lines = [
        "# Kinds",
        "What `use:` can name in a stage. `curvflow kinds NAME` prints the same; "
        "the pages are made from the registry. A product is one of the curvature "
        "matrix with a vector, a gradient or a pass one over all the data.",
    ]
    for group, kinds in grouped().items():
        rows = [
            (
                f"[{code(kind.name)}]({kind.name}.md)",
                prose(kind.summary),
                prose(texts[kind.name].cost if kind.name in texts else ""),
            )
            for kind in kinds
        ]
        lines += [f"## {group}", table(("Kind", "What it does", "Cost"), rows)]
    return "\n\n".join(lines)


def page(kind: Kind) -> str:
    """Return the page of one kind."""
    text = explanations().get(kind.name)
    parts = [f"# {code(kind.name)}", prose(kind.summary)]
    if text:
        parts.append(_told(kind, text))
        parts += ["## Example", f"```yaml\n{text.example}```"]
    if kind.inputs:
        parts += ["## Inputs", table(("Name", "Takes", "Needed"), _inputs(kind))]
    parts += ["## Parameters", *_parameters(kind, text)]
    parts += [
        f"## Outputs\n\nReturns `{kind.returns.__name__}`.",
        table(("Name", "Dimensions", "Type", "Unit", "Meaning"), _outputs(kind)),
    ]
    return "\n\n".join(parts)


def _told(kind: Kind, text: Explanation) -> str:
    runs = "all nodes of a tile in one program" if kind.vectorised else "node by node"
    where = "; on a GPU where there is one" if kind.accelerated else ""
    return terms(
        [
            ("Formula", f"{prose(text.formula)}\n{{ .formula }}"),
            ("Source", papers(text.source)),
            ("Cost", prose(text.cost)),
            ("Computes", f"{runs}{where}"),
            ("Version", str(kind.version)),
            ("More", f"[{_title(text.page)}](../../{text.page})"),
        ]
    )


def _title(address: str) -> str:
    """Return the heading that an address leads to, as its page writes it."""
    page, _, place = address.partition("#")
    text = (Path(__file__).parents[1] / page).read_text(encoding="utf-8")
    headings: list[str] = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    by_anchor = {anchor(heading): heading for heading in headings}
    return by_anchor[place] if place else headings[0]


def anchor(heading: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def _inputs(kind: Kind) -> Iterator[tuple[str, str, str]]:
    for name, taken in kind.inputs.items():
        many = ", one or several" if taken.many else ""
        yield code(name), f"{_producers(taken)}{many}", _need(taken)


def _producers(taken: Input) -> str:
    if taken.edge is Numbers:
        return "any stage that returns numbers"
    names = [
        kind.name for kind in all_kinds().values() if is_compatible(taken.edge, kind)
    ]
    names = [name for name in names if not all_kinds()[name].home]
    if len(names) > 8:
        beginnings = {name.partition(".")[0] for name in names}
        groups = [group for group, has in GROUPS.items() if beginnings & set(has)]
        named = [f"[{group.lower()}](index.md#{anchor(group)})" for group in groups]
        return f"{code(taken.edge.__name__)}: any of {', '.join(named)} that returns it"
    links = [f"[{code(name)}]({name}.md)" for name in names]
    return f"{code(taken.edge.__name__)}: {', '.join(links)}"


def _need(taken: Input) -> str:
    if taken.follows:
        return f"by default the {' or '.join(taken.sources)}' own"
    if taken.unless:
        return f"this or {' or '.join(map(code, taken.unless))}"
    return "no" if taken.optional else "yes"


def _parameters(kind: Kind, text: Explanation | None) -> list[str]:
    schema = kind.params.model_json_schema()
    known = text.units_of(("at", *kind.params.model_fields)) if text else {}
    writer = _Rows(schema.get("$defs", {}), known)
    # Forms of a parameter may have a field in common.
    rows = list(dict.fromkeys(writer.of(schema)))
    if takes_weights(kind):
        rows.insert(0, writer.row("at", AT, required=False))
    if not rows:
        return ["None: there is nothing to choose."]
    heads = ("Name", "Default", "Unit", "Values, and what they mean")
    return [table(heads, rows), _REFERENCES]


class _Rows(TypeNames):
    """Writes a row for each field of a schema, and of the mappings that it holds."""

    def __init__(self, definitions: Schema, units: Mapping[str, str]) -> None:
        super().__init__(definitions)
        self.units = units

    def of(self, schema: Schema, prefix: str = "") -> Iterator[tuple[str, ...]]:
        """Yield the rows of all fields, those of mappings behind their own."""
        needed = schema.get("required", ())
        for name, item in schema.get("properties", {}).items():
            if "const" in item:
                continue
            yield self.row(prefix + name, item, required=name in needed)
            if name not in PAGES:
                for form in self.mappings(item):
                    yield from self.of(form, f"{prefix}{name}.")

    def row(self, name: str, schema: Schema, *, required: bool) -> tuple[str, ...]:
        default = code(plain(schema["default"])) if "default" in schema else ""
        meaning = prose(schema.get("description", ""))
        if name in LINKS:
            meaning += f"; see [operators](../../{LINKS[name]})"
        form, unit = code(self.type(schema)), units(self.units.get(name, "-"))
        if name in PAGES and "enum" not in schema:  # a graph's model is none of these
            unit = "-"
            form = PAGES[name]
        need = "required" if required else default or "none"
        return code(name), need, unit, f"{form}<br>{meaning}"


def _outputs(kind: Kind) -> Iterator[tuple[str, ...]]:
    for variable in kind.outputs:
        dims = ", ".join(variable.dims)
        kept = _kept(variable)
        yield (
            code(variable.name),
            f"({prose(dims)})",
            code(variable.dtype),
            units(variable.units),
            prose(variable.description) + (f" *({kept})*" if kept else ""),
        )


def _kept(variable: Variable) -> str:
    marks = {
        "file": variable.file or "",
        "read on request": variable.bulk,
        "not in tables": variable.series,
        "not always": variable.optional,
    }
    return ", ".join(name for name, applies in marks.items() if applies)
