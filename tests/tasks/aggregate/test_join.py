"""Results of several stages side by side."""

import csv
import io

import numpy as np
import pytest

from curvflow.errors import InputError, StudyError
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.study.study import load_study
from tests.tasks.measured_nodes import compute, node, toy_kinds

KIND = "aggregate.join"
RULES = ("sgd", "adam")


@pytest.fixture(autouse=True)
def _toys():
    with toy_kinds():
        yield


def nodes(diverged=()):
    of = [
        node(
            {"rule": rule, "seed": s},
            trace=10.0 * r + s,
            steps=s,
            diverged=(rule, s) in diverged,
        )
        for r, rule in enumerate(RULES)
        for s in range(2)
    ]
    # The other stage has no seeds.
    return of + [
        node({"rule": rule}, stage="other", kind="toy.other", curvature=0.5 + r)
        for r, rule in enumerate(RULES)
    ]


def joined(of, **params):
    given = {"rows": ["rule", "seed"], "quantities": ["trace", "curvature"]}
    return compute(KIND, of, **{**given, **params}).arrays


def lines(arrays):
    return list(csv.reader(io.StringIO(bytes(arrays["wide"]).decode())))


def test_stages_stand_side_by_side_and_repeat_along_axes_they_lack():
    got = joined(nodes(), quantities=["steps", "curvature"])
    assert got["column"].tolist() == ["steps", "curvature"]
    assert got["column_units"].tolist() == ["epoch", "1 / parameter"]
    assert got["row"].tolist() == [f"rule={r}, seed={s}" for r in RULES for s in (0, 1)]
    known = [[0, 0.5], [1, 0.5], [0, 1.5], [1, 1.5]]
    np.testing.assert_array_equal(got["value"], known)
    assert set(got["cell"].ravel()) == {"ok"}


def test_the_file_has_axes_and_numbers_in_columns_that_read_back_exactly():
    of = nodes()
    of[0].arrays["trace"] = np.array(1 / 3)
    head, *rows = lines(joined(of))
    assert head == [
        *("rule", "seed", "probe.trace (loss / parameter^2)"),
        *("other.trace", "curvature (1 / parameter)"),
    ]
    assert rows[0][:2] == ["sgd", "0"]
    assert float(rows[0][2]) == 1 / 3


def test_what_has_no_value_says_why():
    of = nodes(diverged={("sgd", 1)})
    of[2].arrays["trace"] = np.array(np.inf)
    del of[3]
    of.append(node({"rule": "adam", "seed": 1}, stage="third", steps=3))
    got = joined(of, quantities=["trace", "curvature"])
    at = got["column"].tolist().index("probe.trace")
    assert got["cell"][:, at].tolist() == ["ok", "diverged", "nonfinite", "missing"]
    assert np.isnan(got["value"][1:, at]).all()
    assert lines(got)[2][2 + at] == "diverged"


def test_elements_and_rows_of_tables_have_columns_of_their_own():
    of = [
        node({"rule": rule}, rank=[1, 2], eigenvalues=[3.0, float(n)])
        for n, rule in enumerate(RULES)
    ]
    of[1].arrays.update(rank=np.array([1]), eigenvalues=np.array([3.0]))
    of += [
        node(
            {"rule": rule},
            stage="table",
            kind="aggregate.summary",
            quantity=["trace", "steps"],
            mean=[n, 2.0],
        )
        for n, rule in enumerate(RULES)
    ]
    got = joined(of, rows="rule", quantities=["eigenvalues", "mean"])
    assert got["column"].tolist() == [
        *("eigenvalues[1]", "eigenvalues[2]", "mean[trace]", "mean[steps]"),
    ]
    assert got["cell"].tolist()[1] == ["ok", "missing", "ok", "ok"]
    assert got["value"][1, 2] == 1


def test_rows_that_no_stage_has_whole_are_refused():
    with pytest.raises(InputError, match="rows: expected a stage with all of"):
        joined(nodes()[4:])


def test_every_declared_variable_is_there_in_its_type():
    got = joined(nodes())
    for variable in find_kind(KIND).outputs:
        if variable.optional:
            continue
        array = got[variable.name]
        shape = tuple(
            got["wide"].size if d == "byte" else len(got[d]) for d in variable.dims
        )
        assert array.shape == shape
        is_text = variable.dtype == "str"
        assert array.dtype.kind == "U" if is_text else array.dtype == variable.dtype


STUDY = """
study: joined
axes: {{seed: 3}}
stages:
  data: {{use: data.xor}}
  fit: {{use: train, data: data, model: {{kind: linear}}, rule: {{rule: sgd, lr: 0.1}},
        seed: "${{seed}}", epochs: 2}}
  trace: {{use: probe.hessian_trace, weights: fit}}
  together: {{use: aggregate.join, of: [fit, trace], {given}}}
"""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "rows: sed",
            r"study.yaml:\d+:\d+: stages.together.rows: expected a dimension of the "
            "stages taken, got 'sed'. Did you mean 'seed'",
        ),
        (
            "rows: seed, quantities: [trase]",
            r"together.quantities.0: expected a variable of the stages taken, got "
            "'trase'. Did you mean 'trace'",
        ),
    ],
)
def test_wrong_names_are_refused_while_planning(given, message):
    with pytest.raises(StudyError, match=message):
        load_study(STUDY.format(given=given), file="study.yaml")
