"""Random pages of documentation, and the lines of their claims without a command.

Each section holds one table, paragraph, list or quotation of random numbers, and a
command that can make them, one that cannot, an exemption, or nothing.
"""

import random
from dataclasses import dataclass, field
from typing import NamedTuple


def forms(text: str) -> tuple[str, ...]:
    return tuple(form.strip() for form in text.split(" | "))


# Numbers that count wherever they stand; {v} is a whole number, {d} a decimal.
UNITS = forms(
    "s | ms | \u00b5s | \u03bcs | ns | secs | seconds | min | mins | minutes | h"
    " | hrs | hours | days | weeks | years | GPU hours | CPU minutes | core-hours"
    " | milliseconds | microseconds | nanosecond | megabytes | gigabyte | Hz | MHz"
    " | kB | MiB | TB | PB | bytes | nats | TFLOP | GFLOPs | × | x | times | fold"
    " | % | ‰ | percent | per cent"
)
MEASURED = (
    *(f"{{v}} {unit}" for unit in UNITS),
    *("**{v}**\ns", "{v}\n± {v}", "{v}\u00a0s", "{v}\u202f±\u202f{v}"),
    *forms(
        "{d} | −{d} | ({d}) | .5 | about {d} | ρ = −{d} | loss {d} | [{d}, {d}]"
        " | *{d}* | _{d}_ | ~{d} | **{d}** s | **{v}** s | ({v} s) | {v}s | {v}x"
        " | {v}× | {d}x | {d} times faster | {v}-fold | {v},240 s | 95 %"
        " | 95 % of intervals | x1.5 | {d}, interval −{d} to −{d}"
        " | 95 % interval −{d} to {d} | from {d} to {d} | {v} ± {v} | {v} +- {v}"
        " | {v} +/- {d} | **{v}** ± {v} | *{v}* ± {d} | {v}e-7 | 1e16 | {v}·10⁻⁴"
        " | {v} · 10⁻⁴ | 10⁻⁷ | 10^-7 | p = {v} | p < {v} | `rate` {d}"
        " | [{d}](page.md) | Table {d}: {d} | {d} in Figure 2.1"
        " | section 3 has {d} | a step {d} | version {v} s | type {v} ± {v}"
        " | ResNet-18 {d} | Python 3.11 {v} s | PyTorch {d} s | PyHessian {d} ×"
        " | devinterp {d} ± {d} | {v}E-7 | {v}e{v} | 10<sup>−{v}</sup>"
        " | {v}&nbsp;s | {v} &plusmn; {v} | {v} &times; less | {v} \\% | {v}\u2011fold"
        " | ×{v} | (× {v}) | 10 <sup>7</sup> | a factor of {v} | a factor {v}"
        " | it took (2024 s) | {v} tokens/s | {v} steps per second"
        " | Adam's loss (2019 ± 3) | algorithm 3 s | equation 3 ± 1 | section 2 % off"
        " | <b>{d}</b> | <td>{v}</td> | <th>{v} of {v}</th>"
    ),
)
# Numbers that count in a table alone.
WHOLE = forms(
    "{v} | −{v} | {v},240 | about {v} | {v} of {v} | **{v}** | {v} steps | SGD 2000"
    " | factors of {v} | {v}×{v}"
)
# Digits that never count.
NONE = forms(
    "words | `num_steps: {v}` | ``a `b` {d} s`` | [page](page-{d}.md#part-{d})"
    " | ResNet-18 | LeNet-5 | float32 | 2-12-1 | 784-256-10 | 2024-01-31"
    " | 1.4.{v} | Python 3.11 | PyTorch 2.3 | version 0.3 | NumPy 2.1"
    " | SQLAlchemy 2.1 | FastAPI 0.151 | Prefect 3.8 | arviz 1.0 | arviz-base 0.8"
    " | devinterp 2 | curvlinops 3.0 | CC BY 4.0 | PyHessian 0.1"
    " | hessian-eigenthings 1.0 | Table {d} | Figures 5.5 and 5.8 | section {d}"
    " | Eq. (4.28) | Theorem {v} | definition {v} | type 2 | Cohen (2021)"
    " | Cohen et al. 2021 | Wilcoxon's test (1945) | an interval of 95 %"
    " | a 95 % interval | limits at 90 % | a level of 95 % | 95 % confidence"
    " | arXiv:2103.00065 | doi:10.1126/science.1127647 | https://example.org/{d}"
    " | H<sub>{v}</sub> | x<sup>{v}</sup> | Figure 3.1b | Algorithm {v} | Section 5.5."
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
        chosen = self.draw.choice(choices)
        text = self.draw.choice(chosen)
        while "{" in text:
            decimal = f"{self.draw.randrange(30)}.{self.draw.randrange(1, 100):02}"
            text = text.replace("{d}", decimal, 1)
            text = text.replace("{v}", str(self.draw.randrange(1, 500)), 1)
        return Words(text, chosen is not NONE)


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
    head = [
        Words(f"{noun} of 3", counts=True)
        if page.draw.random() < 0.1
        else Words(noun, counts=False)
        for noun in page.draw.sample(NOUNS, width)
    ]
    body = [[page.words(MEASURED, WHOLE, NONE, NONE) for _ in head] for _ in range(3)]
    made = [place in ("before", "after")] * 3
    if place in ("row", "column"):
        made = with_commands(page.draw, body, in_column=place == "column")
    if place == "column":
        head[-1] = Words("command", counts=False)
    numeric = [n for n in range(width) if any(row[n].counts for row in [head, *body])]
    spared = page.draw.sample(numeric, page.draw.randint(0, len(numeric)))

    add_before(page, place, has_command=any(made))
    add_exemption(page, place, [head[n].text for n in spared], "gone")
    line = page.add(drawn_table(page.draw, [head, *body]))
    left = [n for n in range(width) if place != "exempt" or n not in spared]
    lines = (line, line + 2, line + 3, line + 4)
    for number, row, has in zip(lines, [head, *body], [any(made), *made], strict=True):
        if not has and any(row[n].counts for n in left):
            page.claims.append(number)
    add_after(page, place)


def with_commands(
    draw: random.Random, body: list[list[Words]], *, in_column: bool
) -> list[bool]:
    """Write a command into each row, and return which can have made its numbers."""
    made: list[bool] = []
    for row in body:
        is_same = in_column and bool(made) and draw.random() < 0.4
        made.append(made[-1] if is_same else draw.random() < 0.5)
        command = draw.choice(MAKING if made[-1] else NOT_MAKING)
        if in_column:
            row[-1] = Words("the same" if is_same else command, counts=False)
        else:
            row[0] = row[0]._replace(text=f"{row[0].text} {command}")
    return made


def drawn_table(draw: random.Random, body: list[list[Words]]) -> str:
    """Return a table with or without its outer bars, quoted, indented or neither."""
    start, stop = draw.choice((("| ", " |"), ("| ", ""), ("", " |"), ("", "")))
    rows = [[words.text.replace("\n", " ") for words in row] for row in body]
    rows.insert(1, ["---"] * len(rows[0]))
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
    phrases = [" ".join(parts[n].split()) for n in spared]
    add_exemption(page, place, phrases, f"{parts[0]} is gone")
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


def add_exemption(page: RandomPage, place: str, names: list[str], gone: str) -> None:
    """Add an exemption of these, or of what is not there."""
    if place == "exempt" and names:
        page.exempt(names)
    elif place == "stale":
        page.needless.append(page.exempt([" ".join(gone.split())]))


def add_after(page: RandomPage, place: str) -> None:
    """Add the last words of a section."""
    if place == "after":
        page.add(page.draw.choice((f"{page.draw.choice(MAKING)} has it.", FENCE)))
    else:
        page.add("Words.")
