"""Lines on stderr beside the progress of a run."""

from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

from curvflow.cli.text.progress import Bars, Lines
from curvflow.flows.graph.open_study import open_study
from curvflow.flows.plan.plan import make_plan
from curvflow.testing.stores import begin


@pytest.mark.parametrize("terminal", [False, True], ids=["file", "terminal"])
@pytest.mark.parametrize("observer", [Lines, Bars])
def test_news_are_plain_lines_of_their_own_however_long(observer, terminal):
    said = StringIO()
    console = Console(file=said, force_terminal=terminal, width=20)
    message = "waiting for run 1 of long (process 7 on [far]): 2 fit nodes"
    observer(console).tell(message)
    assert said.getvalue() == f"curvflow: {message}\n"


def test_warnings_stand_out_on_a_terminal():
    said = StringIO()
    Lines(Console(file=said, force_terminal=True)).warn("lost")
    assert said.getvalue() == "\x1b[33mcurvflow: lost\x1b[0m\n"


def bars(width=80, height=24, stages=6, total=20000):
    console = Console(file=StringIO(), force_terminal=True, width=width, height=height)
    observer = Bars(console)
    names = [f"stage_with_a_rather_long_name_{n}" for n in range(stages)]
    graph = SimpleNamespace(nodes=dict.fromkeys(names))

    def counts(*stage):
        return {"total": total if stage else total * stages, "cached": 0}

    plan = SimpleNamespace(graph=graph, counts=counts)
    observer.begin(plan)
    return observer, names


def drawn(observer):
    console = Console(file=StringIO(), width=80, height=24)
    console.print(observer._progress.get_renderable())
    return console.file.getvalue().splitlines()


def test_what_is_said_before_there_is_a_plan_goes_with_it():
    console = Console(file=StringIO(), force_terminal=True)
    observer = Bars(console)
    nothing = {"total": 0, "cached": 0}
    plan = SimpleNamespace(graph=SimpleNamespace(nodes={}), counts=lambda: nothing)
    with observer.waiting:
        observer.tell("news")  # draws anew what stands below
        assert console.file.getvalue().endswith("planning and loading")
        observer.begin(plan)
        console.file.truncate(0)
        observer.tell("more")
        assert "planning" not in console.file.getvalue()
    observer.end()


def test_bars_fit_into_80_columns_whatever_they_count():
    observer, names = bars()
    observer.tile_begins(names[0])
    observer.stage_at(names[0], done=9999, failed=1234)
    observer.stage_at(names[1], done=5, failed=0)
    observer.end()
    lines = drawn(observer)
    assert len(lines) == len(names)
    assert "9999/20000 0 cached, 1234 failed" in lines[0]
    assert "    5/20000" in lines[1]
    assert max(map(len, lines)) <= 80


def test_where_stages_are_many_those_at_work_are_drawn():
    observer, names = bars(stages=40, total=3)
    (whole,) = drawn(observer)
    assert whole.startswith("40 stages")
    observer.tile_begins(names[30])
    observer.tile_begins(names[7])
    observer.stage_at(names[30], done=2, failed=0)
    whole, *lines = drawn(observer)
    assert " 2/120" in whole
    assert [line.split()[0][:12] for line in lines] == ["stage_with_a"] * 2
    observer.stage_at(names[30], done=3, failed=0)
    observer.stage_at(names[7], done=0, failed=0)
    whole, line = drawn(observer)
    assert " 3/120" in whole
    assert "0/3" in line
    observer.end()


def test_a_plan_says_what_another_run_is_at_work_on(curvflow, study):
    o = open_study(study, create=True)
    run = begin(o.store)
    (node,) = make_plan(o.study, o.store, o.files).graph.nodes["data"]
    o.store.claims.take(run.begun, [node.key], lambda _: False)
    sign = {"count": 0, "host": "far", "boot": "x", "pid": 7, "started": "1"}
    o.store.write_heartbeat(run, sign)
    line = "    1 node is in work in another run"
    assert line in curvflow("plan", study).out.splitlines()
    o.store.write_heartbeat(run, None)
    assert line not in curvflow("plan", study).out.splitlines()
