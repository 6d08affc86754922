"""Schedulers and workers as processes of their own, as a site would start them."""

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

import curvflow
from tests import forkserver
from tests.flows.run.runners.acts import PATIENCE

SOURCE = Path(curvflow.__file__).parents[1]


class Forked:
    """A command of Dask in a process that is forked with all loaded."""

    def __init__(self, arguments, cwd):
        """Start it."""
        server = forkserver.running()
        self._process = server.Process(target=_dask, args=(arguments, cwd))
        self._process.start()
        self.kill, self.wait = self._process.kill, self._process.join


def _dask(arguments, cwd):
    import dask.config
    from dask.__main__ import main

    from curvflow.flows.run.runners.local import UNSEEN

    dask.config.set({**UNSEEN, "distributed.worker.profile.enabled": False})
    os.chdir(cwd)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    sys.argv = ["dask", *arguments]
    main()


def _python(arguments, cwd, first):
    return subprocess.Popen(
        [sys.executable, "-m", "dask", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": f"{first}:{SOURCE}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@contextmanager
def process(*arguments, cwd=".", first=""):
    """Run a command of Dask until the block ends, with modules of a folder first."""
    words = list(map(str, arguments))
    started = _python(words, cwd, first) if first else Forked(words, cwd)
    try:
        yield started
    finally:
        started.kill()
        started.wait(PATIENCE)


@contextmanager
def forking():
    """Have workers of this process forked with all loaded, and not spawned."""
    import dask
    import distributed.utils

    from curvflow.flows.run.runners import local

    forkserver.running()
    method = {"distributed.worker.multiprocessing-method": "forkserver"}
    with pytest.MonkeyPatch.context() as patch, dask.config.set(method):
        patch.setitem(local.SETTINGS, *method.popitem())
        patch.setattr(distributed.utils, "_forkserver_preload_set", True)
        yield


@contextmanager
def scheduler(folder, port=0):
    """Run a scheduler, on a free port if none is given; yields it and its address."""
    file = Path(folder) / "scheduler.json"
    file.unlink(missing_ok=True)
    options = ("--host", "127.0.0.1", "--port", port, "--scheduler-file", file)
    with process("scheduler", *options, "--no-dashboard") as started:
        until(lambda: file.exists() and file.read_text())
        yield started, json.loads(file.read_text())["address"]


@contextmanager
def worker(address, *options, **where):
    """Run a worker without a nanny, so that it dies when it is killed."""
    usual = ("--nthreads", 1, "--no-nanny", "--no-dashboard", "--host", "127.0.0.1")
    with process("worker", address, *usual, *options, **where) as started:
        yield started


@contextmanager
def joined(address, workers):
    """Join a cluster once it has some workers."""
    from curvflow.flows.run.runners.clients import remote_client

    with remote_client(address) as client:
        client.wait_for_workers(workers, timeout=PATIENCE)
        yield client


def until(condition):
    """Wait until a condition holds."""
    patience = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < patience, "it never came"
        time.sleep(0.02)


def stubborn(**options):
    """Start a cluster that complains when it is ended."""
    from distributed import LocalCluster

    class Cluster(LocalCluster):
        def close(self, timeout=None):
            super().close(timeout)
            if not Cluster.has_complained:
                Cluster.has_complained = True
                raise RuntimeError("scancel:\nnot found")

        has_complained = False

    return Cluster(**options)
