"""Words of the source: nouns for variables, and docstrings that say what a thing is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "curvflow"
PRONOUNS = frozenset({"one", "found", "told", "own", "some"})
MOST_PRONOUNS = 100
QUESTIONS = ("What", "How", "Which", "Whether", "From", "Where", "Who", "When")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def bindings(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a file binds as variables and arguments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        if isinstance(node, ast.arg):
            yield node.arg


def questions(tree: ast.AST) -> Iterator[str]:
    """Yield the docstrings that open as a question does."""
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED):
            first = (ast.get_docstring(node) or "").partition("\n")[0]
            if first.split(" ")[0].strip(",.:") in QUESTIONS:
                yield first


@pytest.fixture(scope="module")
def package():
    """Return the files of the package by their paths."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return {str(p.relative_to(PACKAGE)): ast.parse(p.read_text()) for p in paths}


def test_few_variables_are_named_by_pronouns(package):
    bound = [
        f"{path}: {name}"
        for path, tree in package.items()
        for name in bindings(tree)
        if name in PRONOUNS
    ]
    assert len(bound) < MOST_PRONOUNS, "\n".join(bound)


def test_no_docstring_opens_as_a_question(package):
    opened = [
        f"{path}: {text}" for path, tree in package.items() for text in questions(tree)
    ]
    assert not opened, "\n".join(opened)


def test_both_are_noticed():
    tree = ast.parse('"""How far."""\ndef f(one):\n    found = one\n    return found\n')
    assert sorted(bindings(tree)) == ["found", "one"]
    assert list(questions(tree)) == ["How far."]
