"""Which column of a table an expectation is held against."""

import math

import pytest

from curvflow.flows.results.check import MEASURED, Finding
from curvflow.schemas.kinds import all_kinds
from curvflow.schemas.nodes import Table
from curvflow.schemas.study.expectations import Expectation

TABLES = [
    kind
    for kind in all_kinds().values()
    if issubclass(kind.returns, Table) and kind.output("quantity")
]


@pytest.mark.parametrize("kind", TABLES, ids=lambda kind: kind.name)
def test_every_quantity_of_a_table_has_one_column_that_measures_it(kind):
    columns = [v.name for v in kind.outputs if v.dims == ("quantity",)]
    assert len([name for name in columns if name in MEASURED]) == 1


def test_there_are_tables():
    assert {"aggregate.summary", "aggregate.rank"} < {kind.name for kind in TABLES}


@pytest.mark.parametrize(
    ("tolerance", "measured", "sem", "verdict"),
    [
        ({"sd": 1.0}, 5.5, 0.1, "agrees"),
        ({"sd": 1.0}, 50.0, 0.1, "contradicted"),
        ({"sd": 1.0}, 5.5, math.inf, "not measured"),
        ({"sd": 1.0}, 50.0, math.inf, "not measured"),
        ({"within": 1.0}, 5.5, math.inf, "agrees"),
        ({"within": 1.0}, 50.0, math.inf, "contradicted"),
        ({"within": 1.0, "within_sems": 2}, 5.5, math.inf, "agrees"),
        ({"within": 1.0, "within_sems": 2}, 50.0, math.inf, "not measured"),
        ({"within": 1.0, "within_sems": 2}, 50.0, 30.0, "agrees"),
        ({"within": 1.0, "within_sems": 2}, 50.0, math.nan, "contradicted"),
    ],
)
def test_an_infinite_error_decides_nothing(tolerance, measured, sem, verdict):
    expected = Expectation(stage="s", quantity="q", value=5.0, **tolerance)
    assert Finding(expected, {}, measured, sem).verdict == verdict
