"""Clients of a Dask scheduler, and their errors on one line."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pickle import UnpicklingError
from typing import Any, NoReturn

from distributed import Client
from distributed.client import ClosedClientError

from curvflow.errors import ClusterError

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


def one_line(error: BaseException) -> str:
    """Return an error's message on one line, or its type if it has none."""
    return " ".join(str(error).split()) or type(error).__name__


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
