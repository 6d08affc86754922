"""Each promise in docs/reliability.md names its tests, and these exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\*\*(\d+)\. (.*?)(?=^\*\*\d+\. |^## )", PAGE, re.M | re.S))
NAMED = sorted(set(re.findall(r"`(tests/\S+\.py)::(\w+)`", PAGE)))


def known(path):
    """Return the names of the tests of a file, of functions and of state machines."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    assigned = [n.targets[0] for n in tree.body if isinstance(n, ast.Assign)]
    return functions | {name.id for name in assigned if isinstance(name, ast.Name)}


def test_the_tests_that_the_page_names_exist():
    assert len(NAMED) > 60
    assert [name for name in NAMED if name[1] not in known(name[0])] == []


def test_every_fault_has_its_paragraph_in_order():
    assert list(ROWS) == [str(number) for number in range(1, 32)]


@pytest.mark.parametrize("number", ROWS)
def test_every_fault_names_a_test(number):
    text = ROWS[number]
    assert re.search(r"^- `tests/\S+::test_\w+`$", text, re.M)
    assert "Not applicable" not in text


def test_every_test_of_faults_stands_in_the_page_or_next_to_one_that_does():
    named = {path for path, _ in NAMED}
    files = {
        p.relative_to(ROOT).as_posix() for p in ROOT.glob("tests/faults/test_*.py")
    }
    assert files - named == {"tests/faults/test_reliability_page.py"}
