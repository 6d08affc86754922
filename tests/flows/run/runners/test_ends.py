"""Stops, and deaths of the run itself, as the processes of its workers see them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from curvflow.flows.run.runners.base import Finished, Interrupted
from tests.flows.run.runners.clusters import SOURCE, joined, scheduler, until, worker
from tests.flows.run.runners.conftest import ROOT, act, came_back, pid_in

pytestmark = pytest.mark.cluster

ALONE = """
import sys, time
from curvflow.flows.run.runners.local import local_client

print("once")
with local_client(2, [], dashboard=False) as client:
    print(*client.run(__import__("os").getpid).values(), flush=True)
    client.submit(time.sleep, 60)
    sys.stdin.readline()
"""


def test_a_stop_reaches_a_tile_in_work_and_its_state_is_kept(local, running, tmp_path):
    runner = running.runner(local)
    number = runner.submit(act("keep", tmp_path / "pid"), needs="cpu", priority=0)
    pid_in(tmp_path / "pid")
    running.stop.signal = signal.SIGINT
    (returned,) = came_back(runner, number)
    lines = ["act: the state of 1 node in work is kept"]
    assert returned == Interrupted(signal.SIGINT, lines)
    assert len(list((running.store_folder / "partials").iterdir())) == 2  # and token


def test_a_tile_of_a_run_that_is_no_more_ends(local, running, tmp_path):
    runner = running.runner(local, begun=10**9)
    number = runner.submit(act("keep", tmp_path / "pid"), needs="cpu", priority=0)
    (returned,) = came_back(runner, number)
    # The run may only have been paused: then it is no death, and it sends it again.
    assert isinstance(returned, Interrupted)


def test_the_interrupt_key_leaves_the_workers_of_this_machine_alone(
    local, running, tmp_path
):
    runner = running.runner(local)
    slow = act("sleep", tmp_path / "pid", seconds=0.5)
    number = runner.submit(slow, needs="cpu", priority=0)
    os.kill(pid_in(tmp_path / "pid"), signal.SIGINT)
    (returned,) = came_back(runner, number)
    assert isinstance(returned, Finished)


def test_tiles_that_have_not_begun_are_taken_back(running, tmp_path):
    with (
        scheduler(tmp_path) as (_, address),
        worker(address),
        joined(address, 1) as client,
    ):
        runner = running.runner(client)
        slow = act("sleep", tmp_path / "pid", seconds=1)
        first = runner.submit(slow, needs="cpu", priority=1)
        second = runner.submit(act(path=tmp_path / "b"), needs="cpu", priority=0)
        pid_in(tmp_path / "pid")
        assert runner.withdraw() == [second]
        assert runner.withdraw() == []
        (returned,) = came_back(runner, first)
        assert isinstance(returned, Finished)
        came_back(runner, runner.submit(act(), needs="cpu", priority=0))
    assert not (tmp_path / "b").exists()


def test_tiles_whose_worker_is_no_more_are_taken_back_as_well(running, tmp_path):
    with (
        scheduler(tmp_path) as (_, address),
        worker(address) as process,
        joined(address, 1) as client,
    ):
        runner = running.runner(client)
        slow = act("sleep", tmp_path / "pid", seconds=60)
        number = runner.submit(slow, needs="cpu", priority=0)
        pid_in(tmp_path / "pid")
        assert runner.withdraw() == []
        process.kill()
        until(lambda: runner.wait(0) or runner.withdraw() == [number])
    assert running.lines == []


def alone(tmp_path):
    """Start a script with workers; return it and the numbers of their processes."""
    (tmp_path / "script.py").write_text(ALONE)
    started = subprocess.Popen(
        [sys.executable, "-W", "error", tmp_path / "script.py"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": f"{SOURCE}:{ROOT}"},
    )
    assert started.stdout.readline() == "once\n"  # and not by each worker
    return started, [int(pid) for pid in started.stdout.readline().split()]


def is_over(pid):
    return not Path(f"/proc/{pid}").exists()


def test_no_worker_outlives_a_run_that_is_killed(tmp_path):
    started, workers = alone(tmp_path)
    assert len(workers) == 2
    started.kill()
    started.communicate()
    until(lambda: all(map(is_over, workers)))


def test_workers_end_with_the_run_and_nothing_is_left_or_said(tmp_path):
    started, workers = alone(tmp_path)
    said, complaints = started.communicate("\n")
    assert (started.returncode, said, complaints) == (0, "", "")
    assert all(map(is_over, workers))
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"]
