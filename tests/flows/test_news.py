"""What a run says while it is at work: states kept and found, and runs waited for."""

import logging
import os
import signal
from unittest import mock

import numpy as np
import pytest

from curvflow.errors import Stopped, StoreError
from curvflow.flows.graph import heartbeats
from curvflow.flows.graph.stopping import Stopping
from curvflow.flows.plan.plan import make_plan
from curvflow.flows.run.compute import Snapshots
from curvflow.flows.run.context import Unwatched
from curvflow.flows.run.run import run_study
from curvflow.flows.run.shared_work import WaitNotice
from curvflow.testing.stores import begin
from tests.flows import toys
from tests.flows.lab import Watcher
from tests.flows.toys import opened

# What a run on another machine shows; here nobody can tell whether it has ended.
FAR = {"count": 0, "host": "far", "boot": "x", "pid": 7, "started": "1"}


STUDY = """
study: tiny
axes: {seed: 2}
stages:
  data: {use: data.xor}
  fit: {use: train, data: data, model: {kind: mlp, hidden: [3]}, seed: "${seed}",
        rule: {rule: sgd, lr: 0.1}, epochs: 2, checkpoints: {every: 2}}
"""


class Ends:
    """Asks the run to end while it trains."""

    number = signal.SIGTERM


class Stopper(Ends, Watcher):
    """Keeps the lines of a run that it asks to end."""

    def __init__(self, number):
        super().__init__()
        self.number = number


class Silent(Ends, Unwatched):
    """Looks away from a run that it asks to end."""


def watched(store, watcher, text=STUDY):
    o, real = opened(store, text=text), Snapshots.turn_to

    def turn_to(self, stage):
        real(self, stage)
        if stage == "fit" and isinstance(watcher, Ends):
            os.kill(os.getpid(), watcher.number)

    with mock.patch.object(Snapshots, "turn_to", turn_to):
        run_study(o.study, o.store, o.files, observer=watcher)
    return getattr(watcher, "lines", None)


@pytest.fixture
def claimed(store):
    """Return a function that claims the first nodes of a stage for another run."""

    def claim(stage, count, *, sign=FAR):
        run = begin(store, "long")
        o = opened(store)
        nodes = make_plan(o.study, o.store, o.files).graph.nodes[stage]
        keys = [node.key for node in nodes][:count]
        store.claims.take(run.begun, keys, lambda _: False)
        store.write_heartbeat(run, sign)
        return dict.fromkeys(keys, stage)

    return claim


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_says_what_it_keeps_as_it_ends_and_the_next_what_it_goes_on_from(
    store, number
):
    watcher = Stopper(number)
    with pytest.raises(Stopped):
        watched(store, watcher)
    assert watcher.lines == ["fit: the state of 2 nodes in work is kept"]
    assert watched(store, Watcher()) == ["fit: 2 nodes go on from a kept state"]
    assert watched(store, Watcher()) == []
    fit = [
        receipt for receipt in store.index().receipts.values() if receipt.stage == "fit"
    ]
    # Their time is that of the last attempt alone.
    assert [item.covered for item in fit] == [None, None]


def test_a_state_of_one_node_is_reported_in_the_singular(store):
    lines, stop = [], Stopping()
    partials = Snapshots(store, stop, tell=lines.append)
    partials.turn_to("fit")
    partial = partials.of("tile", nodes=1)
    partial.keep({"weights": np.ones(2)})
    assert lines == []  # a state kept on the way is no news
    stop.signal = signal.SIGTERM
    with pytest.raises(Stopped):
        partial.keep({"weights": np.ones(2)})
    partial.load()
    assert lines == [
        "fit: the state of 1 node in work is kept",
        "fit: 1 node goes on from a kept state",
    ]


def test_a_state_that_could_not_be_kept_is_not_said_to_be(store):
    lines, stop = [], Stopping()
    stop.signal = signal.SIGTERM
    partial = Snapshots(store, stop, tell=lines.append).of("tile", nodes=1)
    with (
        mock.patch.object(store, "save_snapshot", side_effect=StoreError("full")),
        pytest.raises(Stopped),
    ):
        partial.keep({"weights": np.ones(2)})
    assert lines == []


def test_the_runs_waited_for_are_named_once_until_they_change(store, claimed):
    lines = []
    waiting = WaitNotice(store, lines.append)
    busy = claimed("data", 1)
    waiting.show(busy)
    waiting.show(busy)
    assert lines == ["waiting for run 1 of long (process 7 on far): 1 data node"]
    other = begin(store, "other")
    store.claims.take(other.begun, ["k1", "k2"], lambda _: False)
    waiting.show(busy | {"k1": "fit", "k2": "fit"})
    waiting.show({"given up": "fit"})
    assert lines[1:] == [
        "waiting for run 1 of long (process 7 on far): 1 data node; "
        "run 1 of other: 2 fit nodes"
    ]


def test_a_run_says_that_it_waits_and_ends_once_the_other_is_gone(store, claimed):
    claimed("data", 1)
    (far,) = store.index().runs

    class Killer(Watcher):
        def tell(self, message):
            super().tell(message)
            store.write_heartbeat(far, None)

    assert watched(store, Killer(), toys.STUDY) == [
        "waiting for run 1 of long (process 7 on far): 1 data node"
    ]


def test_a_plan_counts_the_nodes_that_another_run_is_at_work_on(store, claimed):
    toys.run(store, "axes.seed=1")
    claimed("fit", 5)  # of which two are done
    o = opened(store)
    stages = make_plan(o.study, o.store, o.files).as_json()["stages"]
    assert {name: stage["in_work"] for name, stage in stages.items()} == {
        "data": 0,
        "fit": 3,
        "last": 0,
        "path": 0,
        "mean": 0,
    }


def test_a_plan_counts_no_node_of_a_run_that_has_ended(store, claimed):
    claimed("data", 1, sign=FAR | {"over": True})
    o = opened(store)
    plan = make_plan(o.study, o.store, o.files)
    assert plan.as_json()["stages"]["data"]["in_work"] == 0


def test_a_plan_with_nothing_to_do_looks_for_no_other_run(store):
    toys.run(store)
    o = opened(store)
    with mock.patch.object(store, "heartbeats", side_effect=AssertionError):
        assert make_plan(o.study, o.store, o.files).counts()["stale"] == 0
    assert heartbeats.in_work(store) == set()


def test_what_nobody_watches_goes_to_the_log_of_python(store, caplog, capsys):
    with caplog.at_level(logging.INFO, "curvflow"), pytest.raises(Stopped):
        watched(store, Silent())
    assert [
        (log_record.levelname, log_record.message) for log_record in caplog.records
    ] == [("INFO", "fit: the state of 2 nodes in work is kept")]
    assert capsys.readouterr().out == ""
