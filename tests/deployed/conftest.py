"""One Prefect server, pool and worker for all tests of this folder."""

from pathlib import Path
from subprocess import CompletedProcess
from typing import NamedTuple

import pytest

from tests.deployed.server import serving, started, until
from tests.deployed.studies import Page, last_page, recorded, write
from tests.deployed.warm import warmed

POOL = "curvflow"  # as in prefect.yaml


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """Return a server that answers, and by which commands are forked."""
    with (
        serving(tmp_path_factory.mktemp("prefect")) as one,
        warmed(one.warm, one.environment),
    ):
        yield one


@pytest.fixture(scope="session")
def pool(server):
    """Return the name of a pool whose worker starts processes."""
    # A client that is not answered in time asks again, and finds that it is there.
    asked = ("create", POOL, "--type", "process", "--overwrite")
    made = server.prefect("work-pool", *asked)
    assert made.returncode == 0, made.stderr
    return POOL


@pytest.fixture(scope="session")
def worker(server, pool):
    """Return the name of a pool that a real worker serves."""
    log = server.home / "worker.log"
    how = ["--pool", pool, "--type", "process", "--name", "worker"]
    with started(server, log, "worker", "start", *how):
        until(lambda: server.post(f"/work_pools/{pool}/workers/filter"), every=0.2)
        yield pool


class Ran(NamedTuple):
    """A first run of the study, by the command line.

    Attributes:
        path: of the study.
        said: what the command said.
        page: of the run.
        hosts: path of the names of hosts that it asked for.
    """

    path: Path
    said: CompletedProcess
    page: Page
    hosts: Path


@pytest.fixture(scope="session")
def ran(tmp_path_factory, server):
    """Return a first run of the study that tests look at."""
    folder = tmp_path_factory.mktemp("tiny")
    path = write(folder / "study")
    environment, hosts = recorded(folder)
    said = server.curvflow("run", path, cwd=path.parent, cold=True, **environment)
    return Ran(path, said, last_page(server), hosts)
