"""A fault of what is shown ends the page, and never the run."""

from uuid import uuid4

import pytest

from curvflow.flows.deployed.observer import PageObserver
from curvflow.flows.deployed.run_page import Page
from curvflow.flows.graph.open_study import open_study
from curvflow.flows.run.context import Unwatched
from curvflow.flows.run.run import run_study

STUDY = """
study: tiny
axes: {seed: 2}
stages:
  data: {use: data.xor}
  fit: {use: train, data: data, model: {kind: mlp, hidden: [3]}, seed: "${seed}",
        rule: {rule: sgd, lr: 0.1}, epochs: 2}
"""


class Told:
    """Takes messages and reasons, and sends nothing."""

    def __init__(self):
        self.reasons = []

    def send(self, message):
        pass

    def lose(self, reason):
        self.reasons.append(reason)


@pytest.mark.parametrize("part", ["text", "progress", "stage_ends"])
def test_a_fault_of_the_page_costs_the_run_nothing(tmp_path, monkeypatch, part):
    def broken(*_, **__):
        raise ValueError("no such colour")

    monkeypatch.setattr(Page, part, broken)
    (tmp_path / "study.yaml").write_text(STUDY)
    o = open_study(tmp_path / "study.yaml", create=True)
    messages = Told()
    observer = PageObserver(Page(uuid4(), messages), Unwatched())
    report = run_study(o.study, o.store, o.files, observer=observer)
    assert sum(report.record.counts["executed"].values()) == 3
    assert set(messages.reasons) == {"ValueError: no such colour"}
