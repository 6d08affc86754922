"""Random pages of documentation, and the lines of their claims without a command.

Each section holds one table, paragraph, list or quotation of random numbers, and a command
that can make them, one that cannot, an exemption, or nothing.
"""

import random
from dataclasses import dataclass, field
from typing import NamedTuple

# Numbers that count wherever they stand; {v} is a whole number, {d} a decimal.
MEASURED = (
    *(
        "{v} s",
        "{v} ms",
        "{v} µs",
        "{v} μs",
        "{v} h",
        "{v} min",
        "{v} days",
        "{v} hours",
    ),
    *("{v} TB", "{v} MiB", "{v} kB", "{v} %", "95 %", "{v} ×", "{v}×", "{v}x", "{v} x"),
    *(
        "{d}x",
        "{d} times",
        "{v} times faster",
        "{d} × faster",
        "**{v}** s",
        "**{d}** s",
    ),
    *("{d}", "−{d}", "({d})", ".5", "about {d}", "ρ = −{d}", "loss {d}", "[{d}, {d}]"),
    *(
        "{d}, interval −{d} to −{d}",
        "95 % interval −{d} to {d}",
        "*{d}*",
        "_{d}_",
        "~{d}",
    ),
    *(
        "{v} ± {v}",
        "{v} +- {v}",
        "{v} +/- {d}",
        "**{v}** ± {v}",
        "{v}\n± {v}",
        "{v},240 s",
    ),
    *(
        "{v}e-7",
        "1e16",
        "{v}·10⁻⁴",
        "{v} · 10⁻⁴",
        "10⁻⁷",
        "p = {v}",
        "p < {v}",
        "p ≈ {d}",
    ),
    *("`rate` {d}", "Table {d}: {d}", "{d} in Figure 2.1", "section 3 has {d}"),
    *(
        "[{d}](page.md)",
        "ResNet-18 {d}",
        "Python 3.11 {v} s",
        "({v} s)",
        "from {d} to {d}",
    ),
)
# Numbers that count in a table alone.
WHOLE = ("{v}", "−{v}", "{v},240", "about {v}", "{v} of {v}", "**{v}**", "{v} steps")
# Digits that never count.
NONE = (
    *("words", "`num_steps: {v}`", "``a `b` {d} s``", "[page](page-{d}.md#part-{d})"),
    *(
        "ResNet-18",
        "float32",
        "LeNet-5",
        "2-12-1",
        "784-256-10",
        "2024-01-31",
        "1.4.{v}",
    ),
    *("Python 3.11", "PyTorch 2.3", "CC BY 4.0", "Table {d}", "Figures 5.5 and 5.8"),
    *(
        "section {d}",
        "Eq. (4.28)",
        "Theorem {v}",
        "Cohen (2021)",
        "Wilcoxon's test (1945)",
    ),
    *("an interval of 95 %", "a 95 % interval", "limits at 90 %", "arXiv:2103.00065"),
    *("doi:10.1126/science.1127647", "https://example.org/{d}", "H<sub>{v}</sub>"),
)
MAKING = (
    "`make bench`",
    "`python -m benchmarks.logdet --hold`",
    "`pytest tests/test_claims.py`",
    "`curvflow run studies/quickstart.yaml`",
    "`curvflow check studies/papers/granziol-2020/table-2.1.yaml`",
)
NOT_MAKING = (
    *("`make test`", "`make check`", "`make money`", "`pytest tests/test_nothing.py`"),
    *(
        "`python -m benchmarks.nothing`",
        "`python -m benchmarks.logdet --fast`",
        "make bench",
    ),
    *("`curvflow run studies/nowhere.yaml`", "`curvflow run none.yaml`", "`table-2.1`"),
    *("<!-- `make bench` -->", "`curvflow run studies/quickstart.yaml --profile none`"),
)
NOUNS = ("loss", "trace", "error", "rank", "norm", "rate", "slope", "bound", "share")
FENCE = "```sh\nmake bench\n```"
PLACES = ("before", "after", "row", "column", "exempt", "stale", "none")
REASONS = ("settings", "formulas", "computed", "printed")


class Words(NamedTuple):
    """Some words, and whether they hold a number that counts where they stand."""

    text: str
    counts: bool


@dataclass
class RandomPage:
    """A page, its claims that have no command, and exemptions of what is not there."""

    draw: random.Random
    lines: list[str] = field(default_factory=lambda: ["# Page", ""])
    claims: list[int] = field(default_factory=list)
    needless: list[int] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def add(self, text: str) -> int:
        """Add a block and return its line."""
        line = len(self.lines) + 1
        self.lines += [*text.split("\n"), ""]
        return line

    def exempt(self, names: list[str]) -> int:
        """Add an exemption, on one line or on several."""
        named = self.draw.choice((", ", ",\n")).join(f'"{name}"' for name in names)
        return self.add(
            f"<!-- no measurement: {self.draw.choice(REASONS)}, {named} -->"
        )

    def words(self, *choices: tuple[str, ...]) -> Words:
        """Draw words from one of some lists, with random numbers in them."""
        forms = self.draw.choice(choices)
        text = self.draw.choice(forms)
        while "{" in text:
            decimal = f"{self.draw.randrange(30)}.{self.draw.randrange(1, 100):02}"
            text = text.replace("{d}", decimal, 1)
            text = text.replace("{v}", str(self.draw.randrange(1, 500)), 1)
        return Words(text, forms is not NONE)


def random_page(seed: int) -> RandomPage:
    """Return a page of five sections."""
    page = RandomPage(random.Random(seed))
    for _ in range(5):
        page.draw.choice((add_table, add_prose))(page)
    return page


def add_table(page: RandomPage) -> None:
    """Add a section with a table, whose command stands in a place that is drawn."""
    place = page.draw.choice(PLACES)
    width = page.draw.randint(2 if place == "column" else 1, 4)
    titles = page.draw.sample(NOUNS, width)
    choices = (MEASURED, WHOLE, NONE, NONE)
    drawn = [[page.words(*choices) for _ in titles] for _ in range(3)]
    body = [[words.text.replace("\n", " ") for words in cells] for cells in drawn]
    made = [page.draw.random() < 0.5 for _ in body]
    for n, row in enumerate(body):
        if place == "row":
            row[0] += " " + page.draw.choice(MAKING if made[n] else NOT_MAKING)
        elif place == "column" and n and page.draw.random() < 0.4:
            row[-1], made[n] = "the same", made[n - 1]
        elif place == "column":
            row[-1] = page.draw.choice(MAKING if made[n] else NOT_MAKING)
        else:
            made[n] = place in ("before", "after")
    if place == "column":
        titles[-1] = "command"
        drawn = [[*cells[:-1], Words("", counts=False)] for cells in drawn]
    numeric = [n for n in range(width) if any(cells[n].counts for cells in drawn)]
    spared = page.draw.sample(numeric, page.draw.randint(0, len(numeric)))

    add_before(page, place, has_command=any(made))
    if place == "exempt" and spared:
        page.exempt([titles[n] for n in spared])
    elif place == "stale":
        page.needless.append(page.exempt(["gone"]))
    line = page.add(drawn_table(page.draw, [titles, ["---"] * width, *body]))
    left = [n for n in range(width) if place != "exempt" or n not in spared]
    for number, cells in enumerate(drawn):
        if not made[number] and any(cells[n].counts for n in left):
            page.claims.append(line + 2 + number)
    add_after(page, place)


def drawn_table(draw: random.Random, rows: list[list[str]]) -> str:
    """Return a table with or without its outer bars, quoted, indented or neither."""
    start, stop = draw.choice((("| ", " |"), ("| ", ""), ("", " |"), ("", "")))
    if len(rows[0]) == 1:
        start, stop = "| ", " |"
    margin = draw.choice(("", "", "> ", ">", "  "))
    return "\n".join(margin + start + " | ".join(row) + stop for row in rows)


def add_prose(page: RandomPage) -> None:
    """Add a section with a heading, and a paragraph, a list or a quotation."""
    place = page.draw.choice([place for place in PLACES if place != "column"])
    words = [page.words(MEASURED, NONE, NONE) for _ in range(3)]
    nouns = page.draw.sample(NOUNS, 3)
    parts = [f"the {noun} {text}" for noun, (text, _) in zip(nouns, words, strict=True)]
    numeric = [n for n in range(3) if words[n].counts]
    spared = page.draw.sample(numeric, page.draw.randint(0, len(numeric)))
    if place == "row":
        parts.append(page.draw.choice(MAKING))

    add_before(page, place, has_command=place in ("before", "after", "row"))
    if place == "exempt" and spared:
        page.exempt([" ".join(parts[n].split()) for n in spared])
    elif place == "stale":
        page.needless.append(page.exempt([f"{parts[0]} is gone"]))
    margin, between = page.draw.choice(
        (("", ", "), ("", ",\n"), ("- ", "\n- "), ("1. ", "\n1. "), ("> ", ",\n> "))
    )
    line = page.add(margin + between.join(parts) + ".")
    left = [n for n in numeric if place != "exempt" or n not in spared]
    if left and place not in ("before", "after", "row"):
        page.claims.append(line)
    add_after(page, place)


def add_before(page: RandomPage, place: str, *, has_command: bool) -> None:
    """Add the heading of a section, which may hold a number, and its first words."""
    text, counts = page.words(MEASURED, NONE, NONE)
    line = page.add(f"## About {text}".replace("\n", " "))
    if counts and not has_command:
        page.claims.append(line)
    if place == "before":
        page.add(page.draw.choice((f"By {page.draw.choice(MAKING)}:", FENCE)))
    elif page.draw.random() < 0.5:
        page.add(f"Words, {page.draw.choice(NOT_MAKING)}:")


def add_after(page: RandomPage, place: str) -> None:
    """Add the last words of a section."""
    if place == "after":
        page.add(page.draw.choice((f"{page.draw.choice(MAKING)} has it.", FENCE)))
    else:
        page.add("Words.")
