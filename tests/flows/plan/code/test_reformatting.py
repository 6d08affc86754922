"""However code is laid out, its fingerprint is the same."""

import ast
import tokenize
from functools import cache
from hashlib import sha256
from io import StringIO
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from curvflow.flows.plan.code.fingerprints import Definitions
from curvflow.flows.plan.code.modules import read_module
from curvflow.flows.plan.code.normal import Names
from curvflow.flows.plan.code.sources import Sources
from tests.flows.plan.code.project import PACKAGE

TEXTS = {
    path: path.read_text(encoding="utf-8")
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.stat().st_size > 400
}


class OneModule(Sources):
    """The sources of a project of one module."""

    def __init__(self, text: str) -> None:
        # No folder: there is nothing else.
        self.text = text.encode()
        self.only = read_module("one", self.text, is_package=False)

    def module(self, name, tops):
        return self.only if name == "one" else None

    def digest(self, name):
        return sha256(self.text).hexdigest()


def digests(text: str) -> dict[str, str]:
    definitions = Definitions(Names(OneModule(text), frozenset()))
    pending = list(definitions.whole("one"))
    collected: dict[str, str] = {}
    while pending:
        name = pending.pop()
        if name not in collected:
            collected[name] = definitions.digest(name)
            definition = definitions.of(name)
            pending += definition.references if definition else ()
            pending = [name for name in pending if not name.endswith(">")]
    return collected


@cache
def digests_of(path: Path) -> dict[str, str]:
    """Return the digests of a file as it is, computed once."""
    return digests(TEXTS[path])


def starts_of_lines(text: str) -> list[int]:
    """Return the lines between which nothing is broken by another line."""
    starts = {1}
    for token in tokenize.generate_tokens(StringIO(text).readline):
        if token.type in (tokenize.NEWLINE, tokenize.NL):
            starts.add(token.end[0] + 1)
        if token.start[0] < token.end[0]:  # a string of several lines
            starts -= set(range(token.start[0] + 1, token.end[0] + 1))
    return sorted(starts)


@given(data=st.data())
@settings(deadline=None, max_examples=40)
def test_comments_and_blank_lines_change_no_fingerprint(data):
    path: Path = data.draw(st.sampled_from(sorted(TEXTS)))
    lines = TEXTS[path].splitlines()
    places = st.sampled_from(starts_of_lines(TEXTS[path]))
    added = st.sampled_from(["", "# a note", "        # a note"])
    chosen = data.draw(st.dictionaries(places, added, min_size=1, max_size=8))
    for line in sorted(chosen, reverse=True):
        lines.insert(line - 1, chosen[line])
    assert digests("\n".join(lines)) == digests_of(path)


@given(st.sampled_from(sorted(TEXTS)))
@settings(deadline=None, max_examples=40)
def test_code_written_anew_from_its_tree_has_the_same_fingerprint(path):
    assert digests(ast.unparse(ast.parse(TEXTS[path]))) == digests_of(path)


class Renaming(ast.NodeTransformer):
    """Give the local variables of one function other names."""

    def __init__(self, function: ast.FunctionDef) -> None:
        self.names = {
            node.id
            for node in ast.walk(function)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }

    def visit_Name(self, node):
        if node.id in self.names:
            node.id = f"renamed_{node.id}"
        return node


def simple_functions(tree: ast.Module) -> list[ast.FunctionDef]:
    """Return functions whose names need no thought: all is in one scope."""
    nested = (ast.FunctionDef, ast.Lambda, ast.ClassDef, ast.Global, ast.Nonlocal)
    collected = []
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef):
            continue
        inner = [n for n in ast.walk(function) if n is not function]
        parameters = {n.arg for n in inner if isinstance(n, ast.arg)}
        stored = Renaming(function).names
        asks = {"locals", "vars", "eval", "exec"} & {
            n.id for n in inner if isinstance(n, ast.Name)
        }
        if any(isinstance(n, nested) for n in inner) or asks:
            continue
        if not parameters & stored:
            collected.append(function)
    return collected


@given(data=st.data())
@settings(deadline=None, max_examples=40)
def test_other_names_of_local_variables_change_no_fingerprint(data):
    path = data.draw(st.sampled_from(sorted(TEXTS)))
    tree = ast.parse(TEXTS[path])
    for function in simple_functions(tree):
        Renaming(function).visit(function)
    assert digests(ast.unparse(tree)) == digests_of(path)


# All that Python spells or parses differently from release to release.
PINNED = """
from os import path as p
import numpy.linalg as la

X = {"a": 1, **{"b": 2.5e-300}, "é\\u200b": -1j}

@p.cached
class A(Base, key=la.norm):
    x: int = 3
    y: str

    async def m(self, /, a, *args, b=lambda z: z, **more) -> int:
        async with p.o(a) as f, f.g:
            yield f"{a!r:>{b}} and {self.x=}" "tail" f"{X['a']}"
        try:
            del a[1:2, ..., ::3]
        except (ValueError, TypeError) as e:
            raise OSError("no") from e
        else:
            return None

def f(x, *rest):
    out = [i for j in x if j for i in j if (k := i)] + [k, *rest]
    match out:
        case [1, *others] | {"a": others, **_rest}:
            while others: others = others[1:]
        case A(x=3) as found if found: print(found, end=b"\\x00")
        case _: pass
    nonlocal_ = not x @ 2 ** -1 < 3 <= 4
    global X
    X += nonlocal_ if x else u"u" 'v'
    return (yield from {c: d for c, d in out.items()}), {*x}
"""


def test_the_normal_form_is_the_same_in_every_release_of_python():
    # Another digest means another normal form: raise NORMAL_FORM with it.
    assert digests(PINNED) == {
        "one:X": "63ef3ab64e614e6e",
        "one:A": "9738baf55bd45723",
        "one:A.m": "6656b5c58d52e5c4",
        "one:f": "5c014963f1f26f79",
    }
