"""Choices made while computing are recorded, and printed by `show`."""

import json

import pytest

from curvflow.flows.api import open as open_results

LINE = "order of differentiation: "


@pytest.fixture
def ran(after, study):
    text = study.read_text().replace(
        "weights: fit, k: 2", "weights: fit, k: 2, order: auto"
    )
    study.write_text(text)
    return after(study, ("run",))


def test_show_reports_the_order_that_was_chosen(curvflow, ran):
    said = curvflow("show", ran, "eigen", "--json")
    assert said.err.startswith(f"eigen: {LINE}")
    assert "nodes)" in said.err
    assert len(json.loads(said.out)) == 12
    assert curvflow("show", ran, "trace").err == ""


def test_it_stands_in_receipts_and_attributes_and_in_no_key(curvflow, ran):
    results = open_results(ran)
    receipts = results.view("eigen").receipts
    assert all(receipt.how.startswith(LINE) for receipt in receipts)
    assert all(LINE not in str(receipt.params) for receipt in receipts)
    assert results["eigen"].attrs["chosen"].startswith(LINE)
    assert "chosen" not in results["fit"].attrs
    assert json.loads(curvflow("plan", ran, "--json").out)["stale"] == 0
