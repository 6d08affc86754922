"""A Dask cluster of this machine, for one run."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from types import ModuleType
from typing import Any, ClassVar

import dask
from distributed import Client, Nanny, Scheduler, SpecCluster
from distributed.system import MEMORY_LIMIT

from curvflow.errors import ClusterError, RequestError
from curvflow.flows.run.runners.clients import (
    NANNIES_STAY,
    SILENT,
    connected,
    quiet,
)
from curvflow.flows.run.runners.preload import IGNORED
from curvflow.schemas.words import error_line

SETTINGS = {
    **NANNIES_STAY,
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.worker-ttl": "1 hour",  # a tile may hold the interpreter
    "distributed.scheduler.no-workers-timeout": "10 minutes",
    "distributed.scheduler.work-stealing": True,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": 0.95,
    "distributed.worker.profile.enabled": False,
    "distributed.worker.daemon": False,  # a tile may start processes
    "distributed.worker.multiprocessing-method": "spawn",
    "distributed.comm.retry.count": 3,
    "distributed.diagnostics.nvml": False,
}
# What Dask's page alone shows: an idle process would take 2 % of a core to measure it.
UNSEEN = {
    "distributed.admin.tick.interval": "1 s",
    "distributed.admin.system-monitor.interval": "10 s",
}
HOST = "127.0.0.1"

# Seconds that a worker has to end by itself, and that closing may take in all.
GRACE, CLOSE_WITHIN = 0.5, 10.0
_NO_SCRIPT = ModuleType("__main__")


class _Nanny(Nanny):
    """Starts a worker's process without the script that started the run.

    Python would import that script into each new process, and run the study there. Nor
    does a signal reach it before its preload sees to that.
    """

    _hidden: ClassVar[list[ModuleType]] = []  # once per process that is starting

    async def instantiate(self) -> Any:
        # What this thread starts has its mask; signals are for the main one anyhow.
        signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED)
        if not self._hidden:
            main, sys.modules["__main__"] = sys.modules["__main__"], _NO_SCRIPT
        else:
            main = self._hidden[0]
        self._hidden.append(main)
        try:
            return await super().instantiate()
        finally:
            sys.modules["__main__"] = self._hidden.pop()
            if self._hidden:
                sys.modules["__main__"] = _NO_SCRIPT


@contextmanager
def local_client(
    processes: int,
    gpus: Sequence[str],
    *,
    dashboard: bool,
) -> Iterator[Client]:
    """Start workers on this machine; they end with the block, or with this process.

    `gpus` has a device mask for each worker that computes on a GPU.

    Raises:
        RequestError: the dashboard was requested and cannot be served.
        ClusterError: the workers cannot be started.
    """
    if dashboard and find_spec("bokeh") is None:
        raise RequestError(
            "--dashboard: expected Bokeh, which draws Dask's page, got none. "
            "Install it: pip install bokeh."
        )
    with (
        _own_environment(),
        tempfile.TemporaryDirectory(
            prefix="curvflow-", ignore_cleanup_errors=True
        ) as f,
        quiet(),
        dask.config.set(SETTINGS if dashboard else {**SETTINGS, **UNSEEN}),
        dask.config.set({"temporary-directory": f}),
    ):
        cluster = _started(_specs(processes, gpus), dashboard=dashboard)
        try:
            with connected(cluster) as client:
                yield client
        finally:
            _close(cluster)


@contextmanager
def _own_environment() -> Iterator[None]:
    """Undo what a nanny sets for its workers in the process that it runs in."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before:
            del os.environ[name]
        os.environ.update(before)


def _specs(processes: int, gpus: Sequence[str]) -> dict[str, Any]:
    share = MEMORY_LIMIT // (processes + len(gpus))
    places = {f"gpu-{n}": ("GPU", mask) for n, mask in enumerate(gpus)}
    places |= {f"cpu-{n}": ("CPU", "") for n in range(processes)}
    return {
        name: {
            "cls": _Nanny,
            "options": {
                "nthreads": 1,
                "memory_limit": share,
                "resources": {resource: 1},
                "env": {"CUDA_VISIBLE_DEVICES": mask},
                "preload": ["curvflow.flows.run.runners.preload"],
                "silence_logs": SILENT,
                "host": HOST,
                "dashboard": False,
                "dashboard_address": None,
            },
        }
        for name, (resource, mask) in places.items()
    }


def _started(workers: dict[str, Any], *, dashboard: bool) -> SpecCluster:
    address = f"{HOST}:0"
    options = {"host": HOST, "dashboard": dashboard, "dashboard_address": address}
    start: Any = SpecCluster  # has no types
    try:
        cluster: SpecCluster = start(
            workers=workers,
            scheduler={"cls": Scheduler, "options": options},
            silence_logs=SILENT,
        )
    # Failures to start a process come as many types.
    except Exception as error:
        raise ClusterError(
            f"--workers: expected {len(workers)} processes that start, got "
            f"{type(error).__name__}: {error_line(error)}. Ask for fewer."
        ) from error
    return cluster


def _close(cluster: SpecCluster) -> None:
    async def end() -> None:
        closing = [w.close(timeout=GRACE) for w in cluster.workers.values()]
        await asyncio.gather(*closing, return_exceptions=True)

    sync: Any = cluster.sync
    with suppress(TimeoutError):
        sync(end, callback_timeout=CLOSE_WITHIN)
    with suppress(TimeoutError):  # workers see for themselves that this process ends
        cluster.close(timeout=CLOSE_WITHIN)
