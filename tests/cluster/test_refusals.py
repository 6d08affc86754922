"""A run that cannot compute where it was told to says so, and does not begin."""

import signal
import socket

import pytest

from curvflow.flows.run.runners.job_context import this_build
from curvflow.stores.local import LocalStore
from tests.cluster.runs import site as running_site
from tests.cluster.studies import MIXED
from tests.flows.run.runners.clusters import worker
from tests.flows.run.runners.test_preflight import OTHER_TORCH

pytestmark = pytest.mark.cluster


@pytest.fixture
def mixed(project):
    return project(MIXED)


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """Run a scheduler to which tests add their workers."""
    with running_site(tmp_path_factory.mktemp("empty"), 0) as one:
        yield one


@pytest.fixture
def of(empty):
    """Return a function that adds a worker and returns its address."""
    before = len(empty.workers)

    def add(*options, **where):
        empty.worker(*options, **where)
        return address_of_one(empty)

    yield add
    for one in empty.workers[before:]:
        one.clear()
    empty.ask(gone)


def address_of_one(site):
    site.await_workers(1)
    (address,) = site.ask(lambda client: client.scheduler_info(n_workers=-1)["workers"])
    return address


def gone(client):
    while client.scheduler_info(n_workers=-1)["workers"]:
        client.sync(client._update_scheduler_info, n_workers=-1)


def refused(mixed, *arguments, code=2, store="store", **settings):
    """Return the one line that a run says; it has left no entry in the log."""
    run = mixed.start(*arguments, store=store, **settings)
    assert run.ended() == code, run.err
    assert run.out == ""
    if store != "memory:":
        assert mixed.runs_logged(store) == []
    (line,) = run.err.splitlines()
    return line.removeprefix("curvflow: ")


def test_a_worker_with_another_version(mixed, empty, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(OTHER_TORCH)
    with worker(empty.address, first=tmp_path):
        where = address_of_one(empty)
        said = refused(mixed, "--scheduler", empty.address)
    assert said == (
        f"worker {where}: expected torch {this_build()['torch']}, got 0.4.1. Install "
        "the same there as where the run is started, and restart the workers."
    )
    empty.ask(gone)


def test_a_store_that_the_worker_does_not_share(mixed, empty, of, tmp_path):
    where = of(cwd=tmp_path)
    LocalStore(tmp_path / "store").make()
    place = "/proc/self/cwd/store"
    said = refused(mixed, "--scheduler", empty.address, store=place)
    assert said == (
        f"worker {where}: {place}: expected the store of the run, got another one on "
        f"{socket.gethostname()}. Give --store a place that all workers share."
    )


def test_a_worker_that_hangs(mixed, empty, of):
    of()
    empty.workers[-1].kill(signal.SIGSTOP)
    said = refused(mixed, "--scheduler", empty.address, code=1, answer=1.0)
    assert said == (
        f"{empty.address}: expected all workers to answer, got none of one within 1 s. "
        "Look whether they are busy or stopped."
    )


def test_a_gpu_that_no_worker_has(mixed, empty, of):
    of()
    said = refused(mixed, "--scheduler", empty.address, "--device", "cuda")
    assert said == (
        "--device cuda: expected a worker with the resource GPU, got none of 1. Start "
        f"one with `dask worker {empty.address} --nthreads 1 --resources GPU=1`, or "
        "use --device cpu."
    )


def test_a_worker_of_several_threads(mixed, empty, of):
    where = of("--nthreads", 2)
    said = refused(mixed, "--scheduler", empty.address)
    assert said == (
        f"worker {where}: expected one thread, got 2. Start it with `dask worker "
        f"{empty.address} --nthreads 1`, once per core."
    )


def test_an_address_without_a_scheduler(mixed):
    said = refused(mixed, "--scheduler", "tcp://127.0.0.1:9")
    assert said == (
        "--scheduler: expected a Dask scheduler at tcp://127.0.0.1:9, got no answer "
        "within 6 s. Start one with `dask scheduler`, or correct the address."
    )


def test_a_store_in_memory(mixed):
    assert refused(mixed, "--workers", 2, store="memory:") == (
        "--store: expected a store that workers can reach, got memory:. Use a folder, "
        "or --workers 1."
    )


def test_two_places_at_once(mixed):
    said = refused(mixed, "--workers", 2, "--scheduler", "tcp://127.0.0.1:9")
    assert said == "--workers cannot be combined with --scheduler. Choose one."
