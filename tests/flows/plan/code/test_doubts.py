"""What counts as a whole, and that nothing moves a result in silence."""

import random
from collections import Counter

import pytest

from curvflow.flows.plan.code.doubts import doubt_of
from curvflow.flows.plan.code.fingerprints import Fingerprints
from curvflow.flows.plan.code.normal import Names
from curvflow.flows.plan.code.sources import Sources
from tests.flows.plan.code.grammar import FORMS, IMPORTS, draw
from tests.flows.plan.code.project import PACKAGE, node, own_kind, write

# Nothing in these changes another name while it is imported.
PLAIN = """
'''What it is for.'''
from __future__ import annotations
import dataclasses, functools, logging
import numpy as np
import torch
from typing import TYPE_CHECKING, overload
import curvflow
from curvflow import Params, Variable, stage
try:
    import tomllib
except ImportError:
    tomllib = None
if TYPE_CHECKING:
    from elsewhere import Thing
LOG = logging.getLogger(__name__)
WIDTHS: list[int] = [1, 2, len((3, 4))]
FIRST, *REST = WIDTHS
TABLE = {"a": 1, "b": np.arange(3)}
TABLE["c"] = sum(WIDTHS)
OUTPUTS = (Variable("value", "a value"),)
torch.set_grad_enabled(True)
class Base:
    sides = 0
    def describe(self): return self.sides
class Chosen(Params):
    power: float = 1.0
@dataclasses.dataclass(frozen=True)
class Ball(Base):
    radius: float = 1.0
    others: list[int] = dataclasses.field(default_factory=lambda: [1])
    @property
    def volume(self): return self.radius
    @volume.setter
    def volume(self, value): TABLE["x"] = value
@functools.lru_cache(maxsize=None)
def helper(x, scale=max(1, 2)): return x * scale
half = functools.partial(helper, scale=0.5)
@overload
def f(x: int): ...
def f(x): return [y for y in x if (z := y)]
@stage("mine", version=1, outputs=OUTPUTS)
def start(weights, params: Chosen): return Ball()
if __name__ == "__main__":
    TABLE.update(d=start())
"""
# What a reason says, without its line.
REASONS = {
    "T = {}\nfor i in (1,):\n    T[i] = i\n": "line 2: `For` at module level",
    "from numpy import *\n": "line 1: import *",
    "V = 0\nfrom far import *\n": "line 2: import *",
    "import os\n_ = os.umask(1)\n": "line 2: `umask` may change a library's state",
    "class C:\n    def __add__(self, o): return o\nI = C()\nX = I + 1\n": (
        "line 3: a call of the project's `C`"
    ),
    "T = {}\nA = T\nA['x'] = 1\n": "line 3: an assignment to a part of something",
    "T = {}\nold = T.setdefault('a', 1)\n": "line 2: a call of the project's `T`",
    "X = 1\nX = 2\n": "line 2: X is bound again",
    "T = []\ndef f(x):\n    T.append(x)\n    return x\n@f\ndef g(): pass\n": (
        "line 5: a decorator that may register"
    ),
    "def __getattr__(name): pass\n": "line 1: a module's __getattr__",
    "T = globals()\n": "line 1: a call of `globals`",
    "T = [globals]\n": "line 1: `globals`",
    "if X := 1:\n    pass\n": "line 1: a condition at module level",
    "from importlib import import_module\nm = import_module(chr(97))\n": (
        "line 2: a module of a computed name"
    ),
}
# Modules of this package whose statements are certain for a reason that no rule states.
EXCUSED = {
    # It computes a derivative, so that the first tile is as fast as others.
    "curvflow.tasks.numerics.derivatives.differentiation_modes",
    # The largest of its own constants, by a function that returns a part of each.
    "curvflow.tasks.numerics.sampling.calibration_sweep",
}


def doubt(folder, text):
    write(folder, {"mine.py": text, "far.py": "V = 1\n"})
    names = Names(Sources(folder, PACKAGE), frozenset({"mine", "far"}))
    return doubt_of(names, names.module("mine"))


def test_plain_definitions_raise_no_doubt(tmp_path):
    assert doubt(tmp_path, PLAIN) == ""


@pytest.mark.parametrize("text", REASONS)
def test_a_doubt_names_its_line(tmp_path, text):
    assert doubt(tmp_path, text) == REASONS[text]


@pytest.mark.processes
def test_random_edits_are_never_silent(judge):
    random_ = random.Random(27)
    cases = [draw(random_) for _ in range(150)]
    outcomes = judge(*cases)
    for case, outcome in zip(cases, outcomes, strict=True):
        assert outcome != "silent", (case.forms, case.before["mine.py"])
    counts = Counter(outcomes)
    assert counts["noticed"] > 75  # as for the rest, nothing moved
    assert counts["quiet"] > 3


def test_every_way_of_a_number_is_a_case_of_its_own():
    used = {form for seed in range(3000) for form in draw(random.Random(seed)).forms}
    assert used > FORMS.keys() | IMPORTS.keys()


def test_this_package_raises_no_doubt_where_it_computes():
    names = Names(Sources(PACKAGE, PACKAGE), frozenset())
    doubts = {}
    for path in (PACKAGE / "tasks").rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        if reason := doubt_of(names, names.module(name)):
            doubts[name] = reason
    assert doubts.keys() == EXCUSED, doubts


def test_of_a_module_with_a_doubt_all_counts_and_the_reason_is_told(tmp_path):
    code = "T = {}\nfor i in (1,):\n    T[i] = 1\ndef start(): return T\n"
    write(tmp_path, {"mine.py": f"{code}def unused(): pass\n"})
    told = Fingerprints(tmp_path).of(node(own_kind("mine", "mine:start")))
    assert told.doubts == {"mine": "line 2: `For` at module level"}
    assert {"mine:<whole>", "mine:unused"} <= told.definitions.keys()


def test_a_module_that_is_a_value_counts_as_a_whole_without_a_doubt(tmp_path):
    text = "import far\ndef start(): return [far]\n"
    write(tmp_path, {"mine.py": text, "far.py": "V = 1\nW = 2\n"})
    told = Fingerprints(tmp_path).of(node(own_kind("mine", "mine:start")))
    assert told.doubts == {"far": ""}
    assert {"far:V", "far:W", "far:<whole>"} <= told.definitions.keys()


def test_a_module_added_to_a_package_that_is_loaded_by_computed_names_counts(tmp_path):
    files = {
        "mine.py": "import importlib, pkg\n"
        "def start(n): return importlib.import_module(f'pkg.{n}')\n",
        "pkg/__init__.py": "",
        "pkg/one.py": "V = 1\n",
    }
    write(tmp_path, files)
    before = Fingerprints(tmp_path)
    code = before.of(node(own_kind("mine", "mine:start")))
    assert "pkg.one:V" in code.definitions
    write(tmp_path, {"pkg/two.py": "V = 2\n"})
    after = Fingerprints(tmp_path)
    assert not after.are_as_before(before.files())
    assert "pkg.two:V" in after.of(node(own_kind("mine", "mine:start"))).definitions
