"""Clients of a Dask scheduler, their errors on one line, and clusters elsewhere."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pickle import UnpicklingError
from typing import Any, NoReturn
from uuid import uuid4

import dask
from distributed import Client, LocalCluster
from distributed.client import ClosedClientError

from curvflow.errors import ClusterError, RequestError
from curvflow.schemas.options import Cluster
from curvflow.schemas.words import error_line

# Nannies start their workers again by themselves. Dask looks once, some seconds after
# it lost a worker, and ends the nanny if the next worker has just died as well.
NANNIES_STAY = {"distributed.deploy.lost-worker-timeout": "365 days"}

# Seconds that a scheduler has to answer, at first and when the connection is lost.
ANSWER_WITHIN = 6.0

# Errors of Dask for an address or settings that it cannot use.
UNUSABLE = (ValueError, TypeError, ImportError, OverflowError, RuntimeError)


class _Client(Client):
    """Closes itself if it cannot start; Dask would warn of it later."""

    async def _start(self, *given: Any, **named: Any) -> Any:
        start: Any = super()._start  # has no types
        try:
            return await start(*given, **named)
        # Whatever has kept it from starting, it is open, and is raised again.
        except Exception:
            close: Any = self._close
            await close(fast=True)
            raise


@contextmanager
def connected(to: object) -> Iterator[Client]:
    """Connect to a scheduler, by its address or a cluster that has one.

    The client is no default, and so takes nothing that is not meant for it.

    Raises:
        OSError: nobody answers.
    """
    connect: Any = _Client  # has no types
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other versions: the preflight says it
        client: Any = connect(to, timeout=ANSWER_WITHIN, set_as_default=False)
    try:
        yield client
    finally:
        with suppress(OSError):  # a scheduler that is no more needs no farewell
            client.close(timeout=ANSWER_WITHIN)


# Errors of a client that has lost its scheduler.
LOST = (OSError, AttributeError, ClosedClientError)


def give_up(address: str) -> NoReturn:
    """Raise ClusterError: the scheduler is lost."""
    raise ClusterError(
        f"{address}: expected the scheduler to answer, got no connection. "
        "What is finished is kept: start it again, and run again."
    )


MISSING = (ImportError, AttributeError, UnpicklingError)
NAMES = ("ModuleNotFoundError", *(error.__name__ for error in MISSING))
NAMED = tuple(f"{name}(" for name in NAMES)


def is_missing(error: BaseException) -> bool:
    """Return whether a worker lacks a module or function that it was sent.

    Dask makes a plain error of some, which names the original.
    """
    return isinstance(error, MISSING) or str(error).startswith(NAMED)


LOGGERS = (
    "distributed",
    "distributed.client",
    "distributed.gc",
    "bokeh",
    "tornado",
    "tornado.application",
    "asyncio",
)
SILENT = logging.CRITICAL + 1


def silence() -> None:
    """Silence the loggers of Dask and its dependencies."""
    for name in LOGGERS:
        logging.getLogger(name).setLevel(SILENT)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the loggers of Dask and its dependencies until the block ends."""
    before = {name: logging.getLogger(name).level for name in LOGGERS}
    silence()
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


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
                f"{address}: {error_line(error)}. `dask scheduler` prints the one it "
                "has."
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
        # Whatever the queue of a site says comes through, in many shapes.
        except Exception as error:
            raise RequestError(
                f"--cluster: expected {asked.factory} to start a Dask cluster, got "
                f"{type(error).__name__}: {error_line(error)}. Correct its factory and "
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
            f"{type(error).__name__}: {error_line(error)}. Look whether its jobs have "
            "ended."
        )
