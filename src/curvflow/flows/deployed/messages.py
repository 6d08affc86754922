"""What is sent to Prefect's API while a study computes, beside it and under a guard."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from queue import SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

Message = Callable[["SyncPrefectClient"], object]

# Seconds that the last messages may take before the run goes on without them.
PATIENCE = 10.0


class Messages:
    """Sends in a thread of its own, in order, until sending has failed once.

    Attributes:
        is_lost: whether it has failed.
    """

    def __init__(self, lost: Callable[[str], None]) -> None:
        """Begin to send.

        Args:
            lost: told why sending has failed; from any thread, once.
        """
        self.is_lost = False
        self._lost, self._lock = lost, threading.Lock()
        self._queue: SimpleQueue[Message | None] = SimpleQueue()
        settings = copy_context()  # Prefect's are in there
        self._thread = threading.Thread(
            target=settings.run, args=(self._work,), name="curvflow-page", daemon=True
        )
        self._thread.start()

    def send(self, message: Message) -> None:
        """Send one message as soon as those before it are sent.

        Args:
            message: calls the client it is given.
        """
        if not self.is_lost:
            self._queue.put(message)

    def close(self) -> None:
        """Wait for the last message, within reason."""
        self._queue.put(None)
        self._thread.join(PATIENCE)
        if self._thread.is_alive():
            self.lose("no answer")

    def _work(self) -> None:
        from prefect.client.orchestration import get_client

        # Whatever goes wrong with the page, the study goes on.
        try:
            with get_client(sync_client=True) as client:
                while (message := self._queue.get()) and not self.is_lost:
                    message(client)
        except Exception as error:
            self.lose(" ".join(str(error).split()) or type(error).__name__)

    def lose(self, reason: str) -> None:
        """Send nothing more; whoever is to hear of it hears it once."""
        with self._lock:
            is_first, self.is_lost = not self.is_lost, True
        if is_first:
            self._lost(reason)


def lost(why: str) -> str:
    """Say that nothing more can be sent."""
    return f"Prefect's server is lost ({why}); the study goes on, its page does not"
