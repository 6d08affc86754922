"""A client of a Dask scheduler, for the time of a block."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from distributed import Client

# Seconds that a scheduler has to answer, at first and when the connection is lost.
ANSWER_WITHIN = 6.0
# What Dask raises of an address or settings that it cannot use.
UNUSABLE = (ValueError, TypeError, ImportError, OverflowError, RuntimeError)


class _Client(Client):
    """Is closed if it cannot start; Dask would complain of it at some time later."""

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
    """Connect to a scheduler.

    Args:
        to: its address, or a cluster that has one.

    Yields:
        The client; it is no default, and so takes nothing that is not meant for it.

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
