"""Pages and README import nothing but public names; public functions have examples."""

import ast
import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest
import torch

import curvflow
import curvflow.testing
from curvflow.schemas import nodes
from curvflow.tasks import numerics
from curvflow.tasks.library.operators import SymmetricOperator

ROOT = Path(__file__).parents[1]
PUBLIC = {
    "curvflow": set(curvflow.__all__),
    "curvflow.tasks.numerics": set(numerics.__all__),
    "curvflow.testing": set(curvflow.testing.__all__),
}
FILES = {"curvflow.lock"}  # whose names look like those of modules
# Functions of studies, whose pages run whole studies instead.
STUDIES = {"open", "read_devinterp", "run", "stage", "to_arviz"}


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
    """Yield the dotted names of public functions, and of methods of operators."""
    for module, names in PUBLIC.items():
        for name in sorted(names - STUDIES):
            thing = getattr(importlib.import_module(module), name)
            if inspect.isfunction(thing):
                yield f"{module}.{name}", thing
    for name, method in vars(SymmetricOperator).items():
        is_measured = inspect.isfunction(method) and not name.startswith("_")
        if is_measured and name not in ("like", "remembered"):
            yield f"SymmetricOperator.{name}", method


FUNCTIONS = dict(public_functions())


def test_every_public_function_has_an_example_that_holds():
    faults, finder = [], doctest.DocTestFinder(recurse=False)
    for name, function in FUNCTIONS.items():
        given = {**function.__globals__, "torch": torch}
        example = next(iter(finder.find(function, name, globs=given)), None)
        if example is None or not example.examples:
            faults.append(f"{name} has no example")
            continue
        said = []
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        if runner.run(example, out=said.append).failed:
            faults.append("".join(said))
    assert not faults, "\n".join(faults)


def test_all_edges_between_stages_are_public():
    edges = {
        name
        for name, thing in vars(nodes).items()
        if inspect.isclass(thing) and issubclass(thing, nodes.NodeData)
    }
    assert edges - {"NodeData"} <= set(curvflow.__all__)


def test_completion_shows_the_public_names_alone():
    assert dir(curvflow) == sorted(curvflow.__all__)
