"""How the end of a run reaches the processes that compute its tiles.

Whoever computes a tile for a run looks at the run's sign of life. Nothing else is
needed, so tiles end as well when the run was killed or its machine is lost.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from curvflow.errors import StoreError
from curvflow.flows.alive import Watch
from curvflow.flows.stopping import Stopping
from curvflow.stores.base import Store

LOOK_EVERY = 2.0


class Lookout:
    """Watches one run from a process that computes its tiles.

    Attributes:
        stop: set when the run is asked to end, or is no more.
        is_gone: whether it is no more.
    """

    def __init__(self, store: Store, begun: int, *, silence: float) -> None:
        """Prepare to watch.

        Args:
            store: holds the signs of life.
            begun: log number at which the run began.
            silence: seconds without a sign of life after which the run is gone.
        """
        self.stop, self.is_gone = Stopping(), False
        self._store, self._begun = store, begun
        self._watch = Watch(store, silence=silence)
        self._looked = float("-inf")

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look now and then, until the block ends.

        Yields:
            Nothing.
        """
        if self.is_gone:  # it may only have been paused
            self.stop.signal, self.is_gone = None, False
        over = threading.Event()
        thread = threading.Thread(
            target=self._look_on, args=(over,), name="curvflow-lookout", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def look(self) -> None:
        """Look once."""
        self._looked = time.monotonic()
        with suppress(StoreError):  # of a store that cannot be read the tile will tell
            asked = self._store.beats().get(self._begun, {}).get("stop")
            if isinstance(asked, int):
                self.stop.signal = asked
            elif self._watch.is_gone(self._begun):
                self.stop.signal, self.is_gone = int(signal.SIGTERM), True

    def _look_on(self, over: threading.Event) -> None:
        while not over.wait(max(0.0, self._looked + LOOK_EVERY - time.monotonic())):
            self.look()
