"""Which workers take which tiles."""

import pytest

from curvflow.errors import RequestError
from curvflow.flows.run.runners.pools import Pools, Worker, workers_in

CPU = Worker("tcp://a:1", resources={"CPU": 1})
GPU = Worker("tcp://b:1", resources={"GPU": 1})
PLAIN = Worker("tcp://c:1")


def pools(*workers, device="auto"):
    found = Pools(device)
    found.follow(workers)
    return found


def test_stages_go_to_the_workers_that_declare_what_they_need():
    found = pools(CPU, CPU, GPU)
    assert found.resources("gpu") == ("GPU",)
    assert found.resources("cpu") == ("CPU",)
    assert found.room(("GPU",)) == 2
    assert found.room(("CPU",)) == 4


def test_a_cluster_that_declares_nothing_takes_everything():
    found = pools(PLAIN, PLAIN)
    assert found.resources("gpu") == found.resources("cpu") == ()
    assert found.room(()) == 4


def test_other_stages_may_run_on_a_gpu_s_worker_if_nobody_is_for_them():
    found = pools(GPU)
    assert found.resources("cpu") == ()
    assert found.takers(()) == 1


def test_on_the_cpu_alone_no_gpu_is_asked_for():
    found = pools(CPU, GPU, device="cpu")
    assert found.resources("gpu") == ("CPU",)
    assert found.device("gpu") == "cpu"


def test_a_tile_of_a_gpu_waits_for_another_when_the_last_one_goes():
    found = pools(CPU, GPU)
    found.follow([CPU])
    assert found.resources("gpu") == ("GPU",)
    assert found.takers(("GPU",)) == 0


def test_a_cluster_without_workers_is_given_some_work_to_grow_with():
    assert pools().room(()) == 1


def test_only_tiles_that_need_a_gpu_insist_on_it():
    found = pools(CPU, GPU, device="cuda")
    assert found.device("gpu") == "cuda"
    assert found.device("cpu") == "auto"


def test_workers_that_pause_or_leave_are_not_counted():
    told = {"nthreads": 1, "resources": {"GPU": 1}, "status": "running"}
    gone = {**told, "status": "closing_gracefully"}
    found = workers_in({"workers": {"tcp://b:1": told, "tcp://c:1": gone}})
    assert found == [GPU]


def test_a_refusal_names_the_worker_with_several_threads():
    from curvflow.flows.run.runners.preflight import check_resources

    identity = {"workers": {"tcp://a:1": {"nthreads": 8, "resources": {}}}}
    with pytest.raises(RequestError, match="worker tcp://a:1: expected one thread"):
        check_resources("tcp://s:8786", identity, "auto")
