"""What parameters name is imported, and bound to its arguments, before a run."""

import json
import random
import sys

import pytest

from curvflow.errors import StudyError
from curvflow.flows.graph.open_study import open_study
from curvflow.flows.plan.plan import check_code, check_named, make_plan

STUDY = """\
study: called
stages:
  data: {use: data.factory, factory: "DATA", kwargs: {num: 4}}
  fit:
    use: train
    data: data
    model: {factory: "MODEL", kwargs: KWARGS}
    loss: {factory: "LOSS"}
    rule: {rule: torch_optimizer, optimizer: "RULE", lr: 0.1, kwargs: {beta: 0.5}}
    epochs: 1
"""
NAMES = {
    "DATA": "called_nets:points",
    "MODEL": "called_nets:make",
    "LOSS": "called_nets:loss",
    "RULE": "called_nets:Steps",
    "KWARGS": "{width: 3}",
}
NETS = """\
import sys  # so that the text alone may not show all names


def make(width, depth=2):
    raise AssertionError("called")


def points(num):
    raise AssertionError("called")


def loss(outputs, targets):
    raise AssertionError("called")


class Steps:
    def __init__(self, parameters, lr, beta=0.9):
        raise AssertionError("called")


SIZE = 2
"""


@pytest.fixture
def folder(tmp_path):
    """Return a folder whose modules are unloaded behind the test."""
    yield tmp_path
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(path.stem, None)


def planned(folder, nets=NETS, **names):
    (folder / "called_nets.py").write_text(nets)
    sys.modules.pop("called_nets", None)
    text = STUDY
    for name, value in (NAMES | names).items():
        text = text.replace(name, value)
    path = folder / "study.yaml"
    path.write_text(text)
    opened = open_study(path, store="memory:")
    return make_plan(opened.study, opened.store, opened.files)


def refusal(folder, *args, **names):
    plan = planned(folder, *args, **names)
    with pytest.raises(StudyError) as caught:
        check_named(plan)
    said = str(caught.value)
    with pytest.raises(StudyError):  # as a run, before it computes anything
        check_code(plan)
    assert "\n" not in said
    return said.removeprefix(f"{folder}/")


WRAPPED = """
from functools import wraps


def configured(function):
    @wraps(function)
    def called(*given, **named):
        return function(*given, **{"width": 3, **named})

    return called


make = configured(make)
Steps.__init__ = configured(Steps.__init__)
"""


def test_a_decorator_may_give_arguments_of_its_own(folder):
    check_named(planned(folder, NETS + WRAPPED, KWARGS="{}"))


def test_what_takes_its_arguments_is_imported_and_not_called(folder):
    check_named(planned(folder))
    assert "called_nets" in sys.modules


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("import no_such_module_x", "ModuleNotFoundError: No module named 'no_such_mo"),
        ("from math import no_such", "ImportError: cannot import name 'no_such' from "),
        ("raise ValueError('no\\nway')", "ValueError: no. Correct its import."),
        ("raise SystemExit(3)", "SystemExit: 3. Correct its import."),
        ("1 / 0", "ZeroDivisionError: division by zero. Correct its import."),
    ],
)
def test_a_module_that_fails_is_refused_with_its_line(folder, line, said):
    got = refusal(folder, f"print()\n{line}\n{NETS}")
    begin = (
        "study.yaml:3:38: stages.data.factory: called_nets.py:2: expected a module "
        f"that can be imported, got 'called_nets' with {said}"
    )
    assert got.startswith(begin)


def test_the_line_is_that_of_the_module_in_which_it_fails(folder):
    (folder / "called_inner.py").write_text("import math\nx = (\n")
    got = refusal(folder, f"import called_inner\n{NETS}")
    assert ": stages.data.factory: called_inner.py:2: expected a module that " in got
    assert "SyntaxError: '(' was never closed" in got


@pytest.mark.parametrize(
    ("names", "place", "said"),
    [
        (
            {"DATA": "called_nets:sys"},
            "3:38: stages.data.factory: ",
            "expected a function of module 'called_nets', got 'sys'. Known: Steps, ",
        ),
        (
            {"KWARGS": "{widht: 3}"},
            "7:22: stages.fit.model.factory: called_nets.py:4: ",
            "expected called_nets:make to take the keyword arguments widht, got "
            "make(width, depth=2): missing a required argument: 'width'. Did you mean "
            "'width'?",
        ),
        (
            {"LOSS": "called_nets:points"},
            "8:21: stages.fit.loss.factory: called_nets.py:8: ",
            "expected called_nets:points to take outputs and targets, and the keyword "
            "arguments (none), got points(num): too many positional arguments. "
            "Correct it, or kwargs.",
        ),
        (
            {"RULE": "called_nets:points"},
            "9:46: stages.fit.rule.optimizer: called_nets.py:8: ",
            "expected called_nets:points to take parameters, and the keyword "
            "arguments lr, beta, got points(num): got an unexpected keyword argument "
            "'lr'. Correct it, or kwargs.",
        ),
    ],
)
def test_what_does_not_take_its_arguments_is_refused(folder, names, place, said):
    assert refusal(folder, **names).startswith(f"study.yaml:{place}{said}")


@pytest.mark.parametrize("seed", range(60))
def test_arguments_are_refused_exactly_where_a_call_would_fail(folder, seed):
    draw = random.Random(seed)
    names = draw.sample("abcdefgh", k=5)
    required, defaulted = names[: draw.randint(0, 2)], names[2 : draw.randint(2, 4)]
    rest = ["**others"] if draw.random() < 0.2 else []
    parameters = [*required, *(f"{name}=None" for name in defaulted), *rest]
    if draw.random() < 0.3 and required + defaulted:
        parameters.insert(0, "*")
    kwargs = dict.fromkeys(draw.sample(names, k=draw.randint(0, 4)), 1)
    if draw.random() < 0.5:
        kwargs |= dict.fromkeys(required, 1)
    nets = NETS.replace("width, depth=2", ", ".join(parameters))
    plan = planned(folder, nets, KWARGS=json.dumps(kwargs))
    scope = {}
    exec(f"def make({', '.join(parameters)}):\n    pass", scope)
    try:
        scope["make"](**kwargs)
    except TypeError:
        with pytest.raises(StudyError, match=r"nets.py:4: expected called_nets:make"):
            check_named(plan)
    else:
        check_named(plan)
