"""Dask clusters beyond this machine: already running, or started for the run."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any
from uuid import uuid4

import dask
from distributed import Client, LocalCluster

from curvflow.errors import ClusterError, RequestError
from curvflow.flows.run.runners.client import (
    ANSWER_WITHIN,
    LOST,
    NANNIES_STAY,
    UNUSABLE,
    connected,
    give_up,
    one_line,
    quiet,
)
from curvflow.schemas.options import Cluster

LOOK_EVERY = 0.2  # seconds between looks for the first worker
WAIT_COUNT = "distributed.adaptive.wait-count"

# Seconds that a worker may be idle before it is let go. Dask has three; but to be asked
# whether it is fit it loads PyTorch, and a queue may take long to give another.
IDLE = 60


@contextmanager
def remote_client(address: str) -> Iterator[Client]:
    """Join a cluster by its scheduler's address.

    Raises:
        RequestError: nobody answers there.
    """
    with ExitStack() as stack:
        stack.enter_context(quiet())
        try:
            client = stack.enter_context(connected(address))
        except UNUSABLE as error:
            raise RequestError(
                f"--scheduler: expected an address that Dask can connect to, got "
                f"{address}: {one_line(error)}. `dask scheduler` prints the one it has."
            ) from error
        except OSError as error:
            raise RequestError(
                f"--scheduler: expected a Dask scheduler at {address}, got no answer "
                f"within {ANSWER_WITHIN:.0f} s. Start one with `dask scheduler`, or "
                "correct the address."
            ) from error
        yield client


@contextmanager
def cluster_client(asked: Cluster, tell: Callable[[str], None]) -> Iterator[Client]:
    """Start the cluster of a configuration; it ends with the block.

    Raises:
        RequestError: its factory is not there, or fails.
    """
    with ExitStack() as stack:
        stack.enter_context(quiet())
        # Whatever the queue of a site says comes through, in many shapes.
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a port that another has, say
                cluster = _made(asked)
            stack.callback(_close, cluster, asked.factory, tell)
            if isinstance(cluster, LocalCluster):
                stack.enter_context(dask.config.set(NANNIES_STAY))
            if asked.workers is not None:
                cluster.scale(asked.workers)
            elif asked.adapt is not None:
                least, most = asked.adapt.minimum, asked.adapt.maximum
                looks = max(IDLE, dask.config.get(WAIT_COUNT))
                with dask.config.set({WAIT_COUNT: looks}):
                    cluster.adapt(minimum=least, maximum=most)
            client = stack.enter_context(connected(cluster))
        except Exception as error:
            raise RequestError(
                f"--cluster: expected {asked.factory} to start a Dask cluster, got "
                f"{type(error).__name__}: {one_line(error)}. Correct its factory and "
                "kwargs."
            ) from error
        yield client


def await_first(
    client: Client,
    *,
    within: float,
    tell: Callable[[str], None],
    check: Callable[[], None],
) -> None:
    """Wait for the first worker; a cluster that grows with the work gets a sample task.

    Raises:
        ClusterError: none came, or the scheduler is lost.
    """
    until = time.monotonic() + within
    sync: Any = client.sync  # has no types
    scheduler: Any = client.scheduler
    work = None
    address: str = scheduler.address

    def is_empty() -> bool:
        try:
            return not sync(scheduler.identity, n_workers=-1)["workers"]
        except LOST:
            give_up(address)

    while is_empty():
        if work is None:
            work = client.submit(int, key=f"first-{uuid4().hex}", pure=False)
            tell(f"{address}: waiting for the first worker")
        check()
        if time.monotonic() > until:
            raise ClusterError(
                f"{address}: expected a worker, got none within "
                f"{within:.0f} s. Look into the log of the queue, or start one with "
                f"`dask worker {address} --nthreads 1`."
            )
        time.sleep(LOOK_EVERY)


def _made(asked: Cluster) -> Any:
    module, _, name = asked.factory.partition(":")
    return getattr(import_module(module), name)(**asked.kwargs)


def _close(cluster: Any, factory: str, tell: Callable[[str], None]) -> None:
    try:
        cluster.close()
    # What was computed is no worse for it, and no two queues fail alike.
    except Exception as error:
        tell(
            f"--cluster: expected {factory} to end its cluster, got "
            f"{type(error).__name__}: {one_line(error)}. Look whether its jobs have "
            "ended."
        )
