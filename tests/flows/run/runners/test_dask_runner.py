"""Tiles computed by the workers of real clusters."""

import os
import signal

import pytest

from curvflow.errors import ClusterError
from curvflow.flows.graph.stopping import Stopping
from curvflow.flows.run.compute import Snapshots, compute_tile
from curvflow.flows.run.runners.base import Died, Finished
from curvflow.tasks.machine import machine_for
from tests.flows.run.runners.clusters import joined, scheduler, worker
from tests.flows.run.runners.conftest import act, came_back, fit, pid_in, read

pytestmark = pytest.mark.cluster


def test_a_tile_has_the_digests_of_one_computed_in_process(local, running):
    runner = running.runner(local)
    (returned,) = came_back(runner, runner.submit(fit(0, 1), needs="cpu", priority=0))
    assert isinstance(returned, Finished)
    nowhere = Snapshots(running.store, Stopping())
    here = compute_tile(running.store, fit(0, 1), machine_for("cpu", 1), nowhere)
    assert [report.digest for report in returned.reports] == [
        report.digest for report in here
    ]
    assert {report.payload for report in returned.reports} == {
        report.payload for report in here
    }


def test_each_worker_has_room_for_one_tile_to_run_and_one_to_wait(local, running):
    runner = running.runner(local)
    assert runner.room("cpu") == 4
    assert runner.room("gpu") == 4  # without GPUs, both kinds of tiles share the CPUs
    number = runner.submit(act(), needs="gpu", priority=0)
    assert runner.room("cpu") == 3
    came_back(runner, number)
    assert runner.room("cpu") == 4


def test_a_tile_computes_on_the_threads_it_was_given(local, running):
    runner = running.runner(local, threads=3)
    tile = act(kind="test.threads")
    (returned,) = came_back(runner, runner.submit(tile, needs="cpu", priority=0))
    assert read(running, returned)["threads"] == 3


def test_a_table_is_made_without_pytorch(running, tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('not needed')")
    with (
        scheduler(tmp_path) as (_, address),
        worker(address, first=tmp_path),
        joined(address, 1) as client,
    ):
        runner = running.runner(client)
        (done,) = came_back(runner, runner.submit(act(), needs="cpu", priority=0))
    assert isinstance(done, Finished)


def test_a_killed_worker_is_reported_and_the_tiles_behind_it_are_done(
    running, tmp_path
):
    from curvflow.flows.run.runners.local import local_client

    with local_client(1, [], dashboard=False) as client:
        runner = running.runner(client)
        slow = act("sleep", tmp_path / "pid", seconds=60)
        first = runner.submit(slow, needs="cpu", priority=1)
        second = runner.submit(act(), needs="cpu", priority=0)
        os.kill(pid_in(tmp_path / "pid"), signal.SIGKILL)
        died, done = came_back(runner, first, second)
    assert isinstance(died, Died)
    assert "it was killed, or took more memory than it has" in died.reason
    assert isinstance(done, Finished)


def test_a_worker_of_another_s_cluster_dies_once_for_a_tile(running, tmp_path):
    with (
        scheduler(tmp_path) as (_, address),
        worker(address),
        worker(address),
        joined(address, 2) as client,
    ):
        runner = running.runner(client)
        (died,) = came_back(runner, runner.submit(act("die"), needs="cpu", priority=0))
        assert isinstance(died, Died)
        (done,) = came_back(runner, runner.submit(act(), needs="cpu", priority=0))
        assert isinstance(done, Finished)


def test_the_death_of_the_scheduler_ends_the_run_with_a_diagnosis(running, tmp_path):
    with (
        scheduler(tmp_path) as (process, address),
        worker(address),
        joined(address, 1) as client,
    ):
        runner = running.runner(client)
        slow = act("sleep", tmp_path / "pid", seconds=60)
        runner.submit(slow, needs="cpu", priority=0)
        pid_in(tmp_path / "pid")
        process.kill()
        with pytest.raises(ClusterError, match=f"{address}: .* finished is kept"):
            came_back(runner, 1)


def test_a_scheduler_that_comes_back_in_time_is_given_its_tiles_again(
    running, tmp_path
):
    with (
        scheduler(tmp_path) as (first, address),
        worker(address),
        joined(address, 1) as client,
    ):
        runner = running.runner(client)
        slow = act("sleep", tmp_path / "pid", seconds=1)
        number = runner.submit(slow, needs="cpu", priority=0)
        pid_in(tmp_path / "pid")
        first.kill()
        first.wait()
        port = address.rpartition(":")[2]
        with scheduler(tmp_path, port) as (_, again), worker(again):
            (returned,) = came_back(runner, number)
    assert again == address
    assert isinstance(returned, Finished)
