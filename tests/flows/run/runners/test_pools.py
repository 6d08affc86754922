"""Which workers take which tiles."""

import pytest

from curvflow.errors import RequestError
from curvflow.flows.run.runners.pools import Pools, Worker, workers_in

CPU = Worker("tcp://a:1", resources={"CPU": 1})
GPU = Worker("tcp://b:1", resources={"GPU": 1})
PLAIN = Worker("tcp://c:1")


def pools(*workers, device="auto"):
    pool = Pools(device)
    pool.follow(workers)
    return pool


def test_stages_go_to_the_workers_that_declare_what_they_need():
    pool = pools(CPU, CPU, GPU)
    assert pool.resources("gpu") == ("GPU",)
    assert pool.resources("cpu") == ("CPU",)
    assert pool.room(("GPU",)) == 2
    assert pool.room(("CPU",)) == 4


def test_a_cluster_that_declares_nothing_takes_everything():
    pool = pools(PLAIN, PLAIN)
    assert pool.resources("gpu") == pool.resources("cpu") == ()
    assert pool.room(()) == 4


def test_other_stages_may_run_on_a_gpu_s_worker_if_nobody_is_for_them():
    pool = pools(GPU)
    assert pool.resources("cpu") == ()
    assert pool.takers(()) == 1


def test_on_the_cpu_alone_no_gpu_is_requested():
    pool = pools(CPU, GPU, device="cpu")
    assert pool.resources("gpu") == ("CPU",)
    assert pool.device("gpu") == "cpu"


def test_a_tile_of_a_gpu_waits_for_another_when_the_last_one_goes():
    pool = pools(CPU, GPU)
    pool.follow([CPU])
    assert pool.resources("gpu") == ("GPU",)
    assert pool.takers(("GPU",)) == 0


def test_a_cluster_without_workers_is_given_some_work_to_grow_with():
    assert pools().room(()) == 1


def test_only_tiles_that_need_a_gpu_insist_on_it():
    pool = pools(CPU, GPU, device="cuda")
    assert pool.device("gpu") == "cuda"
    assert pool.device("cpu") == "auto"


def test_workers_that_pause_or_leave_are_not_counted():
    facts = {"nthreads": 1, "resources": {"GPU": 1}, "status": "running"}
    gone = {**facts, "status": "closing_gracefully"}
    workers = workers_in({"workers": {"tcp://b:1": facts, "tcp://c:1": gone}})
    assert workers == [GPU]


def test_a_refusal_names_the_worker_with_several_threads():
    from curvflow.flows.run.runners.preflight import check_resources

    identity = {"workers": {"tcp://a:1": {"nthreads": 8, "resources": {}}}}
    with pytest.raises(RequestError, match="worker tcp://a:1: expected one thread"):
        check_resources("tcp://s:8786", identity, "auto")
