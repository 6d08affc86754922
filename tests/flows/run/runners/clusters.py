"""Schedulers and workers as processes of their own, as a site would start them."""

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import curvflow
from tests.flows.run.runners.acts import PATIENCE

SOURCE = Path(curvflow.__file__).parents[1]
DASK = [sys.executable, "-m", "dask"]


@contextmanager
def process(*arguments, cwd=None, first="", **environment):
    """Run a command of Dask until the block ends, with modules of a folder first."""
    started = subprocess.Popen(
        [*DASK, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **environment, "PYTHONPATH": f"{first}:{SOURCE}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield started
    finally:
        started.kill()
        started.wait(PATIENCE)


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
def worker(address, *options, **environment):
    """Run a worker without a nanny, so that it dies when it is killed."""
    usual = ("--nthreads", 1, "--no-nanny", "--no-dashboard", "--host", "127.0.0.1")
    with process("worker", address, *usual, *options, **environment) as started:
        yield started


@contextmanager
def joined(address, workers):
    """Join a cluster once it has some workers."""
    from curvflow.flows.run.runners.remote import remote_client

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
