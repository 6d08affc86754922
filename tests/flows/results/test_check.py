"""Which column of a table an expectation is held against."""

import math
import re

import numpy as np
import pytest
from scipy.stats import ttest_ind

from curvflow.flows.results.check import (
    MEASURED,
    _cells,
)
from curvflow.flows.results.findings import (
    Finding,
    corrected,
    gravest_first,
)
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
        ({"within": 1.0}, 5.5, math.inf, "undecided"),
        ({"within": 1.0}, 50.0, math.inf, "undecided"),
        ({"within": 1.0}, 50.0, math.nan, "undecided"),
        ({"within": 1.0, "within_sems": 2}, 5.5, math.inf, "undecided"),
        ({"within": 1.0, "within_sems": 2}, 50.0, math.inf, "undecided"),
        ({"within": 1.0, "within_sems": 2}, 50.0, 30.0, "agrees"),
        ({"within": 1.0, "within_sems": 2}, 50.0, math.nan, "undecided"),
        ({"within": 1.0, "within_sems": 2}, 5.5, math.nan, "undecided"),
    ],
)
def test_an_infinite_error_decides_nothing(tolerance, measured, sem, verdict):
    expected = Expectation(stage="s", quantity="q", value=5.0, **tolerance)
    assert Finding(expected, {}, measured, sem, sort="mean").verdict == verdict


def test_what_has_no_error_is_exact_and_what_has_one_unknown_is_not():
    printed = Expectation(stage="s", quantity="q", value=5.0, sd=1.0, n=10)
    above = Expectation(stage="s", quantity="q", at_least=0.0)
    for expected in (printed, above):
        assert Finding(expected, {}, 5.0).verdict == "agrees"
        unknown = Finding(expected, {}, 5.0, sort="mean")
        assert (unknown.verdict, "not known" in unknown.reason) == ("undecided", True)
        assert math.isnan(unknown.p_means)


def test_a_single_node_is_compared_with_the_scatter_alone():
    expected = Expectation(stage="s", quantity="q", value=5.0, sd=1.0, n=10)
    for measured, verdict in ((7.5, "agrees"), (8.1, "agrees"), (8.2, "contradicted")):
        for finding in (
            Finding(expected, {}, measured),
            Finding(expected, {}, measured, 0.01, sort="estimate"),
        ):
            assert finding.verdict == verdict
            assert math.isnan(finding.z)


def test_a_sign_needs_the_interval_that_the_table_states():
    above = Expectation(stage="s", quantity="q", at_least=0.0)
    for low, high, verdict in (
        (0.1, 0.9, "agrees"),
        (-0.1, 1.1, "undecided"),
        (-0.9, -0.1, "contradicted"),
    ):
        found = Finding(above, {}, (low + high) / 2, 0.1, low, high, sort="mean")
        assert found.verdict == verdict


@pytest.mark.parametrize(
    ("row", "sort", "freedom"),
    [
        ({"distance": 3.0}, "estimate", None),
        ({"argument": 3.0, "interval": "repetitions", "count": 5}, "mean", 4),
        ({"argument": 3.0, "interval": "errors", "count": 1}, "mean", None),
    ],
)
def test_errors_of_distances_and_arguments_bear_their_names(row, sort, freedom):
    (name, value) = next(iter(row.items()))
    row |= {f"{name}_sem": 0.5, f"{name}_low": 2.0, f"{name}_high": 4.0}
    expected = Expectation(stage="s", quantity="q", at_least=1.0)
    ((found, _),) = _cells([{"quantity": "q", **row}], expected)
    assert (found["measured"], found["sem"], found["low"], found["high"]) == (
        value,
        0.5,
        2.0,
        4.0,
    )
    assert (found["sort"], found["freedom"]) == (sort, freedom)


def mean_of(values, expected):
    sem = values.std(ddof=1) / len(values) ** 0.5
    freedom = len(values) - 1
    return Finding(expected, {}, values.mean(), sem, freedom=freedom, sort="mean")


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
        finding = mean_of(ours, expected)
        known = ttest_ind(ours, theirs, equal_var=False)
        assert finding.p_means == pytest.approx(known.pvalue)
        assert finding.z == pytest.approx(known.statistic)


def test_equal_means_are_told_to_differ_as_often_as_the_level_says():
    draw = np.random.default_rng(1)
    verdicts = []
    for _ in range(1500):
        theirs, ours = draw.normal(size=10), draw.normal(size=30)
        sd = theirs.std(ddof=1)
        value = theirs.mean()
        expected = Expectation(stage="s", quantity="q", value=value, sd=sd, n=10)
        verdicts.append(mean_of(ours, expected).verdict)
    assert 0.03 < verdicts.count("differs_in_mean") / 1500 < 0.07
    assert verdicts.count("contradicted") == 0


def test_nothing_is_contradicted_of_which_the_means_may_be_equal():
    expected = Expectation(stage="s", quantity="q", value=0.0, sd=1.0, n=10)
    far = Finding(expected, {}, 3.1, 0.99, freedom=1, sort="mean")
    assert (far.verdict, far.p_means > 0.1) == ("undecided", True)
    assert Finding(expected, {}, 3.1, 0.1, freedom=9, sort="mean").verdict == (
        "contradicted"
    )


def test_only_tests_of_means_are_corrected():
    printed = Expectation(stage="s", quantity="q", value=0.0, sd=1.0, n=10)
    unknown = [Finding(printed, {}, 0.1, sort="mean")] * 20
    differing = Finding(printed, {}, 0.9, 0.1, freedom=9, sort="mean")
    *_, last = corrected([*unknown, differing])
    assert last.corrected == pytest.approx(differing.p_means)
    assert last.verdict == differing.verdict == "differs_in_mean"


def test_the_gravest_come_first():
    above = Expectation(stage="s", quantity="q", at_least=0.0)
    found = [Finding(above, {}, value) for value in (1.0, -1.0, math.nan)]
    assert [one.verdict for one in gravest_first(found)] == [
        "contradicted",
        "not measured",
        "agrees",
    ]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"sd": 1.0, "se": 1.0}, "'sd' cannot be combined with 'se'"),
        ({"within": 1.0, "at_least": 0.0}, "'within' cannot be combined"),
        ({"at_least": 0.0}, "'value' cannot be combined with 'at_least'"),
        ({}, "expected one of 'sd', 'se', 'within', 'at_least' and 'at_most'"),
        ({"se": 1.0, "n": 4}, "'n' cannot be combined with 'se'"),
        ({"sd": 1.0, "n": 1}, "greater than or equal to 2"),
        ({"se": 1.0, "within_sems": 2.0}, "'within_sems' cannot be combined with 'se'"),
    ],
)
def test_tolerances_that_contradict_are_refused(entry, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Expectation(stage="s", quantity="q", value=1.0, **entry)


def test_a_tolerance_needs_a_value():
    with pytest.raises(ValueError, match="expected a value with 'sd', got none"):
        Expectation(stage="s", quantity="q", sd=1.0)


def test_ends_that_leave_nothing_between_are_refused():
    with pytest.raises(ValueError, match=r"expected at_least of at most 0\.5"):
        Expectation(stage="s", quantity="q", at_least=1.0, at_most=0.5)
