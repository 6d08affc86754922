"""Messages to Prefect's API, sent from a separate thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from queue import SimpleQueue
from typing import TYPE_CHECKING

from curvflow.flows.deployed.server import patience
from curvflow.schemas.words import error_line

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

Message = Callable[["SyncPrefectClient"], object]

# Seconds that the last messages may take before the run goes on without them.
PATIENCE = 10.0


class Messages:
    """Sends messages in order, until sending fails once.

    Attributes:
        is_lost: whether sending has failed.
    """

    def __init__(self, on_lost: Callable[[str], None]) -> None:
        self.is_lost = False
        self._on_lost, self._lock = on_lost, threading.Lock()
        self._queue: SimpleQueue[Message | None] = SimpleQueue()
        settings = copy_context()  # Prefect's are in there
        self._thread = threading.Thread(
            target=settings.run, args=(self._work,), name="curvflow-page", daemon=True
        )
        self._thread.start()

    def send(self, message: Message) -> None:
        """Send a message, a function of the client, after those before it."""
        if not self.is_lost:
            self._queue.put(message)

    def close(self) -> None:
        """Wait for the last message, but not for long."""
        self._queue.put(None)
        self._thread.join(patience(PATIENCE))
        if self._thread.is_alive():
            self.lose("no answer")

    def _work(self) -> None:
        from prefect.client.orchestration import get_client

        try:
            with get_client(sync_client=True) as client:
                while (message := self._queue.get()) and not self.is_lost:
                    message(client)
        # Whatever goes wrong with the page, the study goes on.
        except Exception as error:
            self.lose(error_line(error))

    def lose(self, reason: str) -> None:
        """Send nothing more, and report the reason once."""
        with self._lock:
            is_first, self.is_lost = not self.is_lost, True
        if is_first:
            self._on_lost(reason)


def lost_message(reason: str) -> str:
    """Return the warning that the server is lost."""
    return f"Prefect's server is lost ({reason}); the study goes on, its page does not"
