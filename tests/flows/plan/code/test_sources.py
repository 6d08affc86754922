"""Functions that a study names are looked for while planning; nothing is imported."""

import sys
import zipfile
from importlib.machinery import ModuleSpec

import pytest

from curvflow.errors import StudyError
from curvflow.flows.graph.open_study import open_study
from curvflow.flows.plan.plan import make_plan

STUDY = """\
study: named
axes:
  net:
    good: {factory: "named_nets:make"}
    other: {factory: NAMED}
stages:
  data: {use: data.xor}
  fit: {use: train, data: data, model: "${net}", rule: {rule: sgd, lr: 0.1}, epochs: 1}
"""
NETS = """
import torch
from torch.nn import Linear as Line

raise RuntimeError("imported")


def make():
    return Line(2, 1)


if torch.cuda.is_available():
    SIZE = 2
"""


@pytest.fixture
def plan(tmp_path):
    """Return a function that plans a study which names a function."""
    (tmp_path / "named_nets.py").write_text(NETS)
    (tmp_path / "named_lab").mkdir()
    (tmp_path / "named_lab" / "inner.py").write_text("def make():\n    pass\n")

    def planned(named, text=None):
        if text is not None:
            (tmp_path / "named_other.py").write_text(text)
        path = tmp_path / "study.yaml"
        path.write_text(STUDY.replace("NAMED", f'"{named}"'))
        opened = open_study(path, store="memory:")
        return make_plan(opened.study, opened.store, opened.files)

    return planned


@pytest.mark.parametrize(
    "named",
    [
        *("named_nets:make", "named_nets:Line", "named_nets:SIZE"),
        *("named_lab.inner:make", "torch.nn:Linear", "math:sqrt", "os.path:join"),
    ],
)
def test_what_is_there_is_planned_with(plan, named):
    assert len(plan(named).graph.nodes["fit"]) == 2


@pytest.mark.parametrize(
    "text",
    [
        "from math import *",
        "def __getattr__(name):\n    return len",
        "globals()['make'] = len",
        "import sys\nsetattr(sys.modules[__name__], 'make', len)",
        "import sys\nsys.modules[__name__].make = len",
        "locals()['make'] = len",
        "def declare():\n    global make\n    make = len\n\n\ndeclare()",
        "with open(__file__) as make:\n    pass",
    ],
)
def test_a_module_that_may_have_more_names_than_its_text_shows_passes(plan, text):
    assert len(plan("named_other:make", text).graph.nodes["fit"]) == 2


def test_a_module_of_another_finder_passes(plan, monkeypatch):
    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            return ModuleSpec(name, None) if name == "named_editable" else None

    monkeypatch.setattr("sys.meta_path", [*sys.meta_path, Finder])
    assert plan("named_editable.models:make")


def test_a_module_in_an_archive_passes(plan, tmp_path, monkeypatch):
    archive = tmp_path / "archive.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("named_zipped.py", "def make():\n    pass\n")
    monkeypatch.syspath_prepend(archive)
    assert plan("named_zipped:make")


@pytest.mark.parametrize(
    ("named", "text", "message"),
    [
        (
            "named_nots:make",
            None,
            "expected a module that can be imported, got 'named_nots'. "
            "Put named_nots.py next to the study file, or install it.",
        ),
        (
            "named_lab.outer:make",
            None,
            "expected a module that can be imported, got 'named_lab.outer'. "
            "Put named_lab/outer.py next to the study file, or install it.",
        ),
        (
            "named_nets:made",
            None,
            "expected a function of module 'named_nets', got 'made'. "
            "Did you mean 'make'?",
        ),
        (
            "named_other:make",
            "print()\nA = B = 1\n",
            "got 'make'. Known: A, B.",
        ),
        (
            "named_other:make",
            "def make(:\n    pass\n",
            "factory: named_other.py:1: expected a module that can be imported, got a "
            "syntax error in line 1 of ",
        ),
    ],
)
def test_what_is_not_there_is_refused_where_it_is_written(plan, named, text, message):
    with pytest.raises(StudyError) as caught:
        plan(named, text)
    said = str(caught.value)
    assert "study.yaml:5:22: axes.net.other.factory: " in said
    assert "It is stages.fit.model.factory at net='other'." in said
    assert message in said
    assert "\n" not in said


def test_an_edited_module_is_read_again(plan):
    with pytest.raises(StudyError):
        plan("named_other:make", "MADE = 1\n")
    assert plan("named_other:make", "def make():\n    pass\n")
