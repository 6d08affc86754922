"""Counts of what a run has done and what failed, and its progress in notebooks."""

import sys
from types import SimpleNamespace

import pytest

import curvflow
from curvflow.flows.graph.tiles import Failed
from curvflow.flows.plan.plan import make_plan
from curvflow.flows.run.context import Counts, InNotebook, notebook_observer
from tests.flows.toys import STUDY, opened, run

FAILED = Failed("ValueError: no", "lines")


def graph_of(store, *overrides):
    study = opened(store, *overrides)
    return make_plan(study.study, study.store, study.files).graph


def test_failures_are_counted_once_for_each_node_whether_at_once_or_again(store):
    run(store)
    graph = graph_of(store, "axes.seed=5")
    stale = [node for node in graph.nodes["fit"] if node.state == "stale"]
    counts = Counts(graph)
    assert len(stale) == 4
    assert counts.done["fit"] == 6
    counts.fail(stale[:1], FAILED)
    counts.fail(stale[2:], FAILED)
    assert counts.failed("fit") == 3
    assert counts.failed("data") == 0
    assert counts.by_outcome()["failed"]["fit"] == 3
    assert [record["key"] for record in counts.failure_records()] == [
        stale[number].key for number in (0, 2, 3)
    ]
    counts.recount()
    assert counts.failed("fit") == 3


def test_a_node_that_succeeds_after_all_is_no_failure(store):
    graph = graph_of(store)
    (data,) = graph.nodes["data"]
    counts = Counts(graph)
    counts.fail([data], FAILED)
    assert counts.failed("data") == 1
    data.state = "cached"
    counts.recount()
    assert (counts.failed("data"), counts.done["data"]) == (0, 1)
    assert counts.failure_records() == []


class Display:
    """Stands for IPython: one cell with what was drawn under it."""

    def __init__(self, kernel):
        self.drawn = []
        self.get_ipython = lambda: SimpleNamespace(kernel=kernel)
        self.display = SimpleNamespace(display=self._display)

    def _display(self, data, *, raw, display_id):
        assert raw
        assert display_id
        self.drawn.append(data)
        return SimpleNamespace(update=lambda new, raw: self.drawn.append(new))


@pytest.fixture
def ipython(monkeypatch):
    display = Display(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", display)
    return display


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "toys.yaml"
    path.write_text(STUDY)
    return path


def test_a_run_is_drawn_in_place_and_the_last_drawing_has_all(study, ipython, caplog):
    curvflow.run(study, overrides=["axes.seed=[1, 13]"], workers=1)
    last = ipython.drawn[-1]
    assert "fit 2/4, 0 cached, 2 failed" in last["text/plain"]
    assert '<progress value="2" max="4"></progress>' in last["text/html"]
    assert "2 nodes failed" in caplog.text


def test_a_run_without_news_draws_nothing(study, ipython):
    curvflow.run(study, workers=1)
    ipython.drawn.clear()
    curvflow.run(study, workers=1)
    assert ipython.drawn == []


def test_what_is_reported_is_escaped(ipython):
    observer = notebook_observer()
    observer.tell("a <b> & c")
    assert ipython.drawn[-1]["text/html"] == "<div>curvflow: a &lt;b&gt; &amp; c</div>"


def test_nothing_is_drawn_where_there_is_no_notebook(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", Display(kernel=None))
    assert notebook_observer() is None
    monkeypatch.delitem(sys.modules, "IPython")
    assert notebook_observer() is None


def test_drawings_are_not_more_than_eyes_can_take(ipython):
    observer = InNotebook()
    observer.tell("begun")
    observer._stages["fit"] = {"total": 1000, "cached": 0, "done": 0}
    for done in range(1000):
        observer.stage_at("fit", done=done, failed=0)
    observer.end()
    assert len(ipython.drawn) < 20
    assert "fit 999/1000" in ipython.drawn[-1]["text/plain"]
