"""One Prefect server, pool and worker for all tests of this folder."""

import pytest

from tests.deployed.server import serving, started, until
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
    made = server.prefect("work-pool", "create", POOL, "--type", "process")
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
