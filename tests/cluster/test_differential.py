"""One study is the same wherever its tiles run and its results are."""

import json

import pytest

import curvflow
from curvflow.schemas.options import RunOptions
from tests.cluster.runs import Process
from tests.cluster.studies import MIXED, committed, results

pytestmark = pytest.mark.cluster

FAILED = {"data": 0, "fit": 0, "norms": 0, "mine": 1, "table": 0, "means": 0, "bars": 0}
DIVERGED = {**FAILED, "mine": 0, "fit": 3, "norms": 3}
FIRST = {"data": 1, "fit": 9, "norms": 7, "mine": 2, "table": 3, "means": 0, "bars": 1}
REST = {**dict.fromkeys(FIRST, 0), "mine": 1, "means": 1}
# Who left off, and who goes on.
GOES_ON = {
    "inline": "workers",
    "workers": "scheduler",
    "scheduler": "cluster",
    "cluster": "inline",
}
CLUSTER = """
cluster:
  factory: "FACTORY:started"
  workers: 1
"""
FACTORY = '''
import dask
from distributed import LocalCluster


def started():
    """Start a cluster of this machine, with workers to come."""
    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    page = "127.0.0.1:0"
    return LocalCluster(n_workers=0, threads_per_worker=1, dashboard_address=page)
'''


@pytest.fixture
def mixed(project, site):
    """Return the study, with what each place to compute in is asked for by."""
    one = project(MIXED)
    (one.folder / "factory_of_mixed.py").write_text(FACTORY)
    text = CLUSTER.replace("FACTORY", "factory_of_mixed")
    (one.folder / "cluster.yaml").write_text(text)
    one.ways = {
        "inline": ("--workers", 1),
        "workers": ("--workers", 2),
        "scheduler": ("--scheduler", site.address),
        "cluster": ("--cluster", "cluster.yaml"),
    }
    return one


def failures(store, run):
    return [
        (f["key"], f["stage"], f["coords"], f["error"], "in mine" in f["traceback"])
        for f in store.index().runs[run].failures
    ]


def door(path, store, address, environment, answer):
    """Run the study by its Python door."""
    import os

    os.setsid()
    os.environ.update(environment)
    options = RunOptions(scheduler=address)
    counts = curvflow.run(path, store=store, options=options).run.counts
    answer.write_text(json.dumps({name: dict(one) for name, one in counts.items()}))


def test_every_runner_shows_the_same_and_goes_on_where_another_left_off(mixed):
    ways = list(mixed.ways)
    mixed.broken.touch()
    told = {
        way: mixed.run(*mixed.ways[way], code=1, store=way, forks=True) for way in ways
    }
    stores = {way: mixed.store(way) for way in ways}
    for way in ways:
        assert (told[way]["executed"], told[way]["failed"]) == (FIRST, FAILED)
        assert told[way]["diverged"] == DIVERGED
        assert results(stores[way]) == results(stores["inline"])
        assert failures(stores[way], 0) == failures(stores["inline"], 0)
    ((_, _, coords, error, is_told),) = failures(stores["inline"], 0)
    assert (coords, is_told) == ({"seed": 1}, True)
    assert "seed 1 cannot be measured" in error
    mixed.broken.unlink()
    for store, way in GOES_ON.items():
        rest = mixed.run(*mixed.ways[way], store=store, forks=True)
        assert rest["executed"] == REST
        nothing = mixed.run(*mixed.ways[way], store=store)
        assert not any(nothing["executed"].values())
        assert results(stores[store]) == results(stores["inline"])
        assert set(committed(stores[store]).values()) == {1}


def test_a_bucket_shared_with_workers_holds_what_a_folder_does(
    mixed, bucket, server, site, tmp_path, monkeypatch
):
    environment, scheduler = server.environment(), mixed.ways["scheduler"]
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    mixed.run(*mixed.ways["inline"])
    mixed.broken.touch()
    told = mixed.run(*scheduler, code=1, store=bucket, environment=environment)
    assert (told["executed"], told["failed"]) == (FIRST, FAILED)
    mixed.broken.unlink()
    answer = tmp_path / "answer.json"
    path = mixed.folder / "study.yaml"
    by_door = Process(door, path, bucket, site.address, environment, answer)
    assert by_door.ended() == 0
    assert json.loads(answer.read_text())["executed"] == REST
    nothing = mixed.run(*scheduler, store=bucket, environment=environment)
    assert not any(nothing["executed"].values())
    assert results(mixed.store(bucket)) == results(mixed.store())
