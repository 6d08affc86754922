"""Edits of a generated project, each with what its fingerprints must say."""

from dataclasses import dataclass

import pytest

from curvflow.flows.plan.code import fingerprints
from tests.flows.plan.code.project import (
    FILES,
    codes,
    moved,
    node,
    own_kind,
    write,
)


@dataclass(frozen=True)
class Edit:
    """A text put for another in one file of the user's project.

    `moves` holds definitions without `lab.`, `nodes` who is concerned, and `way` how
    the first is reached from the first node's function.
    """

    name: str
    file: str
    old: str
    new: str
    moves: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    way: tuple[str, ...] = ()


def same(name: str, file: str, old: str, new: str) -> Edit:
    return Edit(name, f"lab/{file}.py", old, new)


def other(
    name: str, file: str, old: str, new: str, moves: str, nodes: str, way: str = ""
) -> Edit:
    path = f"{file}.py" if file == "beside" else f"lab/{file}.py"
    return Edit(
        name,
        path,
        old,
        new,
        frozenset(moves.split()),
        frozenset(nodes.split()),
        tuple(way.split()),
    )


TARE_USERS = "sharpness factory norms_factory"
TO_TARE = "kinds:sharpness near:measure middle:weigh far:tare"

_, L1, L2 = FILES["lab/tables.py"].partition("def linf")[0].split("def ")
L1, L2 = f"def {L1.strip()}", f"def {L2.strip()}"

EDITS = [
    same("a comment", "kinds", "  # all of them", "  # each of them\n    # twice"),
    same("a docstring", "kinds", "Measure the sharpness.", "Say how sharp it is."),
    same("a docstring taken away", "shapes", '    """A ball."""\n', ""),
    same("a module's docstring", "far", "Three modules away.", "Far away."),
    same("a local name", "far", "y = _rounder(3)(x)\n    return min(y,", "z = "
         "_rounder(3)(x)\n    return min(z,"),
    same("a comprehension's name", "kinds", "[value * value for value in values]",
         "[v * v for v in values]"),
    same("a local function's name", "near", "added", "plus"),
    same("a closure's variable", "far", "calls", "count"),
    same("an exception's name", "near", "problem", "error"),
    same("an import's alias", "middle", "distant", "remote"),
    same("another way to import", "middle", "import lab.far as distant",
         "from lab import far as distant"),
    same("a relative import", "near", "from .middle", "from lab.middle"),
    same("an alias in a function", "middle", "from math import floor as down\n\n    "
         "return distant.tare(x) + down(x)",
         "import math\n\n    return distant.tare(x) + math.floor(x)"),
    same("layout", "near", "def measure(volume, norm, *, sharp=False):",
         "def measure(\n    volume,\n    norm,\n    *,\n    sharp=(False),\n):"),
    same("quotes", "kinds", 'weights["weights"]', "weights['weights']"),
    same("an annotation", "shapes", "radius: float = 1.0", "radius: 'Words' = 1.0"),
    same("a local annotation", "far", "y = _rounder", "y: float = _rounder"),
    same("a cast", "kinds", "    values = weights", '    values = cast("X", weights)'),
    same("an unrelated function", "kinds", "return x + SCALE", "return x - SCALE"),
    same("a new function nobody calls", "near", "def measure", "def new():\n    "
         "return 1\n\n\ndef measure"),
    same("a re-export nobody uses", "__init__", "from lab.near",
         "from lab.words import Words\nfrom lab.near"),
    same("what only type checkers read", "kinds", "lab.words import Words",
         "lab.shapes import Shape"),
    same("a version", "kinds", '"probe.sharpness", version=1', '"probe.sharpness", '
         "version=2"),
    same("the outputs' description", "kinds", '"a value"', '"the value"'),
    same("a function that another factory uses", "models", "Linear(1, 1)",
         "Linear(1, 2)"),
    same("a norm in no table", "tables", "abs(values).max()", "abs(values).min()"),
    same("functions in another order", "tables", f"{L1}\n\n\n{L2}",
         f"{L2}\n\n\n{L1}"),
    other("the function itself", "kinds", "SCALE * measure", "SCALE + measure",
          "kinds:sharpness", "sharpness", "kinds:sharpness"),
    other("the function of the other kind", "kinds", "].max()", "].min()",
          "kinds:plain", "plain", "kinds:plain"),
    other("a helper three modules away", "far", "return min(y, LIMIT)",
          "return max(y, LIMIT)", "far:tare", TARE_USERS, TO_TARE),
    other("a constant three modules away", "far", "LIMIT = 10.0", "LIMIT = 11.0",
          "far:LIMIT", TARE_USERS, f"{TO_TARE} far:LIMIT"),
    other("an integer for a float", "far", "LIMIT = 10.0", "LIMIT = 10",
          "far:LIMIT", TARE_USERS),
    other("a constant of the module", "kinds", "SCALE = 2.0", "SCALE = 3.0",
          "kinds:SCALE", "sharpness", "kinds:sharpness kinds:SCALE"),
    other("a constant beside the study", "beside", "4.19", "4.18", "beside:FACTOR",
          "sharpness", "kinds:sharpness shapes:Ball shapes:Ball.volume beside:FACTOR"),
    other("the body of a closure", "far", "return round(x, digits)",
          "return round(x, digits + 1)", "far:_rounder", TARE_USERS,
          f"{TO_TARE} far:_rounder"),
    other("a method", "shapes", "self.radius**3", "self.radius**2",
          "shapes:Ball.volume", "sharpness",
          "kinds:sharpness shapes:Ball shapes:Ball.volume"),
    other("a method of a base", "shapes", "sides} sides", "sides} edges",
          "shapes:Shape.describe", "sharpness",
          "kinds:sharpness shapes:Ball shapes:Shape shapes:Shape.describe"),
    other("an attribute of a base", "shapes", "sides = 0", "sides = 1",
          "shapes:Shape", "sharpness"),
    other("another base", "shapes", "class Ball(Shape)", "class Ball",
          "shapes:Ball shapes:Shape shapes:Shape.describe", "sharpness"),
    other("a field's default", "shapes", "centre: float = 0.0", "centre: float = 1.0",
          "shapes:Ball", "sharpness", "kinds:sharpness shapes:Ball"),
    other("fields in another order", "shapes", "    radius: float = 1.0\n    centre: "
          "float = 0.0", "    centre: float = 0.0\n    radius: float = 1.0",
          "shapes:Ball", "sharpness"),
    other("a decorator", "shapes", "@dataclass\n", "@dataclass(frozen=True)\n",
          "shapes:Ball", "sharpness"),
    other("a new method", "shapes", "    def moved", "    def more(self):\n        "
          "return 1\n\n    def moved", "shapes:Ball.more", "sharpness"),
    other("a default", "near", "sharp=False", "sharp=True", "near:measure",
          "sharpness", "kinds:sharpness near:measure"),
    other("a parameter's name", "near", "measure(volume, norm, *", "measure(size, norm,"
          " *, volume=1", "near:measure", "sharpness"),
    other("a function in a table", "tables", "abs(values).sum()", "values.sum()",
          "tables:l1", "sharpness", "kinds:sharpness tables:NORMS tables:l1"),
    other("a function put into a table later", "tables", "(values**2)", "(values**4)",
          "tables:l2", "sharpness"),
    other("a table", "tables", 'NORMS["l2"] = l2', 'NORMS["l2"] = linf',
          "tables:NORMS tables:l2 tables:linf", "sharpness"),
    other("a re-export of something else", "__init__", "import Ball as Round",
          "import Shape as Round", "kinds:sharpness shapes:Ball shapes:Ball.volume "
          "shapes:Ball.moved beside:FACTOR", "sharpness"),
    other("a library's function", "middle", "floor as down", "ceil as down",
          "middle:weigh", "sharpness", "kinds:sharpness near:measure middle:weigh"),
    other("statements in another order", "points", "    drawn = np.arange(count)\n",
          "    count += 1\n    drawn = np.arange(count)\n", "points:make", "points",
          "= points:make"),
    other("the factory of a model", "models", "Linear(2,", "Linear(3,", "models:make",
          "factory norms_factory", "= models:make"),
    other("a factory's default", "models", "WIDTH = 3", "WIDTH = 4", "models:WIDTH",
          "factory norms_factory", "= models:make models:WIDTH"),
    other("what a module does on import", "far", "LIMIT = 10.0", "LIMIT = 10.0\nimport "
          "torch\ntorch.manual_seed(10)", "far:<module>",
          f"{TARE_USERS} plain points"),
]  # fmt: skip


def full(name: str) -> str:
    return name if name.startswith("beside") else f"lab.{name}"


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    return codes(write(tmp_path_factory.mktemp("before"), FILES))


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_an_edit_moves_what_it_must_and_nothing_else(edit, before, tmp_path):
    assert edit.old in FILES[edit.file]
    text = FILES[edit.file].replace(edit.old, edit.new)
    after = codes(write(tmp_path, {**FILES, edit.file: text}))
    by_node = moved(before, after)
    assert set(by_node) == edit.nodes
    for definitions in by_node.values():
        assert definitions == {full(name) for name in edit.moves}
    for name in edit.nodes & {"sharpness", "plain"} if edit.way else ():
        expected = tuple(map(full, edit.way))
        assert after[name].paths[expected[-1]] == expected
    if edit.way[:1] == ("=",):
        expected = tuple(map(full, edit.way[1:]))
        for name in edit.nodes:
            (start, *path) = after[name].paths[expected[-1]]
            assert start.startswith("curvflow.tasks.")
            assert tuple(path) == expected


def test_names_stay_as_they_are_in_a_function_that_asks_for_them(tmp_path):
    kinds = FILES["lab/kinds.py"].replace("SCALE * measure", "far.shown(1) or measure")
    kinds = kinds.replace("import numpy", "from lab import far\nimport numpy")
    files = {**FILES, "lab/kinds.py": kinds}
    before = codes(write(tmp_path / "before", files))
    files["lab/far.py"] = files["lab/far.py"].replace("text = ", "words = ")
    after = codes(write(tmp_path / "after", files))
    assert moved(before, after) == {"sharpness": {"lab.far:shown"}}


def test_only_what_an_edit_can_concern_is_told_again(tmp_path, monkeypatch):
    codes(write(tmp_path / "before", FILES))
    told = []
    normal_form = fingerprints.normal_form

    def counted(names, module, *rest):
        told.append(module.name)
        return normal_form(names, module, *rest)

    monkeypatch.setattr(fingerprints, "normal_form", counted)
    codes(write(tmp_path / "copy", FILES))
    assert told == []
    beside = FILES["beside.py"].replace("4.19", "4.2")
    codes(write(tmp_path / "after", {**FILES, "beside.py": beside}))
    assert {"beside", "lab.shapes"} <= {*told}
    assert not {"lab.far", "lab.tables", "curvflow.tasks.train"} & {*told}


def test_a_module_of_the_same_text_that_is_a_package_is_another(tmp_path):
    middle = "from .far import tare\n\n\ndef weigh(x):\n    return tare(x)\n"
    files = {
        "lab/__init__.py": "",
        "lab/kinds.py": "from lab.middle import weigh\n\nsharpness = weigh\n",
        "lab/far.py": "def tare(x):\n    return x\n",
    }
    inner = {"lab/middle/far.py": "def tare(x):\n    return 2 * x\n"}
    module, package = {"lab/middle.py": middle}, {"lab/middle/__init__.py": middle}
    kind = own_kind("probe.sharpness", "lab.kinds:sharpness")
    reached = [
        fingerprints.Fingerprints(write(tmp_path / name, files | more)).of(node(kind))
        for name, more in (("module", module), ("package", package | inner))
    ]
    far, near = {"lab.far:tare"}, {"lab.middle.far:tare"}
    assert far <= {*reached[0].paths}
    assert not near & {*reached[0].paths}
    assert near <= {*reached[1].paths}
    assert not far & {*reached[1].paths}
