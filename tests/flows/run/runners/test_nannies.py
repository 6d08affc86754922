"""Workers of this machine that die and are started again."""

import os
import signal
import time

import pytest

from curvflow.schemas.options import Cluster
from tests.flows.run.runners.acts import PATIENCE
from tests.flows.run.runners.clusters import until

pytestmark = pytest.mark.cluster

# So short that the next worker is never there when Dask looks for it.
SOON = {"distributed.deploy.lost-worker-timeout": "50ms"}


def of_this_machine():
    from curvflow.flows.run.runners.local import local_client

    return local_client(1, [], dashboard=False)


def of_a_file():
    from curvflow.flows.run.runners.clients import cluster_client

    kwargs = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0"}
    asked = Cluster(factory="distributed:LocalCluster", kwargs=kwargs)
    return cluster_client(asked, print)


@pytest.mark.parametrize("started", [of_this_machine, of_a_file])
def test_a_worker_is_started_again_however_long_its_start_takes(started):
    import dask
    import distributed  # noqa: F401  # whose settings would hide these

    with dask.config.set(SOON), started() as client:
        pid = client.submit(os.getpid).result(PATIENCE)
        os.kill(pid, signal.SIGKILL)
        until(lambda: not client.cluster.scheduler_info["workers"])
        time.sleep(0.2)
        assert client.cluster.workers
        assert client.submit(os.getpid, pure=False).result(PATIENCE) != pid
