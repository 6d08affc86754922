"""The request to end a run, between and within its waits."""

import signal
import time

import pytest

from curvflow.errors import Stopped
from curvflow.flows.graph.stopping import Stopping


def test_a_wait_lasts_as_long_as_wished():
    began = time.monotonic()
    Stopping().sleep(0.3)
    assert time.monotonic() - began >= 0.3


def test_a_wait_ends_where_the_run_is_to_end(monkeypatch):
    stop = Stopping()
    monkeypatch.setattr(time, "sleep", lambda _: setattr(stop, "signal", signal.SIGINT))
    with pytest.raises(Stopped):
        stop.sleep(3600)
    with pytest.raises(Stopped):
        stop.check()
