"""Processes forked for tests are as the tests expect them."""

import signal
import time
from multiprocessing import resource_tracker

import pytest

from tests import forkserver
from tests.flows.run.runners.clusters import forking

pytestmark = pytest.mark.cluster


def test_signals_reach_forks_though_a_cluster_was_started_before():
    from curvflow.flows.run.runners.local import local_client

    resource_tracker.ensure_running()  # which else unblocks signals as it starts
    with forking(), local_client(1, [], dashboard=False):
        pass
    process = forkserver.running().Process(target=time.sleep, args=(60,))
    process.start()
    process.terminate()
    process.join(20)
    assert process.exitcode == -signal.SIGTERM
