"""Progress in notebooks, on a display that keeps what it is given."""

import sys
from types import SimpleNamespace

import pytest

import curvflow
from curvflow.flows.run.observer import InNotebook, notebook_observer
from tests.flows.toys import STUDY


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


def test_what_is_told_is_escaped(ipython):
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
