"""The process that forks for the tests of this one, with all loaded."""

import multiprocessing
from multiprocessing import forkserver

PRELOAD = [
    "tests.forks",
    "tests.commands",
    "tests.faults.children",
    "tests.cluster.runs",
]


def running():
    """Return the context of processes that it forks; it is started if need be.

    Forks take over which signals were blocked when it was started, and Dask starts it
    while a cluster blocks some. So it is started here, before.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    forkserver.ensure_running()
    return context
