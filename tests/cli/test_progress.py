"""Lines on stderr beside the progress of a run."""

from io import StringIO

import pytest
from rich.console import Console

from curvflow.cli.progress import Bars, Lines


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
