"""Workers that are killed, and nodes that kill theirs."""

import os
import signal

import pytest

from tests.cluster.runs import site as running_site
from tests.cluster.studies import DEADLY, LONG, begun, committed, journal, results
from tests.flows.run.runners.clusters import until

pytestmark = pytest.mark.cluster

MIDDLE = 160
# Passes of an undisturbed training; all others are those of trying the network.
TRAINED = 3 * 60
DIED = "died: it was killed, or took more memory than it has; trying again"
CLUSTER = """
cluster:
  factory: "distributed:LocalCluster"
  kwargs: {n_workers: 1, threads_per_worker: 1, dashboard_address: "127.0.0.1:0",
           memory_limit: 900MB}
"""


def test_training_goes_on_from_its_kept_state_on_another_worker(project, tmp_path):
    long = project(LONG)
    long.run("--workers", 1, store="calm", width=512)
    calm = long.calls
    long.hold.write_text("." * (calm + MIDDLE))
    with running_site(tmp_path, 2) as site:
        run = long.start("--scheduler", site.address, width=512, every=0.0)
        until(long.held.exists)
        assert len(long.kept()) == 1
        os.kill(int(long.held.read_text()), signal.SIGKILL)
        long.hold.unlink()
        assert run.answer()["executed"]["fit"] == 3
        assert len([one for one in site.workers if one.family()]) == 1
    (died, goes_on) = run.err.splitlines()
    assert died == f"curvflow: fit: 3 nodes: the worker that had begun it {DIED}"
    assert goes_on == "curvflow: fit: 3 nodes go on from a kept state"
    assert results(long.store()) == results(long.store("calm"))
    # The other worker tries the network anew, and trains no epoch again.
    assert long.calls - calm <= calm + (calm - TRAINED) + 3
    assert long.kept() == []
    assert set(committed(long.store()).values()) == {1}


def only_the_deadly_node_fails(deadly, run):
    told = run.answer(code=1)
    assert (told["executed"], told["failed"]) == ({"mine": 2}, {"mine": 1})
    store = deadly.store()
    (failure,) = store.index().runs[-1].failures
    assert failure["coords"] == {"seed": 2}
    assert failure["error"].startswith("the process that computed it died twice: ")
    assert "it was killed, or took more memory than it has" in failure["error"]
    return failure["key"]


def test_a_node_that_ends_its_process_fails_alone_and_is_tried_alone(project):
    deadly = project(DEADLY.replace("WAY", "exit"))
    key = only_the_deadly_node_fails(deadly, deadly.start("--workers", 2, width=16))
    deaths = begun(deadly.store())[key]
    (deadly.folder / "cluster.yaml").write_text(CLUSTER)
    again = deadly.start("--cluster", "cluster.yaml", width=16)
    assert again.answer(code=1)["executed"] == {"mine": 0}
    assert {k for _, _, keys in journal(deadly.store()) for k in keys} == {key}
    assert begun(deadly.store())[key] == deaths + 2


def test_a_node_that_takes_too_much_memory_fails_alone(project):
    deadly = project(DEADLY.replace("WAY", "memory"))
    (deadly.folder / "cluster.yaml").write_text(CLUSTER)
    run = deadly.start("--cluster", "cluster.yaml", width=16)
    only_the_deadly_node_fails(deadly, run)
