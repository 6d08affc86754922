"""Numbers in the documentation carry the commands that make them."""

import random
import re
from functools import cache

import pytest

from tests.claim_pages import MEASURED, NONE, WHOLE, RandomPage, random_page
from tests.claims import (
    PAGES,
    ROOT,
    broken,
    claims,
    is_measured,
    missing,
    needless,
    stripped,
)
from tests.loops import for_each

STUDY = "studies/papers/granziol-2020/table-2.1.yaml"


def text_of(page):
    return page.read_text(encoding="utf-8")


@for_each("page", PAGES)
def test_claims_stand_with_a_command(page):
    without = [f"{page.name}:{c.line}: {c.text}" for c in missing(text_of(page))]
    assert not without, "\n".join(without)


@for_each("page", PAGES)
def test_claims_name_commands_that_are_there(page):
    assert not broken(text_of(page))


@for_each("page", PAGES)
def test_claims_are_exempt_by_words_that_are_there(page):
    assert not needless(text_of(page))


@for_each("page", PAGES)
def test_claims_are_not_of_measurements_by_hand(page):
    by_hand = r"\b(?:timed|measured|compared|tried|made)\s+by\s+hand\b|\bBy hand,"
    assert not re.search(by_hand, text_of(page))


@cache
def found():
    """Return all claims, each with its page."""
    return [(page, claim) for page in PAGES for claim in claims(text_of(page))]


def test_claims_are_found_on_the_pages_that_measure():
    pages = {page.name for page, _ in found()}
    assert pages > {"README.md", "performance.md", "llc.md", "saghir-2024.md"}
    assert len(found()) > 400


@for_each("seed", range(100))
def test_claims_that_lose_their_commands_are_reported(seed):
    page, claim = random.Random(seed).choice(found())
    changed = stripped(text_of(page), claim)
    assert claim.line in {lost.line for lost in missing(changed)}


@for_each("seed", range(20))
def test_claims_of_one_row_are_reported_by_themselves(seed):
    """Only rows below that refer to it by `the same` are reported too."""
    page = ROOT / "docs" / "performance.md"
    rows = [c for c in claims(text_of(page)) if c.text.endswith("` |")]
    claim = random.Random(seed).choice(rows)
    lost = [other.line for other in missing(stripped(text_of(page), claim))]
    assert lost == [*range(claim.line, claim.line + len(lost))]
    assert len(lost) == 1 + same_below(text_of(page), claim.line)


def same_below(text: str, line: int) -> int:
    rest = text.splitlines()[line:]
    return next(n for n, row in enumerate(rest) if not row.endswith("| the same |"))


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("| MLP | 1.31 s |", True),
        ("| MLP | **8.7e-05** ± 0.0001 |", True),
        ("| MLP | cover 91 % |", True),
        ("| 2-10-1 | `num_steps: 30` |", False),
        ("| `x_low` | an interval of 95 % |", False),
        ("| 300 networks | diverged |", True),
        ("| Table 2.1 of Cohen (2021) | ResNet-18 |", False),
    ],
)
def test_claims_are_numbers_and_not_settings(row, expected):
    assert is_measured(row) is expected


PAGE = "# Page\n\n{lead}\n\n| a | b |\n|---|---|\n| net | 1.5 s |\n\n{after}\n"


@pytest.mark.parametrize(
    ("lead", "after"),
    [
        (f"`curvflow run {STUDY}`:", ""),
        ("By `python -m benchmarks.logdet --hold`:", ""),
        ("By `python -m\nbenchmarks.logdet --seed 1`:", ""),
        ("```sh\nmake bench\n```", ""),
        ("Words.", "`pytest tests/test_claims.py` has it."),
        ('<!-- no measurement: settings, "b" -->', ""),
    ],
)
def test_claims_take_each_form_of_command(lead, after):
    assert not missing(PAGE.format(lead=lead, after=after))


@pytest.mark.parametrize(
    "lead",
    [
        "`curvflow run studies/nowhere.yaml`:",
        f"`curvflow run {STUDY} --profile none`:",
        "`python -m benchmarks.nothing`:",
        "`python -m benchmarks.logdet --fast`:",
        "`make money`:",
        "`make test`:",
        "`make check`:",
        "<!-- `make bench` -->",
        "`pytest tests/test_nothing.py`:",
        "make bench, without code:",
        "<!-- no measurement: settings -->",
        '<!-- no measurement: settings, "a" -->',
        '<!-- no measurement: because, "b" -->',
        "`table-2.1.yaml`:",
    ],
)
def test_claims_take_no_command_that_is_not_there(lead):
    assert [claim.text for claim in missing(PAGE.format(lead=lead, after=""))]


def test_claims_may_name_a_study_whose_folder_the_page_has_shown():
    lead = f"`curvflow run {STUDY}`\n\n## Results\n\n`figure-2.1.yaml`:"
    assert not missing(PAGE.format(lead=lead, after=""))
    lead = lead.replace("figure-2.1", "figure-9.9")
    assert missing(PAGE.format(lead=lead, after=""))


def test_claims_may_be_of_a_study_that_the_page_writes():
    study = "```yaml\n# mine.yaml\nstudy: mine\n```"
    lead = f"{study}\n\n## Results\n\n`curvflow run mine.yaml`:"
    assert not missing(PAGE.format(lead=lead, after=""))
    assert missing(PAGE.format(lead=lead.replace("# mine", "# other"), after=""))


def test_claims_of_a_second_table_are_not_those_of_the_first():
    text = PAGE.format(lead="`make bench`:", after="Then:")
    table = text[text.index("| a |") : text.index("Then:")]
    assert len(missing(f"{text}\n{table}")) == 1


FORMS = ["{}", "- {}", "> {}", "## {}", "1. one,\n2. {}", "| a |\n|---|\n| {} |"]


@pytest.mark.parametrize("form", FORMS)
def test_claims_are_found_in_each_form(form):
    page = RandomPage(random.Random(0))
    for words in MEASURED:
        text = page.words((words,)).text.replace("\n", " ")
        assert missing(f"# Page\n\n{form.format(text)}\n"), text
    for words in NONE:
        text = page.words((words,)).text
        assert not missing(f"# Page\n\n{form.format(text)}\n"), text


def test_claims_of_whole_numbers_are_found_in_tables_alone():
    page = RandomPage(random.Random(0))
    for words in WHOLE:
        text = page.words((words,)).text
        assert missing(f"a | b\n---|---\nnet | {text}\n"), text
        assert not missing(f"Of {text}.\n"), text


@pytest.mark.parametrize("first", range(0, 150, 30))
def test_claims_of_random_pages_are_those_without_a_command(first):
    for seed in range(first, first + 30):
        page = random_page(seed)
        assert [claim.line for claim in missing(page.text)] == page.claims, seed
        lines = [int(fault.split(":")[0]) for fault in needless(page.text)]
        assert lines == page.needless, seed


def test_random_pages_hold_claims_with_and_without_a_command():
    pages = [random_page(seed) for seed in range(50)]
    without = sum(len(page.claims) for page in pages)
    total = sum(len([*claims(page.text)]) for page in pages)
    assert without > 100
    assert total - without > 100
    assert any(page.needless for page in pages)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("```sh\na\n```\n```sh\nb\n```\nloss 0.93", [7]),
        ("```\nloss 0.93\n```", []),
        ("~~~\nloss 0.93\n~~~\n\nloss 0.93", [5]),
        ("```a``` loss 0.93", [1]),
        ("So:\n\n    loss 0.93\n\nloss 0.93", [5]),
        ("- so:\n\n    loss 0.93", [3]),
        ("<!-- a\n\nb -->\nloss 0.93", [4]),
        ("<!-- a --> loss 0.93", [1]),
        ("<!-- a --> loss 0.93 <!-- b -->", [1]),
        ("<!-- a --> <!-- b --> \n\nloss 0.93", [3]),
        ("<!-- a\nb --> loss 0.93", [2]),
        ("<table>\n<tr><td>a</td><td>3</td></tr>\n</table>", [1]),
        ("- so:\n\n  | a | b |\n  |---|---|\n  | net | 1 |\n- loss 0.93", [5, 6]),
        ("So:\na | b\n-|-\nnet | 1\nnet\n2 | net\n\nof 3", [4, 6]),
        ("| a | b of 2 |\n|---|---|\n| net | c |", [1]),
    ],
)
def test_claims_are_found_in_each_block(text, lines):
    assert [claim.line for claim in missing(text)] == lines
