"""Start each tile at most once, even if Dask reschedules it after a worker died.

Dask gives the task of a lost worker to the next one, four times by default, and does
not say whether it had begun. Retries are for the run to decide: so each attempt is
marked with the scheduler before its computing begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from distributed import get_worker
from distributed.utils import sync

ANSWER_WITHIN = 30.0  # seconds; of a scheduler


@contextmanager
def begun_once(attempt: str) -> Iterator[bool]:
    """Mark an attempt as begun until the block ends.

    Yields False if it was begun before, by a process that has died.
    """
    worker = get_worker()

    def ask(question: str) -> Any:
        return sync(worker.loop, getattr(worker.scheduler, question), name=attempt)

    if ask("event_is_set"):
        yield False
        return
    ask("event_set")
    try:
        yield True
    finally:
        with suppress(OSError):  # nobody is left to be told
            ask("event_clear")


def had_begun(client: Any, attempt: str) -> bool:
    """Return whether a lost attempt had begun, and forget it.

    False as well if the scheduler does not answer.
    """
    try:
        begun = client.sync(client.scheduler.event_is_set, name=attempt)
        client.sync(client.scheduler.event_clear, name=attempt)
    except OSError:
        return False
    return bool(begun)


def in_work(client: Any, attempts: Iterable[str]) -> set[str]:
    """Return the names of attempts that have begun and are not over.

    All of them if the scheduler does not answer.
    """
    asked = list(attempts)

    async def ask() -> list[bool]:
        return [await client.scheduler.event_is_set(name=name) for name in asked]

    try:
        begun = client.sync(ask, callback_timeout=ANSWER_WITHIN)
    except (OSError, AttributeError):  # there is no connection
        return set(asked)
    return {name for name, has in zip(asked, begun, strict=True) if has}
