"""Kinds of a user's own that a study cannot use are told in one line."""

import re
import sys
from itertools import count

import pytest

from curvflow.errors import StudyError
from curvflow.schemas import kinds
from curvflow.schemas.study.draft import find_kind
from curvflow.tasks import registry

MODULE = """
import numpy as np
from curvflow import Params, Variable, stage

class Thing:
    pass

class Chosen(Params):
    size: int = 1

@stage("my.draft", version=1, outputs=(Variable("value", "a value"),))
def one(params: Chosen) -> dict[str, object]:
    return {"value": np.asarray(1.0)}
"""
NUMBERS = count()


@pytest.fixture
def found(tmp_path, monkeypatch):
    """Return a function that finds the kind of a module with an edit."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def find(old="", new=""):
        name = f"drafted_{next(NUMBERS)}"
        assert old in MODULE
        (tmp_path / f"{name}.py").write_text(MODULE.replace(old, new, 1))
        return find_kind(f"{name}:one", place="here")

    yield find
    kinds._added.pop("my.draft", None)
    registry._implementations.pop("my.draft", None)


def test_types_of_parameters_may_be_named_before_they_are_there(found):
    kind = found("size: int", 'size: "int"')
    assert kind.params(size=3).size == 3


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ("size: Thing", "Thing"),
        ("size: list[Thing]", "Thing"),
        ('size: "Absent"', "name 'Absent' is not defined"),
        ('size: dict[str, "Absent"]', "name 'Absent' is not defined"),
    ],
)
def test_parameters_of_types_that_no_study_gives_are_refused(found, field, reason):
    expected = "expected parameters that a study can give, got Chosen. pydantic says: "
    with pytest.raises(StudyError) as refused:
        found("size: int", field)
    (line,) = str(refused.value).splitlines()
    assert expected in line
    assert reason in line


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("import no_such_module", "No module named 'no_such_module'."),
        ("raise ValueError('no')", "no."),
        ("raise RuntimeError('no\\nway.')", "RuntimeError: no way."),
        ("raise KeyError", "KeyError."),
        ("1 / 0", "ZeroDivisionError: division by zero."),
        ("Absent", "NameError: name 'Absent' is not defined."),
        ("raise SystemExit(3)", "SystemExit: 3."),
    ],
)
def test_whatever_an_import_raises_is_told_in_one_line(found, statement, said):
    with pytest.raises(StudyError) as refused:
        found("class Thing:\n    pass", statement)
    (line,) = str(refused.value).splitlines()
    assert re.search(r" drafted_\w+\.py:\d+: expected a module that can", line)
    assert "expected a module that can be imported, got 'drafted_" in line
    assert line.endswith(f"Python says: {said}")
