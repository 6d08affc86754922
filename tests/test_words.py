"""Words of the source: names, docstrings, and the two forms of a message."""

from __future__ import annotations

import ast
import gc
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks import house
from tests.messages import EXEMPT, has_a_form, raises

PACKAGE = Path(__file__).parent.parent / "src" / "curvflow"
QUESTIONS = ("What", "How", "Which", "Whether", "From", "Where", "Who", "When")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# Variables that say nothing, and the most bindings there may be of each.
PRONOUNS = {"other": 84, "others": 64, "what": 34, "held": 31}
MOST_SHORT = 10
# Words of docstrings in place of the glossary's, and the most there may be of each.
MOST_WORDS = {
    r"told": 0,
    r"tells?": 20,
    r"beside": 10,
    r"ask(?:s|ed|ing)? for": 2,
    r"in vain": 0,
    r"whoever": 0,
    r"of (?:its|their) own": 8,
    r"held": 29,
    r"what is": 40,
}
# Words that no description, message or docstring of the schemas has.
NEVER = re.compile(r"\b(told|tells|in vain|whoever)\b", re.IGNORECASE)


def is_unexplained(handler: ast.ExceptHandler, lines: list[str]) -> bool:
    """Return whether a handler catches all errors, and no comment says why."""
    name = "BaseException" if handler.type is None else ast.unparse(handler.type)
    near = lines[handler.lineno - 2 : handler.lineno]
    return name in ("Exception", "BaseException") and "#" not in "".join(near)


@dataclass(frozen=True)
class Source:
    """What a file says."""

    bound: Counter[str]
    docstrings: tuple[str, ...]
    messages: tuple[tuple[int, str, str], ...]
    unexplained: tuple[int, ...]

    @classmethod
    def of(cls, text: str) -> Source:
        """Read a file in one walk, and its messages."""
        tree, lines = ast.parse(text), text.splitlines()
        bound: Counter[str] = Counter()
        docstrings, unexplained = [], []
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                bound[node.id] += isinstance(node.ctx, ast.Store)
            elif isinstance(node, ast.arg):
                bound[node.arg] += 1
            elif isinstance(node, DOCUMENTED):
                docstrings.append(ast.get_docstring(node) or "")
            elif isinstance(node, ast.ExceptHandler) and is_unexplained(node, lines):
                unexplained.append(node.lineno)
        return cls(bound, tuple(docstrings), tuple(raises(tree)), tuple(unexplained))

    @property
    def questions(self) -> Iterator[str]:
        """Docstrings that open as a question does."""
        for text in self.docstrings:
            first = text.partition("\n")[0]
            if first.split(" ")[0].strip(",.:") in QUESTIONS:
                yield first

    @property
    def faults(self) -> Iterator[str]:
        """Messages of neither form."""
        for line, error, text in self.messages:
            if error not in EXEMPT and not has_a_form(text):
                yield f"{line}: {error}: {text}"

    def count(self, word: str) -> int:
        """Return how often a word stands in docstrings."""
        return len(re.findall(rf"\b{word}\b", " ".join(self.docstrings), re.IGNORECASE))


@pytest.fixture(scope="module")
def package():
    """Return the files of the package by their paths, each parsed once."""
    gc.disable()  # it would look through a million nodes again and again
    try:
        return {
            str(path.relative_to(PACKAGE)): Source.of(path.read_text(encoding="utf-8"))
            for path in sorted(PACKAGE.rglob("*.py"))
        }
    finally:
        gc.enable()


def bindings(package, names):
    """Return where names are bound, as often as they are."""
    return [
        f"{path}: {name}"
        for path, source in package.items()
        for name in names
        for _ in range(source.bound[name])
    ]


def test_few_variables_are_named_by_pronouns(package):
    bound = bindings(package, sorted(house.PRONOUNS))
    assert len(bound) < MOST_SHORT, "\n".join(bound)


@pytest.mark.parametrize("name", PRONOUNS)
def test_few_variables_are_named_by_what_they_are_not(package, name):
    bound = bindings(package, [name])
    assert len(bound) <= PRONOUNS[name], "\n".join(bound)


def test_no_docstring_opens_as_a_question(package):
    opened = [
        f"{path}: {q}" for path, source in package.items() for q in source.questions
    ]
    assert not opened, "\n".join(opened)


@pytest.mark.parametrize("word", MOST_WORDS)
def test_docstrings_have_few_words_that_the_glossary_avoids(package, word):
    counts = {path: n for path, source in package.items() if (n := source.count(word))}
    assert sum(counts.values()) <= MOST_WORDS[word], counts


def test_descriptions_follow_the_glossary():
    faults = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}: {node.value}"
        for path in sorted((PACKAGE / "schemas").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if NEVER.search(node.value)
    ]
    assert not faults, "\n".join(faults)


def test_a_message_has_one_of_two_forms_and_a_remedy(package):
    faults = [f"{path}:{fault}" for path, s in package.items() for fault in s.faults]
    assert not faults, "\n".join(faults)


def test_messages_are_read(package):
    assert sum(len(source.messages) for source in package.values()) > 1000


def test_what_catches_all_errors_says_why(package):
    faults = [f"{path}:{n}" for path, s in package.items() for n in s.unexplained]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("handler", "lines"),
    [
        ("except Exception:", (3,)),
        ("except BaseException as error:", (3,)),
        ("except:", (3,)),
        ("except OSError:", ()),
        ("except Exception:  # the user's code raises anything", ()),
        ("# The user's code raises anything.\nexcept Exception:", ()),
    ],
)
def test_broad_handlers_without_a_reason_are_noticed(handler, lines):
    source = Source.of(f"try:\n    f()\n{handler}\n    g()\n")
    assert source.unexplained == lines


def test_names_and_openings_are_noticed():
    text = '"""How far."""\ndef f(one):\n    found = one\n    return found\n'
    source = Source.of(text)
    assert source.bound["one"] == source.bound["found"] == 1
    assert list(source.questions) == ["How far."]


@pytest.mark.parametrize(
    ("text", "is_fine"),
    [
        ("""raise E(f"{a}: expected b, got {c}. Raise it.")""", True),
        ("""raise E(f"b: c cannot be combined with {d}. Remove it.")""", True),
        ("""raise E(f"{a}: {b}. {nearest(b)}")""", True),
        ("""raise E(f"{a}: expected b, got {c}. {nearest(c)}")""", True),
        ("""raise s.error(("a",), f"expected b, got {c}", "Raise it.")""", True),
        ("""m = "expected b, got c"\n    raise s.error(p, m, "Raise it.")""", True),
        ("""m = "expected b, got c"\n    raise s.error(p, m)""", False),
        ("""raise E(f"{a}: expected b, got {c}")""", False),
        ("""raise E(f"{a}: expected b, got {c}.")""", False),
        ("""raise E("expected no b, got c. Remove it.")""", False),
        ("""raise E("expected b. Raise it.")""", False),
        ("""raise E("b cannot be combined with c.")""", False),
        ("""raise E(f"no stage {a}. {nearest(a)}")""", False),
        ("""raise E(f"{a} exists. Rename it.")""", False),
        ("""yield ("a",), f"expected b, {c}", "Raise it.\"""", False),
        ("""return s.error(("a",), "wrong", "Raise it.")""", False),
    ],
)
def test_forms_are_told_apart(text, is_fine):
    source = Source.of(f"def f():\n    {text}\n")
    assert source.messages
    assert (not list(source.faults)) == is_fine
