"""Lines on stderr beside the progress of a run."""

from io import StringIO

import pytest
from rich.console import Console

from curvflow.cli.progress import Bars, Lines
from curvflow.flows.door import open_study
from curvflow.flows.plan import make_plan
from tests.stores.contract import begin


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


def test_a_plan_says_what_another_run_is_at_work_on(curvflow, study):
    o = open_study(study, create=True)
    run = begin(o.store)
    (node,) = make_plan(o.study, o.store, o.files).graph.nodes["data"]
    o.store.claims.take(run.begun, [node.key], lambda _: False)
    sign = {"count": 0, "host": "far", "boot": "x", "pid": 7, "started": "1"}
    o.store.beat(run, sign)
    line = "    1 node is in work in another run"
    assert line in curvflow("plan", study).out.splitlines()
    o.store.beat(run, None)
    assert line not in curvflow("plan", study).out.splitlines()
