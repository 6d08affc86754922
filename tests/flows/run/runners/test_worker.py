"""How a process that computes tiles learns that the run ends."""

import signal
import time

import pytest

from curvflow.flows.graph.heartbeats import beating
from curvflow.flows.graph.stopping import Stopping
from curvflow.flows.run.runners import worker
from curvflow.flows.run.runners.worker import RunWatcher
from tests.flows.run.runners.clusters import until


@pytest.fixture
def run(store):
    return store.begin_run("toys", document={}, environment={}, options={})


def test_a_run_at_work_is_left_alone(store, run):
    watch = RunWatcher(store, run.begun, silence=60.0)
    with beating(store, run, Stopping(), silence=60.0):
        watch.look()
        assert watch.stop.signal is None


def test_a_run_that_is_signalled_to_end_passes_its_signal_on(store, run):
    watch, stop = RunWatcher(store, run.begun, silence=60.0), Stopping()
    stop.signal = signal.SIGINT
    with beating(store, run, stop, silence=60.0):
        watch.look()
    assert watch.stop.signal == signal.SIGINT
    assert not watch.is_gone


def test_a_run_that_shows_no_sign_of_life_is_gone(store, run):
    watch = RunWatcher(store, run.begun, silence=60.0)
    watch.look()
    assert watch.is_gone
    assert watch.stop.signal is not None


def test_a_run_that_was_only_paused_gets_its_next_tile(store, run):
    watch = RunWatcher(store, run.begun, silence=60.0)
    watch.look()
    with beating(store, run, Stopping(), silence=60.0), watch.watching():
        assert watch.stop.signal is None


def test_somebody_looks_while_a_tile_is_computed(store, run, monkeypatch):
    monkeypatch.setattr(worker, "LOOK_EVERY", 0.01)
    watch, stop = RunWatcher(store, run.begun, silence=60.0), Stopping()
    with beating(store, run, stop, silence=0.1), watch.watching():
        time.sleep(0.05)
        assert watch.stop.signal is None
        stop.signal = signal.SIGTERM
        until(lambda: watch.stop.signal == signal.SIGTERM)
