"""Which column of a table an expectation is held against."""

import math
import re

import numpy as np
import pytest
from scipy.stats import ttest_ind

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
        ({"sd": 1.0}, 5.5, math.inf, "undecided"),
        ({"sd": 1.0}, 50.0, math.inf, "undecided"),
        ({"within": 1.0}, 5.5, math.inf, "agrees"),
        ({"within": 1.0}, 50.0, math.inf, "contradicted"),
        ({"within": 1.0, "within_sems": 2}, 5.5, math.inf, "agrees"),
        ({"within": 1.0, "within_sems": 2}, 50.0, math.inf, "undecided"),
        ({"within": 1.0, "within_sems": 2}, 50.0, 30.0, "agrees"),
        ({"within": 1.0, "within_sems": 2}, 50.0, math.nan, "contradicted"),
    ],
)
def test_an_infinite_error_decides_nothing(tolerance, measured, sem, verdict):
    expected = Expectation(stage="s", quantity="q", value=5.0, **tolerance)
    assert Finding(expected, {}, measured, sem).verdict == verdict


def test_one_run_tells_no_error():
    expected = Expectation(stage="s", quantity="q", value=5.0, sd=1.0, n=10)
    assert Finding(expected, {}, 5.0, math.nan, count=1).verdict == "undecided"
    assert Finding(expected, {}, 5.0, math.nan).verdict == "agrees"  # exact
    above = Expectation(stage="s", quantity="q", at_least=0.0)
    assert Finding(above, {}, 5.0, math.nan, count=1).verdict == "undecided"
    assert Finding(above, {}, 5.0, math.nan).verdict == "agrees"


def test_means_are_compared_as_welch_does():
    draw = np.random.default_rng(0)
    for _ in range(30):
        theirs = draw.normal(draw.normal(), draw.uniform(0.1, 3), draw.integers(2, 30))
        ours = draw.normal(draw.normal(), draw.uniform(0.1, 3), draw.integers(2, 30))
        expected = Expectation(
            stage="s",
            quantity="q",
            value=theirs.mean(),
            sd=theirs.std(ddof=1),
            n=len(theirs),
        )
        sem = ours.std(ddof=1) / len(ours) ** 0.5
        finding = Finding(expected, {}, ours.mean(), sem, len(ours))
        known = ttest_ind(ours, theirs, equal_var=False)
        assert finding.p_means == pytest.approx(known.pvalue)
        assert finding.z == pytest.approx(known.statistic)


def test_equal_means_are_told_to_differ_as_often_as_the_level_says():
    draw = np.random.default_rng(1)
    verdicts = []
    for _ in range(1500):
        theirs, ours = draw.normal(size=10), draw.normal(size=30)
        sd = theirs.std(ddof=1)
        expected = Expectation(
            stage="s", quantity="q", value=theirs.mean(), sd=sd, n=10
        )
        sem = ours.std(ddof=1) / 30**0.5
        verdicts.append(Finding(expected, {}, ours.mean(), sem, 30).verdict)
    assert 0.03 < verdicts.count("differs_in_mean") / 1500 < 0.07
    assert verdicts.count("contradicted") == 0


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"sd": 1.0, "se": 1.0}, "'sd' cannot be combined with 'se'"),
        ({"within": 1.0, "at_least": 0.0}, "'within' cannot be combined"),
        ({"at_least": 0.0}, "'value' cannot be combined with 'at_least'"),
        ({}, "expected one of 'sd', 'se', 'within', 'at_least' and 'at_most'"),
        ({"se": 1.0, "n": 4}, "'n' cannot be without 'sd'"),
        ({"sd": 1.0, "n": 1}, "greater than or equal to 2"),
    ],
)
def test_tolerances_that_contradict_are_refused(entry, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Expectation(stage="s", quantity="q", value=1.0, **entry)


def test_a_tolerance_needs_a_value():
    with pytest.raises(ValueError, match="expected a value with 'sd', got none"):
        Expectation(stage="s", quantity="q", sd=1.0)
