"""Numbers in the documentation, and the commands that stand with them.

A row of a table is a measurement if a cell behind its first begins with a number, or
holds one with an error (±) or a unit. A paragraph or a list is one if it holds a number
with an error or a unit; 95 %, the level of intervals, is none. Code, link targets and
headings do not count.

With a table stands its lead, all that is between it and the heading or the table
before it, and the block after it. A row needs a command there or in itself; if a column
is headed `command`, in that column, where `the same` is that of the row above. A
paragraph needs a command in its section, from heading to heading.

A command is `curvflow run` or `check` of a study of this repository, `python -m
benchmarks.…`, `make …` or `pytest …`; what it names must be there, the options of a
benchmark and the profile of a study too. A page that says above its first section how
one study of a folder is run may name the others of that folder by their files alone.

What is no measurement says so in a comment above the block, `<!-- no measurement:
settings -->`, for one of the `REASONS`.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
# settings: chosen, by a study or its source; formulas: closed forms and definitions;
# computed: from other numbers of the page; printed: by a source or a vendor.
REASONS = ("settings", "formulas", "computed", "printed")

UNITS = r"s|ms|\u00b5s|seconds?|min|minutes?|hours?|[kMG]i?B|×|times as|%"
BEGINS = re.compile(r"[*_†~<>≈(\[]*[+−-]?\d")
MEASURED = re.compile(rf"\d\s*±\s*\d|(?<![\w.])(?!95 %)[\d.,]*\d ?(?:{UNITS})(?!\w)")
CELL = re.compile(r"(?<!\\)\|")
EXEMPT = re.compile(r"<!-- no measurement: (.*?) -->")
COMMAND = re.compile(
    r"curvflow (?P<verb>run|check) (?P<study>\S+\.yaml)(?P<settings>[^`\n]*)"
    r"|python (?:-m benchmarks\.|benchmarks/)(?P<benchmark>[a-z]\w*)"
    r"(?P<options>[^`\n]*)"
    r"|\bmake (?P<target>[a-z][\w-]*)"
    r"|\bpytest (?P<tests>tests/[\w/.]+)"
)
CODE = re.compile(r"```.*?^```|`[^`]+`", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A heading, table, fence, comment, or else a paragraph or list, with its line."""

    form: str
    text: str
    line: int


class Claim(NamedTuple):
    """A measurement, and the blocks in which its command must stand."""

    line: int
    text: str
    near: tuple[Block, ...]


def blocks(text: str) -> list[Block]:
    """Divide a page at its blank lines, headings and tables; fences stay whole."""
    parts: list[Block] = []
    form = ""
    for number, line in enumerate(text.splitlines(), 1):
        if form == "fence":
            parts[-1] = joined(parts[-1], line)
            form = "" if line.lstrip().startswith("```") else form
            continue
        previous, form = form, form_of(line, form)
        if form and form == previous and form != "heading":
            parts[-1] = joined(parts[-1], line)
        elif form:
            parts.append(Block(form, line, number))
    return parts


def form_of(line: str, previous: str) -> str:
    """Return the form of the block that a line begins or goes on with."""
    bare = line.lstrip()
    for mark, form in (("```", "fence"), ("#", "heading"), ("|", "table")):
        if bare.startswith(mark):
            return form
    if bare.startswith("<!--"):
        return "comment"
    return "prose" if bare else ""


def joined(block: Block, line: str) -> Block:
    return block._replace(text=f"{block.text}\n{line}")


def plain(text: str) -> str:
    """Leave out code and where links lead."""
    return re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "", text))


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in CELL.split(row.strip())[1:-1]]


def is_measured(row: str) -> bool:
    """Return whether a row of a table holds a measurement."""
    behind_first = [plain(cell).strip() for cell in cells(row)[1:]]
    return any(BEGINS.match(cell) or MEASURED.search(cell) for cell in behind_first)


def claims(text: str) -> Iterator[Claim]:
    """Yield the measurements of a page."""
    parts = blocks(text)
    for place, block in enumerate(parts):
        if place and exemption(parts[place - 1]):
            continue
        if block.form == "table":
            yield from rows(parts, place)
        elif block.form == "prose" and MEASURED.search(plain(block.text)):
            yield Claim(block.line, block.text, section(parts, place))


def exemption(block: Block) -> str:
    """Return the reason for which what follows is no measurement."""
    match = EXEMPT.fullmatch(block.text.strip())
    return match[1] if match and match[1] in REASONS else ""


def rows(parts: list[Block], place: int) -> Iterator[Claim]:
    """Yield the measurements of a table."""
    table = parts[place]
    head, *body = table.text.splitlines()
    titles = [plain(cell).lower() for cell in cells(head)]
    column = titles.index("command") if "command" in titles else None
    near, last = around(parts, place), Block("row", "", table.line)
    for number, text in enumerate(body, table.line + 1):
        row = Block("row", text, number)
        if column is None:
            last = row
        elif cells(text)[column] != "the same":
            last = row._replace(text=cells(text)[column])
        if is_measured(text):
            yield Claim(number, text, (last,) if column is not None else (row, *near))


def around(parts: list[Block], place: int) -> tuple[Block, ...]:
    """Return the lead of a table, and the block after it."""
    start = place
    while start and parts[start - 1].form not in ("heading", "table"):
        start -= 1
    after = [b for b in parts[place + 1 : place + 2] if b.form in ("prose", "fence")]
    return (*parts[start:place], *after)


def section(parts: list[Block], place: int) -> tuple[Block, ...]:
    """Return the blocks between the headings before and after one."""
    start = max((n for n in range(place) if parts[n].form == "heading"), default=0)
    rest = parts[start + 1 :]
    length = next((n for n, b in enumerate(rest) if b.form == "heading"), len(rest))
    return (parts[start], *rest[:length])


def commands(text: str) -> Iterator[re.Match[str]]:
    """Yield the commands within code; those of a span may break a line."""
    for code in CODE.findall(text):
        is_span = not code.startswith("```")
        yield from COMMAND.finditer(" ".join(code.split()) if is_span else code)


def problem(command: re.Match[str]) -> str:
    """Return what is not there of a command."""
    if command["target"] and command["target"] not in targets():
        return f"no target {command['target']} in the Makefile"
    for name in ("study", "tests"):
        if command[name] and not (ROOT / command[name]).exists():
            return f"no file {command[name]}"
    if command["study"]:
        study = (ROOT / command["study"]).read_text(encoding="utf-8")
        profiles = re.findall(r"--profile[ =](\w+)", command["settings"])
        absent = [p for p in profiles if not re.search(rf"^  {p}:", study, re.M)]
        return f"no profile {absent[0]} in {command['study']}" if absent else ""
    if command["benchmark"]:
        source = source_of(command["benchmark"])
        if not source:
            return f"no benchmark {command['benchmark']}"
        names = re.findall(r"--([a-z][a-z-]*)", command["options"])
        absent = [n for n in names if not takes(source, n)]
        return f"no option --{absent[0]} of {command['benchmark']}" if absent else ""
    return ""


@cache
def targets() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(" ".join(re.findall(r"^([a-z][\w -]*):", text, re.M)).split())


@cache
def source_of(benchmark: str) -> str:
    """Return the source of a benchmark; nothing if there is none."""
    place = ROOT / "benchmarks" / f"{benchmark}.py"
    return place.read_text(encoding="utf-8") if place.is_file() else ""


def takes(source: str, option: str) -> bool:
    """Return whether a program's source names an option, or a field of that name."""
    return f"--{option}" in source or bool(re.search(rf"^    {option}: ", source, re.M))


def folder(text: str) -> Path | None:
    """Return the folder of the study that a page shows how to run at its top."""
    opening = re.split(r"^## ", text, maxsplit=1, flags=re.M)[0]
    match = re.search(r"curvflow run (studies\S*/)[\w.-]+\.yaml", opening)
    return ROOT / match[1] if match else None


def has_command(claim: Claim, studies: Path | None) -> bool:
    """Return whether a command stands with a claim, or a study of the page by name."""
    near = "\n".join(block.text for block in claim.near)
    if any(not problem(command) for command in commands(near)):
        return True
    names = re.findall(r"`([\w.-]+?)(?:\.yaml)?`", near)
    return studies is not None and any(
        (studies / f"{name}.yaml").is_file() for name in names
    )


def missing(text: str) -> list[Claim]:
    """Return the measurements of a page that no command stands with."""
    studies = folder(text)
    return [claim for claim in claims(text) if not has_command(claim, studies)]


def broken(text: str) -> list[str]:
    """Return what the commands of a page name and is not there."""
    shipped = (c for c in commands(text) if not c["study"] or "/" in c["study"])
    return [message for command in shipped if (message := problem(command))]


def stripped(text: str, claim: Claim) -> str:
    """Return a page without the code near a claim; lines stay where they are."""
    lines = text.splitlines()
    for block in claim.near:
        stop = block.line + block.text.count("\n")
        whole = "\n".join(lines[block.line - 1 : stop])
        without = CODE.sub(lambda code: "\n" * code[0].count("\n"), whole)
        lines[block.line - 1 : stop] = without.split("\n")
    return "\n".join(lines)
