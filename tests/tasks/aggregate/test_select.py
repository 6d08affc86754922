"""Rows and columns of results."""

import numpy as np
import pytest
from pydantic import ValidationError

from curvflow.errors import InputError, StudyError
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.aggregate.select import SelectParams
from curvflow.schemas.study.study import load_study
from tests.tasks.measured_nodes import compute, node, toy_kinds

KIND = "aggregate.select"


@pytest.fixture(autouse=True)
def _toys():
    with toy_kinds():
        yield


def nodes(diverged=()):
    return [
        node(
            {"rule": rule, "seed": s},
            trace=10.0 * r + s,
            steps=s,
            converged=s > 0,
            diverged=(rule, s) in diverged,
        )
        for r, rule in enumerate(("sgd", "adam"))
        for s in range(3)
    ]


def selected(of, **params):
    given = {"rows": ["rule", "seed"], "quantities": ["trace", "steps", "converged"]}
    return compute(KIND, of, **{**given, **params}).arrays


def counts(got):
    return [int(got[f"num_{name}"]) for name in ("rows", "kept", "undecided")]


@pytest.mark.parametrize("label", ["adam", ["adam"]])
def test_rows_are_kept_at_a_label(label):
    got = selected(nodes(), at={"rule": label})
    assert got["row"].tolist() == [f"rule=adam, seed={s}" for s in range(3)]
    assert got["value"][:, 0].tolist() == [10, 11, 12]
    assert counts(got) == [6, 3, 0]


def test_rows_are_kept_at_several_labels_of_several_axes():
    got = selected(nodes(), at={"rule": "sgd", "seed": [0, 2]})
    assert got["row"].tolist() == ["rule=sgd, seed=0", "rule=sgd, seed=2"]


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ({"trace": {"above": 1}}, [2, 10, 11, 12]),
        ({"trace": {"above": 1, "below": 11}}, [2, 10]),
        ({"converged": {"equals": 1}, "trace": {"below": 10}}, [1, 2]),
        ({"trace": {"above": 99}}, []),
    ],
)
def test_rows_are_kept_where_conditions_hold(where, kept):
    got = selected(nodes(), where=where)
    assert got["value"][:, 0].tolist() == kept
    assert got["value"].shape == (len(kept), 3)


def test_rows_whose_condition_cannot_be_decided_are_counted():
    of = nodes(diverged={("sgd", 2)})
    of[3].arrays["trace"] = np.array(np.nan)
    got = selected(of, where={"trace": {"above": 0}})
    assert got["value"][:, 0].tolist() == [1, 11, 12]
    assert counts(got) == [6, 3, 2]


def test_cells_that_are_no_condition_stay_and_say_why():
    of = nodes()
    of[1].arrays["steps"] = np.array(0)
    of[1].arrays["trace"] = np.array(np.nan)
    got = selected(of, where={"steps": {"below": 1}})
    assert got["cell"][1].tolist() == ["nonfinite", "ok", "ok"]


def test_a_condition_of_no_column_is_refused():
    with pytest.raises(
        InputError, match="where: expected a column of the table, got 'c"
    ):
        selected(nodes(), where={"curvature": {"above": 0}})


def test_every_declared_variable_is_there():
    got = selected(nodes(), at={"rule": "sgd"})
    assert set(got) == {v.name for v in find_kind(KIND).outputs if not v.optional}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"where": {"trace": {}}}, "expected above, below or equals, got none"),
        (
            {"where": {"trace": {"above": None}}},
            "expected above, below or equals, got none",
        ),
        ({"at": {"width": 8}}, "expected at to name axes of rows, got 'width'"),
        ({}, "expected at, where or quantities, got none"),
    ],
)
def test_wrong_parameters_are_refused(wrong, message):
    with pytest.raises(ValidationError, match=message):
        SelectParams(rows="seed", **wrong)


STUDY = """
study: selected
axes: {{seed: 3, rule: {{sgd: {{rule: sgd, lr: 0.1}}, adam: {{rule: adam, lr: 0.1}}}}}}
stages:
  data: {{use: data.xor}}
  fit: {{use: train, data: data, model: {{kind: linear}}, rule: "${{rule}}",
        seed: "${{seed}}", epochs: 2}}
  some: {{use: aggregate.select, of: fit, rows: [rule, seed], {given}}}
"""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "at: {rule: sgdd}",
            r"study.yaml:\d+:\d+: stages.some.at.rule: expected a label of axis "
            "'rule', got 'sgdd'. Did you mean 'sgd'",
        ),
        (
            "at: {rule: [sgd, adm], seed: 0}",
            r"some.at.rule.1: expected a label of axis 'rule', got 'adm'. Did you mean",
        ),
        (
            "at: {seed: '0'}",
            r"some.at.seed: expected a label of axis 'seed', got '0'. Write 0.",
        ),
        (
            "where: {final_test_los: {below: 1}}",
            r"some.where.final_test_los: expected a column of the table, got "
            "'final_test_los'. Did you mean 'final_test_loss'",
        ),
    ],
)
def test_wrong_names_are_refused_while_planning(given, message):
    with pytest.raises(StudyError, match=message):
        load_study(STUDY.format(given=given), file="study.yaml")
