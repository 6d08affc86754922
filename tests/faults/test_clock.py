"""No clock of the machine decides anything; only an observer's own is asked."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from datetime import datetime as real_datetime

import pytest

import curvflow.flows.graph.heartbeats as heartbeats
import curvflow.stores.log_store as log_store
from curvflow.flows.graph.heartbeats import HeartbeatMonitor, at_work, beating
from curvflow.flows.graph.stopping import Stopping
from curvflow.flows.plan.plan import make_plan
from curvflow.stores.local import LocalStore
from curvflow.stores.memory import MemoryStore
from curvflow.testing.stores import begin
from tests.faults.children import committed, digests
from tests.flows.toys import opened, run

pytestmark = pytest.mark.processes

ELSEWHERE = {"host": "far", "boot": "another", "pid": 1, "started": "1"}


class Clock:
    """Goes on when told to."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store():
    return MemoryStore()


def test_a_run_elsewhere_is_gone_once_its_counter_stood_still_for_too_long(
    store, clock
):
    record = begin(store)
    watch = HeartbeatMonitor(store, silence=60.0, clock=clock)
    store.write_heartbeat(record, {"count": 7, **ELSEWHERE})
    assert not watch.is_gone(record.begun)
    clock.now += 60
    assert not watch.is_gone(record.begun)
    clock.now += 0.5
    assert watch.is_gone(record.begun)


@pytest.mark.parametrize("count", [8, 3, 0], ids=["on", "back", "anew"])
def test_a_counter_that_moved_either_way_is_a_sign_of_life(store, clock, count):
    record = begin(store)
    watch = HeartbeatMonitor(store, silence=60.0, clock=clock)
    store.write_heartbeat(record, {"count": 7, **ELSEWHERE})
    assert not watch.is_gone(record.begun)
    clock.now += 1e6
    store.write_heartbeat(record, {"count": count, **ELSEWHERE})
    assert not watch.is_gone(record.begun)
    clock.now += 59
    assert not watch.is_gone(record.begun)


def test_an_observer_who_has_only_just_come_takes_nothing_over(store, clock):
    record = begin(store)
    store.write_heartbeat(record, {"count": 7, **ELSEWHERE})
    clock.now += 1e9
    assert not HeartbeatMonitor(store, silence=60.0, clock=clock).is_gone(record.begun)


def test_a_clock_that_jumps_back_takes_nothing_over(store, clock):
    record = begin(store)
    watch = HeartbeatMonitor(store, silence=60.0, clock=clock)
    store.write_heartbeat(record, {"count": 7, **ELSEWHERE})
    watch.is_gone(record.begun)
    clock.now -= 86400
    assert not watch.is_gone(record.begun)


def test_a_run_that_has_ended_shows_no_sign_and_is_gone(store):
    record = begin(store)
    with beating(store, record, Stopping(), silence=60.0):
        assert not HeartbeatMonitor(store).is_gone(record.begun)
        (row,) = at_work(store)
        assert (row["state"], row["pid"], row["run"]) == ("running", os.getpid(), 1)
    assert HeartbeatMonitor(store).is_gone(record.begun)
    assert at_work(store) == []


def test_a_run_that_was_interrupted_leaves_a_sign_without_its_host(store):
    record = begin(store)
    with (
        suppress(KeyboardInterrupt),
        beating(store, record, Stopping(), silence=60.0),
    ):
        raise KeyboardInterrupt
    (sign,) = store.heartbeats().values()
    assert heartbeats.process(sign) == "ended"
    assert sign["host"] == ""


def test_a_dead_process_of_this_machine_is_known_at_once(store):
    record = begin(store)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1) as process:
        sign = heartbeats._identity() | {
            "pid": process.pid,
            "started": heartbeats._state(process.pid)[1],
            "count": 0,
        }
        store.write_heartbeat(record, sign)
        assert not HeartbeatMonitor(store).is_gone(record.begun)
        process.kill()
    assert HeartbeatMonitor(store).is_gone(record.begun)


def test_a_process_that_has_the_number_of_a_dead_one_is_another(store):
    record = begin(store)
    store.write_heartbeat(record, heartbeats._identity() | {"started": "0", "count": 0})
    assert HeartbeatMonitor(store).is_gone(record.begun)


@pytest.mark.parametrize("line", ["", "{", "[]"], ids=["empty", "torn", "list"])
def test_a_sign_of_life_that_cannot_be_read_is_none(tmp_path, line):
    store = LocalStore(tmp_path)
    record = begin(store)
    store.write_heartbeat(record, {"count": 0, **ELSEWHERE})
    (tmp_path / "runs" / "0000000001.beat").write_text(line)
    assert HeartbeatMonitor(store).is_gone(record.begun)


class Wild(real_datetime):
    """A day ahead, then a day behind, and so on."""

    days = 1

    @classmethod
    def now(cls, tz=None):
        cls.days = -cls.days
        return real_datetime.fromtimestamp(time.time() + 86400 * cls.days, tz)


def test_clocks_that_jump_change_no_decision(tmp_path, monkeypatch):
    monkeypatch.setattr(log_store, "datetime", Wild)
    folder = tmp_path / "store"
    run(LocalStore(folder))
    for number, path in enumerate(sorted(folder.rglob("*"))):
        moment = time.time() + (86400 if number % 2 else -86400)
        os.utime(path, (moment, moment))
    o = opened(LocalStore(folder))
    assert make_plan(o.study, o.store, o.files).counts()["stale"] == 0
    run(LocalStore(folder), "axes.seed=4")
    expected = MemoryStore()
    run(expected)
    run(expected, "axes.seed=4")
    assert digests(LocalStore(folder)) == digests(expected)
    assert set(committed(LocalStore(folder)).values()) == {1}
    assert [r.number for r in LocalStore(folder).index().runs] == [1, 2]


def test_what_another_machine_claimed_is_waited_for_until_it_is_silent(
    tmp_path, monkeypatch
):
    o = opened(LocalStore(tmp_path / "store"))
    first = begin(o.store)
    nodes = make_plan(o.study, o.store, o.files).graph.nodes["data"]
    o.store.claims.take(first.begun, [node.key for node in nodes], lambda _: False)
    o.store.write_heartbeat(first, {"count": 7, **ELSEWHERE})
    clock, looks = Clock(), []

    def look(self, begun):
        looks.append(begun)
        clock.now += 25
        return is_gone(self, begun)

    is_gone = HeartbeatMonitor.is_gone
    monkeypatch.setattr(HeartbeatMonitor, "is_gone", look)
    monkeypatch.setattr(
        HeartbeatMonitor.__init__, "__kwdefaults__", {"silence": 60, "clock": clock}
    )
    report = run(o.store)
    assert report.record.status == "done"
    assert looks[:4] == [first.begun] * 4


def test_a_sign_of_another_machine_may_come_back_while_it_is_watched(
    store, monkeypatch
):
    record, beats = begin(store), iter([{}, {1: {"count": 0}}])
    monkeypatch.setattr(heartbeats, "SILENCE", 1.0)
    monkeypatch.setattr(heartbeats.time, "sleep", lambda _: None)
    monkeypatch.setattr(store, "heartbeats", lambda: next(beats))
    assert heartbeats._moving(store, [record.begun]) == {record.begun}
