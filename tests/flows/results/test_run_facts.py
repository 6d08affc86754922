"""Facts of runs, as all renderings state them."""

import math
from types import SimpleNamespace

from curvflow.flows.results.findings import Finding
from curvflow.flows.results.run_facts import (
    digits,
    divergences,
    expected_text,
    failures,
)
from curvflow.schemas.study.expectations import Expectation


def test_failures_are_nodes_with_their_error_on_one_line():
    record = {"stage": "fit", "coords": {"seed": 1}, "error": "a\n  b"}
    (failure,) = failures(SimpleNamespace(failures=[record]))
    assert (failure.stage, failure.node, failure.error) == ("fit", "fit[seed=1]", "a b")


def test_divergences_count_by_stage_and_reason_and_nothing_else():
    lost = SimpleNamespace(status="diverged", reason="nan")
    sound = SimpleNamespace(status="ok", reason="")
    nodes = [("fit", lost), ("fit", lost), ("fit", sound), ("fit", None), ("b", lost)]
    assert divergences(nodes) == {("fit", "nan"): 2, ("b", "nan"): 1}


def test_numbers_have_the_digits_of_their_error():
    assert digits(3.23456789, 0.0123) == "3.235"
    assert digits(math.nan, 0.1) == ""


def test_expected_values_state_their_spread_or_their_limits():
    def text(**given):
        return expected_text(Finding(Expectation(stage="s", quantity="q", **given), {}))

    assert text(value=1.2, sd=0.05) == "1.2, sd 0.05"
    assert text(value=1.2, sd=0.05, n=10) == "1.2, sd 0.05 over 10 runs"
    assert text(value=1.2, se=0.05) == "1.2 \u00b1 0.05"
    assert text(value=1.0, within=0.5, within_sems=3.0) == (
        "1 in [0.5, 1.5] or within 3 standard errors"
    )
    assert text(at_least=0.0) == "at least 0"
    assert text(at_least=0.0, at_most=2.0) == "at least 0 and at most 2"
