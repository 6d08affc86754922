"""Pages and README import nothing but public names; public functions have examples."""

import ast
import doctest
import importlib
import inspect
import re
from pathlib import Path
from unittest import mock

import pytest
import torch

import curvflow
import curvflow.testing
from curvflow.errors import CurvflowError
from curvflow.flows import library, library_llc
from curvflow.schemas import kinds, nodes
from curvflow.tasks import numerics
from curvflow.tasks.library import kronecker, results
from curvflow.tasks.library.operators import SymmetricOperator
from curvflow.tasks.llc import library as llc

ROOT = Path(__file__).parents[1]
PUBLIC = {
    "curvflow": set(curvflow.__all__),
    "curvflow.tasks.numerics": set(numerics.__all__),
    "curvflow.testing": set(curvflow.testing.__all__),
}
FILES = {"curvflow.lock"}  # whose names look like those of modules
# Modules of what functions and methods return, whose classes `__all__` does not list.
RESULTS = (results, kronecker, llc)
# Methods that curvflow itself calls, on what it makes.
HOOKS = {"like", "of", "remembered", "with_work"}
# Examples that need Lightning, transformers or devinterp.
UNRUN = {"Monitor.lightning", "Monitor.hf", "curvflow.read_devinterp"}


def private_names(code):
    """Return the names of curvflow that code takes and no `__all__` lists."""
    tree = ast.parse(code)
    taken = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
            "curvflow"
        ):
            taken += [(node.module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            taken += [(a.name, "") for a in node.names if a.name.startswith("curvflow")]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            taken += [("curvflow", node.attr)] * (node.value.id == "curvflow")
    return [
        f"{module}.{name}"
        for module, name in taken
        if name not in PUBLIC.get(module, set()) | {""} or module not in PUBLIC
    ]


def pages():
    """Yield each page's name and text."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        yield str(page.relative_to(ROOT)), page.read_text(encoding="utf-8")


def private_mentions(text):
    """Return the private names of curvflow that the prose of a page mentions."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    names = re.findall(r"`@?(curvflow(?:\.\w+)+)", prose)
    return [name for name in names if not is_public(name) and name not in FILES]


def is_public(name):
    """Return whether a dotted name is public, or an attribute of what is."""
    home, _, last = name.rpartition(".")
    if name in PUBLIC or home in PUBLIC:
        return name in PUBLIC or last in PUBLIC[home]
    return home != "" and is_public(home)


def test_pages_take_public_names_alone():
    faults = {}
    for page, text in pages():
        blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        taken = [name for code in blocks for name in private_names(code)]
        if private := taken + private_mentions(text):
            faults[page] = private
    assert faults == {}


def test_modules_of_shipped_studies_take_public_names_alone():
    modules = sorted((ROOT / "studies").rglob("*.py"))
    assert len(modules) > 4
    taken = {m.name: private_names(m.read_text(encoding="utf-8")) for m in modules}
    assert {name: private for name, private in taken.items() if private} == {}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("see `curvflow.stores.open`", ["curvflow.stores.open"]),
        ("`curvflow.secret(x)`", ["curvflow.secret"]),
        ("`curvflow.llc(net)`, `curvflow.Monitor.step`, `curvflow.testing`", []),
        ("```sh\n`curvflow.secret`\n```\n", []),
    ],
)
def test_private_names_of_prose_are_seen(text, names):
    assert private_mentions(text) == names


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from curvflow.stores import open", ["curvflow.stores.open"]),
        ("import curvflow.flows", ["curvflow.flows."]),
        ("import curvflow\ncurvflow.secret()", ["curvflow.secret"]),
        ("from curvflow.tasks.numerics import PART", ["curvflow.tasks.numerics.PART"]),
        ("import curvflow\ncurvflow.hessian\nfrom curvflow.testing import dense", []),
    ],
)
def test_names_that_are_not_public_are_found(code, found):
    assert private_names(code) == found


def public_functions():
    """Yield the public functions with their dotted names."""
    for module, names in PUBLIC.items():
        for name in sorted(names):
            thing = getattr(importlib.import_module(module), name)
            if inspect.isfunction(thing):
                yield f"{module}.{name}", thing


def public_classes():
    """Yield each public class, and whether users make one: of others are no examples.

    Edges between stages are given to functions, errors are raised, results returned.
    """
    for name in sorted(curvflow.__all__):
        thing = getattr(curvflow, name)
        if inspect.isclass(thing):
            yield thing, not issubclass(thing, nodes.NodeData | CurvflowError)
    for module in RESULTS:
        for thing in vars(module).values():
            if inspect.isclass(thing) and thing.__module__ == module.__name__:
                yield thing, False


def public_methods(owner):
    """Yield the methods of a class and of its bases, with their dotted names."""
    names = [
        name
        for base in owner.__mro__
        if base.__module__.startswith("curvflow")
        for name in vars(base)
        if not name.startswith("_") and name not in HOOKS
    ]
    for name in dict.fromkeys(names):
        method = getattr(owner, name)
        if inspect.isfunction(method) or inspect.ismethod(method):
            yield f"{owner.__name__}.{name}", method


class Examples:
    """Runs the examples of docstrings, and lists the faults."""

    def __init__(self):
        self.faults, self._seen = [], set()

    def run(self, name, thing, given):
        """Run the examples of one docstring; what they define is added to `given`."""
        if inspect.unwrap(thing) in self._seen:  # of a base
            return
        self._seen.add(inspect.unwrap(thing))
        finder = doctest.DocTestFinder(recurse=False)
        example = next(iter(finder.find(thing, name, globs=given)), None)
        if example is None or not example.examples:
            self.faults.append(f"{name} has no example")
            return
        is_run = not example.examples[0].options.get(doctest.SKIP)
        if is_run != (name not in UNRUN):
            self.faults.append(f"{name} is {'' if is_run else 'not '}run")
        said = []
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        if runner.run(example, out=said.append, clear_globs=False).failed:
            self.faults.append("".join(said))
        given.update(example.globs)


@pytest.fixture
def examples(tmp_path, monkeypatch):
    """Return a runner in a folder of its own, whose kinds are forgotten."""
    monkeypatch.chdir(tmp_path)
    with mock.patch.dict(kinds._added):
        yield Examples()


def test_every_public_function_has_an_example_that_holds(examples):
    for name, function in public_functions():
        examples.run(name, function, {**function.__globals__, "torch": torch})
    assert not examples.faults, "\n".join(examples.faults)


def test_every_public_class_and_method_has_an_example_that_holds(examples):
    for owner, is_made in public_classes():
        given = {"torch": torch}
        if is_made or ">>>" in (owner.__doc__ or ""):
            examples.run(owner.__name__, owner, given)
        for name, method in public_methods(owner):  # they go on from the class's
            examples.run(name, method, dict(given))
    assert not examples.faults, "\n".join(examples.faults)


def called_in(program):
    """Return (variable, attribute, keywords) of the calls in a program.

    The variable is the first of a chain: H of `H.block("0.*").trace(4)`.
    """
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            first = node.func
            while isinstance(first, ast.Attribute | ast.Call):
                first = first.value if isinstance(first, ast.Attribute) else first.func
            if isinstance(first, ast.Name):
                yield first.id, node.func.attr, {word.arg for word in node.keywords}


# The variables of the program that are of these classes, or of any of them.
VARIABLES = {
    SymmetricOperator: {"H", "G", "result"},
    results.Spectrum: {"runs", "result"},
    kronecker.KroneckerFactors: {"K"},
    llc.LlcResult: {"fit", "result"},
}


def test_the_program_that_uses_the_library_uses_all_of_it():
    calls = list(called_in((ROOT / "tests/library_use.py").read_text(encoding="utf-8")))
    lacking = []
    for owner, variables in VARIABLES.items():
        own = [(name, words) for first, name, words in calls if first in variables]
        for dotted, method in public_methods(owner):
            given = [
                words for name, words in own if f"{owner.__name__}.{name}" == dotted
            ]
            if not given:
                lacking.append(dotted)
            elif "preconditioner" in inspect.signature(method).parameters:
                lacking += [dotted] * (not any("preconditioner" in w for w in given))
    public = set(library.__all__) | set(library_llc.__all__)
    lacking += public - {name for first, name, _ in calls if first == "curvflow"}
    assert lacking == []


def test_all_edges_between_stages_are_public():
    edges = {
        name
        for name, thing in vars(nodes).items()
        if inspect.isclass(thing) and issubclass(thing, nodes.NodeData)
    }
    assert edges - {"NodeData"} <= set(curvflow.__all__)


def test_completion_shows_the_public_names_alone():
    assert dir(curvflow) == sorted(curvflow.__all__)
