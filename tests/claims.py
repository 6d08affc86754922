"""Numbers in the documentation, and the commands that stand with them.

A row of a table is a measurement if it holds a digit. A paragraph, a list or a heading
is one if it holds a decimal, an error (±), a unit, a multiple (3 ×, ×3, 3 times, a
factor of 3), a power of ten or a p-value; a table in HTML is one by any digit. Code,
link targets, names (ResNet-18), versions, references (Table 2.1), years of sources and
95 % as the level of an interval do not count.

With a table stands its lead, all that is between it and the heading or the table
before it, and the block after it. A row needs a command there or in itself; if a column
is headed `command`, in that column, where `the same` is that of the row above. All else
needs a command in its section, from heading to heading.

A command is `curvflow run` or `check` of a study of this repository or of the page,
`python -m benchmarks.…`, `pytest` of a file that holds a number as its bound, or one of
the targets of `make` that measure; `make test` is none. What it names must be there,
the options of a benchmark and the profile of a study too. A page that says above its
first section how one study of a folder is run may name the others of that folder by
their files alone.

What is no measurement is named in a comment above the block, for one of the `REASONS`:
of a table its columns, else the words around the number.

    <!-- no measurement: settings, "steps", "rate" -->
    <!-- no measurement: formulas, "a variance of 1/12, or 0.083" -->

Each must be there, once for each time that it is named, and hold a number.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from html import unescape
from itertools import pairwise
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

# Targets of make that measure; others pass or fail.
MEASURING = ("bench", "truth", "fuzz", "chaos", "durations", "gpu")

UNITS = (
    "s|[mnu\u00b5\u03bc]s|h|secs?|(?:milli|micro|nano)?seconds?|mins?|minutes?|hrs?|hours?"
    "|days?|weeks?|years?|(?:GPU|CPU|core)[ -](?:seconds?|minutes?|hours?|days?)"
    "|[kMGTP]i?B|(?:kilo|mega|giga|tera)?bytes?|nats|[kMG]?Hz|[MGTP]FLOPs?|×|x|times|fold"
    "|%|‰|percent|per cent"
)
UNIT = rf"[ \u2010\u2011-]?(?:{UNITS})(?!\w)"
ERROR = r"[)\]]? ?(?:±|\+/?[-−]) ?[\d.]"
MEASURED = re.compile(
    rf"\d{ERROR}|(?<![\w.])(?:\d[\d.,]*)?\d{UNIT}"
    r"|(?<![\w.])\d*\.\d|(?<![\w.])\d+[eE][+−-]?\d"
    r"|10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]|10\^|10 ?<sup>|\b[pP] ?[<>=≤≥≈] ?\d"
    r"|(?<![\w)])(?<!\d )×\d|(?<=\()× \d|\bfactor (?:of )?\d"
    r"|\d [a-z]+(?:/| per )(?:s|min|h|second|minute|hour)\b"
)
# What holds digits and is no number of its own.
PACKAGES = (
    "(?i:version)|Python|PyTorch|NumPy|SQLAlchemy|FastAPI|Prefect|arviz|arviz-base|devinterp"
    "|curvlinops|PyHessian|hessian-eigenthings|CC BY"
)
PARTS = (
    r"(?i:table|figure|fig\.|section|chapter|equation|eq\.|theorem|lemma|appendix"
    "|algorithm)"
)
NUMBERED = "(?i:definition|page|decision|type)"
LEVEL = r"9[059] ?%"
SPREAD = r"(?:interval|confidence|level|limit)s?"
NO_NUMBER = re.compile(
    r"https?://\S+|\b(?:arXiv|doi):\S+|<sub>[^<]*</sub>|(?<!10)(?<!10 )<sup>[^<]*</sup>"
    rf"|\b(?:{PACKAGES}) \d+(?:\.\d+)?+(?: to \d\.\d+)?(?!\.?\d)(?!{UNIT}|{ERROR})"
    r"|\b\d+\.\d+\.\d[\d.]*"  # a version, an address
    rf"|\b{PARTS} \(?\d+(?:\.\d+)*+[a-f]?(?!\w|\.\d)(?!{UNIT}|{ERROR})"
    rf"|\b{NUMBERED} \d+(?![.,]?\d|{UNIT}|{ERROR})"
    rf"|\b{PARTS}s \d[\d.]*[a-z]?(?:(?:, | and | to )\d[\d.]*[a-z]?\b)*"
    r"|(?:(?<=[\w.']) \(|\bet al\.,? )(?:1[89]|20)\d\d[a-f]?(?!\w|[.,]\d)"
    rf"(?!{UNIT}|{ERROR})"
    rf"|{LEVEL} (?:(?!of)\w+ )?{SPREAD}|\b{SPREAD} (?:of|at) {LEVEL}"
    r"|(?<![\w.])[A-Za-z]\w*\d\w*|\b[A-Za-z]\w*-\d+(?![\d.])"  # float32, CIFAR-10
    r"|(?<![\d.-])\d+(?:-\d+){2,}(?![\d.-])"  # 2-12-1, 2024-01-31
)
CELL = re.compile(r"(?<!\\)\|")
RULE = re.compile(r"\|?(?:\s*:?-+:?\s*\|)+(?:\s*:?-+:?\s*)?")
LIST = re.compile(r"^\s*(?:[-*+]|\d+[.)]) ", re.MULTILINE)
EXEMPT = re.compile(r'<!-- no measurement: (\w+)((?:, "[^"]*")+) -->')
COMMAND = re.compile(
    r"curvflow (?P<verb>run|check) (?P<study>\S+\.yaml)(?P<settings>[^`\n]*)"
    r"|python (?:-m benchmarks\.|benchmarks/)(?P<benchmark>[a-z]\w*)"
    r"(?P<options>[^`\n]*)"
    r"|\bmake (?P<target>[a-z][\w-]*)"
    r"|\bpytest (?P<tests>tests/[\w/.]+)"
)
SPAN = r"(?<!`)(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)"
CODE = re.compile(rf"^[ >]*```.*?^[ >]*```|{SPAN}", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A heading, table, fence, code, comment, or a paragraph or list, with its line."""

    form: str
    text: str
    line: int


class Claim(NamedTuple):
    """A measurement, and the blocks in which its command must stand."""

    line: int
    text: str
    near: tuple[Block, ...]


@cache
def blocks(text: str) -> list[Block]:
    """Divide a page at its blank lines, headings and tables; fences stay whole."""
    parts: list[Block] = []
    form = ""
    lines = [re.sub(r"^(?: {0,3}> ?)+", "", line) for line in text.splitlines()]
    for number, (line, below) in enumerate(pairwise([*lines, ""]), 1):
        if is_open(form, parts):
            parts[-1] = joined(parts[-1], line)
            if not is_open(form, parts):
                rest = line.partition("-->")[2].strip() if form == "comment" else ""
                parts += [Block("prose", rest, number)] if rest else []
                form = "prose" if rest else ""
            continue
        previous, form = form, form_of(line, form, below)
        if form == "prose" and is_indented(line, previous, parts):
            form = "code"
        if form and form == previous and form != "heading":
            parts[-1] = joined(parts[-1], line)
        elif form:
            parts.append(Block(form, line, number))
    return parts


def is_open(form: str, parts: list[Block]) -> bool:
    """Return whether the last block goes on until its end is marked."""
    if form == "fence":
        first, *rest = parts[-1].text.splitlines()
        text = first.lstrip()
        mark = text[: len(text) - len(text.lstrip(text[0]))]
        return not rest or not rest[-1].strip().startswith(mark)
    return form == "comment" and "-->" not in parts[-1].text.splitlines()[-1]


def form_of(line: str, previous: str, below: str) -> str:
    """Return the form of the block that a line begins or goes on with."""
    bare = line.strip()
    if not bare:
        return ""
    if re.match("```[^`]*$|~~~", bare):
        return "fence"
    if bare.startswith("#"):
        return "heading"
    if bare.startswith("<!--") and not seen(f"{bare}-->").removesuffix("-->").strip():
        return "comment"
    if previous == "table" and (CELL.search(bare) or not LIST.match(line)):
        return previous
    is_head = bool(CELL.search(bare)) and bool(RULE.fullmatch(below.strip()))
    return "table" if is_head or bare.startswith("|") else "prose"


def is_indented(line: str, previous: str, parts: list[Block]) -> bool:
    """Return whether a line is code by its indentation."""
    if not line.startswith("    ") or not parts or previous == "prose":
        return False
    lead = parts[-1].text
    is_item = LIST.search(lead) or lead.splitlines()[-1].startswith(" ")
    return parts[-1].form == "code" or (lead.endswith(":") and not is_item)


def joined(block: Block, line: str) -> Block:
    return block._replace(text=f"{block.text}\n{line}")


@cache
def plain(text: str) -> str:
    """Leave out what is no number, and emphasis."""
    text = re.sub(SPAN, " code ", " ".join(text.split()))
    text = re.sub(r"\\(?=[!-/:-@[-`{-~])", "", unescape(text))
    text = re.sub(r"\]\([^)]*\)", "]", " ".join(text.split()))
    text = re.sub(r"\*|(?<!\w)_+(?=\S)|(?<=\S)_+(?!\w)", "", text)
    return NO_NUMBER.sub(" name ", text)


def cells(row: str) -> list[str]:
    """Divide a row, which may do without its outer bars."""
    bare = re.sub(r"^\||(?<!\\)\|$", "", row.strip())
    return [cell.strip() for cell in CELL.split(bare)]


def is_measured(row: str, exempt: Sequence[int] = ()) -> bool:
    """Return whether a row of a table holds a measurement outside of some columns."""
    left = (cell for n, cell in enumerate(cells(row)) if n not in exempt)
    return any(has_digit(cell) and has_digit(plain(cell)) for cell in left)


def has_digit(text: str) -> bool:
    return re.search(r"\d", text) is not None


def claims(text: str) -> Iterator[Claim]:
    """Yield the measurements of a page."""
    parts = blocks(text)
    for place, block in enumerate(parts):
        names = exempted(parts[place - 1]) if place else []
        if block.form == "table":
            yield from rows(parts, place, names)
        elif block.form in ("prose", "heading") and says_measured(block.text, names):
            yield Claim(block.line, block.text, section(parts, place))


def says_measured(text: str, exempt: list[str]) -> bool:
    """Return whether words hold a measurement outside of some phrases."""
    if not has_digit(text):
        return False
    left = plain(without(text, exempt))
    is_table = re.search(r"<t[dh]\b", left) and has_digit(re.sub(r"<[^>]*>", " ", left))
    return bool(is_table or MEASURED.search(left))


def exempted(block: Block) -> list[str]:
    """Return what a comment names as no measurement."""
    match = EXEMPT.fullmatch(" ".join(block.text.split()))
    return re.findall('"(.*?)"', match[2]) if match and match[1] in REASONS else []


def without(text: str, phrases: list[str]) -> str:
    """Leave out each phrase once."""
    text = " ".join(text.split())
    for phrase in phrases:
        text = text.replace(phrase, " phrase ", 1)
    return text


def needless(text: str) -> list[str]:
    """Return what a page exempts and is not there, or holds no number."""
    faults: list[str] = []
    parts = blocks(text)
    for place, block in enumerate(parts):
        if "no measurement" not in block.text or block.form != "comment":
            continue
        names = exempted(block)
        below = parts[place + 1] if place + 1 < len(parts) else Block("", "", 0)
        if not names:
            faults.append(f"{block.line}: {block.text}: no reason, or nothing named")
        elif below.form == "table":
            faults += [f"{block.line}: {n}" for n in names if not column_of(below, n)]
        else:
            faults += [f"{block.line}: {n}" for n in absent(below, names)]
    return faults


def absent(block: Block, phrases: list[str]) -> list[str]:
    """Return the phrases that a block has not, or that hold no number."""
    text = " ".join(block.text.split())
    often = Counter(phrases)
    return [p for p in often if text.count(p) < often[p] or not has_digit(p)]


def column_of(table: Block, title: str) -> list[str]:
    """Return the cells with numbers of a table's column."""
    head, *body = table.text.splitlines()
    place = cells(head).index(title) if title in cells(head) else -1
    column = [cells(row)[place] for row in body if -1 < place < len(cells(row))]
    column += [title] if place > -1 else []
    return [cell for cell in column if has_digit(plain(cell))]


def rows(parts: list[Block], place: int, names: list[str]) -> Iterator[Claim]:
    """Yield the measurements of a table outside of the columns named."""
    table = parts[place]
    head, *body = table.text.splitlines()
    exempt = [n for n, title in enumerate(cells(head)) if title in names]
    titles = [plain(cell).lower() for cell in cells(head)]
    column = titles.index("command") if "command" in titles else None
    near, last = around(parts, place), Block("row", "", table.line)
    if is_measured(head, exempt):
        yield Claim(table.line, head, (table, *near))
    for number, text in enumerate(body, table.line + 1):
        row = Block("row", text, number)
        if column is None:
            last = row
        elif (command := "".join(cells(text)[column : column + 1])) != "the same":
            last = row._replace(text=command)
        if is_measured(text, exempt):
            yield Claim(number, text, (last,) if column is not None else (row, *near))


def around(parts: list[Block], place: int) -> tuple[Block, ...]:
    """Return the lead of a table, and the block after it."""
    start = place
    while start and parts[start - 1].form not in ("heading", "table"):
        start -= 1
    after = [b for b in parts[place + 1 : place + 2] if b.form in ("prose", "fence")]
    return (*parts[start:place], *after)


def section(parts: list[Block], place: int) -> tuple[Block, ...]:
    """Return the blocks from the last heading up to one to the heading after it."""
    start = max((n for n in range(place + 1) if parts[n].form == "heading"), default=0)
    rest = parts[start + 1 :]
    length = next((n for n, b in enumerate(rest) if b.form == "heading"), len(rest))
    return (parts[start], *rest[:length])


def seen(text: str) -> str:
    """Leave out comments."""
    return re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)


@cache
def commands(text: str) -> list[re.Match[str]]:
    """Return the commands within code; those of a span may break a line."""
    found: list[re.Match[str]] = []
    for match in CODE.finditer(seen(text)):
        code = match[0] if not match["ticks"] else " ".join(match[0].split())
        found += COMMAND.finditer(code)
    return found


def problem(command: re.Match[str]) -> str:
    """Return what is not there of a command."""
    if command["target"] and command["target"] not in targets():
        return f"no target {command['target']} in the Makefile"
    for name in ("study", "tests"):
        if command[name] and not (ROOT / command[name]).exists():
            return f"no file {command[name]}"
    if command["study"]:
        study = source_of(command["study"])
        profiles = re.findall(r"--profile[ =](\w+)", command["settings"])
        absent = [p for p in profiles if not re.search(rf"^  {p}:", study, re.M)]
        return f"no profile {absent[0]} in {command['study']}" if absent else ""
    if command["benchmark"]:
        source = source_of(f"benchmarks/{command['benchmark']}.py")
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
def source_of(name: str) -> str:
    """Return the text of a file of the repository; nothing if there is none."""
    place = ROOT / name
    return place.read_text(encoding="utf-8") if place.is_file() else ""


def takes(source: str, option: str) -> bool:
    """Return whether a program's source names an option, or a field of that name."""
    return f"--{option}" in source or bool(re.search(rf"^    {option}: ", source, re.M))


@cache
def folder(text: str) -> Path | None:
    """Return the folder of the study that a page shows how to run at its top."""
    opening = re.split(r"^## ", text, maxsplit=1, flags=re.M)[0]
    match = re.search(r"curvflow run (studies\S*/)[\w.-]+\.yaml", opening)
    return ROOT / match[1] if match else None


def has_command(claim: Claim, text: str) -> bool:
    """Return whether a command stands with a claim, or a study of the page by name."""
    return any(names_command(block.text, text) for block in claim.near)


@cache
def names_command(near: str, text: str) -> bool:
    """Return whether a part of a page names a command that can make its numbers."""
    if any(measures(command, text) for command in commands(near)):
        return True
    studies, names = folder(text), re.findall(r"`([\w.-]+?)(?:\.yaml)?`", seen(near))
    return studies is not None and any(
        (studies / f"{name}.yaml").is_file() for name in names
    )


def measures(command: re.Match[str], text: str) -> bool:
    """Return whether a command of a page can be one that makes numbers."""
    if command["target"]:
        return command["target"] in MEASURING
    if command["study"] and f"```yaml\n# {command['study']}\n" in text:
        return True
    return not problem(command)


def missing(text: str) -> list[Claim]:
    """Return the measurements of a page that no command stands with."""
    return [claim for claim in claims(text) if not has_command(claim, text)]


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
