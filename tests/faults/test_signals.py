"""A run that is asked to end keeps what it has; the next goes on from there."""

import multiprocessing
import os
import pty
import select
import signal
import time

import pytest

from curvflow.errors import Stopped
from curvflow.flows.graph.stopping import SAME_WISH, Stopping, stopping
from curvflow.flows.graph.tiles import TileJob
from curvflow.flows.plan.plan import make_plan
from curvflow.flows.run.compute import snapshot_name
from curvflow.stores.local import LocalStore
from curvflow.tasks.registry import Machine
from curvflow.testing.stores import begin
from tests.faults.children import (
    PATIENCE,
    committed,
    curvflow,
    ended,
    start,
    toy,
    until,
)
from tests.faults.long import MIDDLE, Long
from tests.flows.toys import opened

pytestmark = pytest.mark.processes

ASKED = "curvflow: stopping as soon as work is safe; once more to stop now"
KEPT = "curvflow: fit: the state of 3 nodes in work is kept"
SAID = "curvflow: interrupted; finished tiles are kept, run again to go on"
EPOCHS = 60


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """Return the study after a run that nobody disturbed."""
    one = Long(tmp_path_factory.mktemp("calm"))
    one.run()
    assert one.calls > 2 * MIDDLE
    return one


@pytest.fixture
def long(tmp_path):
    return Long(tmp_path / "study")


def held_run(long, *, terminal=None, every=3600.0):
    """Start a run and wait until it is in the middle of its training."""
    long.hold_at(MIDDLE)
    process = start(held_curvflow, long.folder, terminal, every)
    until(long.held.exists)
    return process


def held_curvflow(folder, terminal, every):
    output = folder / "said"
    curvflow(folder, output, "run", "study.yaml", terminal=terminal, every=every)


def told(long):
    return (long.folder / "said").read_text()


def goes_on_from_the_state(long, calm):
    """The next run ends as an undisturbed one and trains no epoch again."""
    (state,) = long.kept
    before = long.calls
    long.run()
    assert long.digests == calm.digests
    # An epoch is three passes; all others are those of trying the network anew.
    tried = calm.calls - 3 * EPOCHS
    assert long.calls - before <= calm.calls - MIDDLE + tried + 3
    assert not state.exists()
    assert long.kept == []
    assert set(committed(long.store).values()) == {1}


def read_until(terminal, text):
    said = b""
    while text.encode() not in said:
        assert select.select([terminal], [], [], PATIENCE)[0], said
        said += os.read(terminal, 4096)
    return said


@pytest.mark.slow
def test_ctrl_c_once_keeps_the_training_and_the_next_run_goes_on(long, calm):
    master, slave = pty.openpty()
    process = held_run(long, terminal=os.ttyname(slave))
    os.write(master, b"\x03")
    said = read_until(master, ASKED)
    long.hold.unlink()
    said += read_until(master, SAID)
    assert ended(process) == 130
    os.close(slave)
    os.close(master)
    assert said.count(b"curvflow: ") == 3
    assert b"Traceback" not in said
    goes_on_from_the_state(long, calm)


@pytest.mark.slow
def test_a_request_to_terminate_keeps_the_training_and_the_next_run_goes_on(long, calm):
    process = held_run(long)
    process.terminate()
    until(lambda: ASKED in told(long))
    long.hold.unlink()
    assert ended(process) == 143
    assert told(long) == f"{ASKED}\n{KEPT}\n{SAID}\n"
    goes_on_from_the_state(long, calm)


def test_a_service_that_ends_all_its_processes_asks_once():
    stop = Stopping()
    with stopping(stop):
        for _ in range(3):  # the parent passes on what its child was told already
            signal.raise_signal(signal.SIGTERM)
    assert stop.signal == signal.SIGTERM


def _wait(ready):
    ready.set()
    time.sleep(PATIENCE)


def test_a_process_that_a_users_code_forks_ends_as_its_parent_asks():
    stop, fork = Stopping(), multiprocessing.get_context("fork")
    with stopping(stop):
        ready = fork.Event()
        forked = fork.Process(target=_wait, args=(ready,))
        forked.start()
        assert ready.wait(PATIENCE)
        forked.terminate()  # as a pool ends its workers
        forked.join(PATIENCE / 4)
        code = forked.exitcode
        forked.kill()
    assert code == -signal.SIGTERM
    assert stop.signal is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "last"),
    [(signal.SIGINT, 130, f"{SAID}\n"), (signal.SIGTERM, -signal.SIGTERM, "")],
    ids=["int", "term"],
)
def test_a_second_signal_ends_the_run_at_once_and_nothing_is_lost(
    long, calm, number, code, last
):
    process = held_run(long)
    os.kill(process.pid, number)
    until(lambda: ASKED in told(long))
    if number == signal.SIGTERM:
        time.sleep(1.1 * SAME_WISH)
    os.kill(process.pid, number)
    assert ended(process) == code
    assert told(long) == f"{ASKED}\n{last}"
    assert long.kept == []
    long.hold.unlink()
    long.run()
    assert long.digests == calm.digests
    assert set(committed(long.store).values()) == {1}


@pytest.mark.slow
def test_training_killed_in_the_middle_goes_on_from_its_last_state(long, calm):
    process = held_run(long, every=0.0)
    process.kill()
    assert ended(process) == -signal.SIGKILL
    long.hold.unlink()
    goes_on_from_the_state(long, calm)


@pytest.mark.slow
@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data[:900] + bytes([data[900] ^ 255]) + data[901:],
    ],
    ids=["torn", "flipped"],
)
def test_a_kept_state_that_is_damaged_is_not_believed(long, calm, spoil):
    process = held_run(long, every=0.0)
    process.kill()
    ended(process)
    (state,) = long.kept
    state.write_bytes(spoil(state.read_bytes()))
    long.hold.unlink()
    long.run()
    assert long.digests == calm.digests
    assert long.kept == []


@pytest.mark.slow
def test_a_kept_state_is_left_alone_by_training_in_other_company(long, calm):
    process = held_run(long, every=0.0)
    process.kill()
    ended(process)
    long.hold.unlink()
    before = long.calls
    long.run("axes.seed=2")
    assert long.calls - before > MIDDLE
    assert len(long.kept) == 1
    index = long.store.index()
    two = [r for r in index.receipts.values() if r.kind == "train"]
    assert {r.digest for r in two} <= set(calm.digests.values())


def test_the_tile_in_hand_is_finished_and_no_other_is_begun(tmp_path):
    hold = tmp_path / "hold"
    process = start(stopped_toy, tmp_path / "store", hold)
    until(hold.exists)
    process.terminate()
    until(lambda: ASKED in (tmp_path / "said").read_text())
    hold.unlink()
    assert ended(process) == 143
    index = LocalStore(tmp_path / "store").index()
    assert [r.stage for r in index.receipts.values()] == ["data", "fit", "fit"]
    assert [run.status for run in index.runs] == ["interrupted"]


def stopped_toy(folder, hold):
    os.dup2(os.open(hold.parent / "said", os.O_WRONLY | os.O_CREAT), 2)
    try:
        toy(folder, hold=hold)
    except Stopped as stopped:
        raise SystemExit(128 + stopped.signal) from None


def test_a_run_that_waits_for_another_can_be_stopped(tmp_path):
    store = LocalStore(tmp_path / "store")
    far = begin(store)
    o = opened(store)
    nodes = make_plan(o.study, o.store, o.files).graph.nodes["data"]
    store.claims.take(far.begun, [node.key for node in nodes], lambda _: False)
    store.write_heartbeat(
        far, {"count": 0, "host": "far", "boot": "x", "pid": 1, "started": "1"}
    )
    process = start(stopped_toy, tmp_path / "store", tmp_path / "hold")
    until(lambda: len(store.heartbeats()) == 2)
    process.terminate()
    assert ended(process) == 143
    assert list(store.index().receipts) == []
    assert set(store.claims.holders().values()) == {far.begun}


@pytest.mark.parametrize(
    "other",
    [
        {"kind": "probe.norms"},
        {"code": ["another"]},
        {"members": "abc"},
        {"members": "ba"},
        {"device": "cuda:0"},
        {"threads": 2},
        {"hardware": "another"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_kept_state_belongs_to_one_code_one_company_and_one_machine(other):
    def name(kind="train", code=("one",), members="ab", device="cpu", **machine):
        job = TileJob(kind, (), code)
        return snapshot_name(job, list(members), Machine(device, **machine))

    assert name() == name()
    assert name(**other) != name()
