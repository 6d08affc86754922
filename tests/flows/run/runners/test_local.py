"""The cluster of this machine."""

import os

import pytest

from tests.flows.run.runners.conftest import act, came_back, read

pytestmark = pytest.mark.cluster


def settings(dask_worker):
    """Tell how a worker is set up."""
    import logging

    import dask

    return {
        "heard": logging.getLogger("tornado.application").isEnabledFor(logging.ERROR),
        "mask": os.environ["CUDA_VISIBLE_DEVICES"],
        "resources": dict(dask_worker.state.total_resources),
        "threads": dask_worker.state.nthreads,
        "spill": dask.config.get("distributed.worker.memory.spill"),
        "pause": dask.config.get("distributed.worker.memory.pause"),
        "memory": dask_worker.memory_manager.memory_limit,
        "pid": os.getpid(),
        "pauses": [
            dask_worker.periodic_callbacks[name].callback_time
            for name in ("tick", "monitor")
        ],
    }


def test_each_gpu_has_a_process_that_sees_no_other_and_stages_keep_to_theirs(running):
    from curvflow.flows.run.runners.local import local_client

    with local_client(1, ["7"], dashboard=False) as client:
        by_mask = {worker["mask"]: worker for worker in client.run(settings).values()}
        runner = running.runner(client, device="auto")
        numbers = [
            runner.submit(act(), needs=needs, priority=0)
            for needs in ("gpu", "cpu", "gpu", "cpu")
        ]
        ran = [
            read(running, returned)["pid"] for returned in came_back(runner, *numbers)
        ]
    assert by_mask["7"]["resources"] == {"GPU": 1}
    assert by_mask[""]["resources"] == {"CPU": 1}
    assert ran == [by_mask["7"]["pid"], by_mask[""]["pid"]] * 2
    for worker in by_mask.values():
        assert not worker["heard"]
        assert (worker["threads"], worker["spill"], worker["pause"]) == (
            1,
            False,
            False,
        )
        assert min(worker["pauses"]) >= 1000  # ms: a waiting process takes no time
    total = sum(worker["memory"] for worker in by_mask.values())
    assert total <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_a_tile_may_start_processes_and_end_them(local, running):
    runner = running.runner(local)
    (done,) = came_back(runner, runner.submit(act("start"), needs="cpu", priority=0))
    assert read(running, done)["pid"]
