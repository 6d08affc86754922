"""How often progress is worth telling: a fixed number of times, however long it is."""

from __future__ import annotations

import time
from collections.abc import Callable

STEPS = 20
SECONDS_APART = 3.0


class Steps:
    """Lets a number through when it has grown by enough since the last one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin at nothing.

        Args:
            clock: in seconds.
        """
        self._clock = clock
        self._told, self._at = 0.0, clock()

    def is_due(self, percent: float) -> bool:
        """Return whether progress is to be told now, and take it as told.

        Args:
            percent: from 0 to 100.

        Returns:
            True for at most 20 calls, 3 seconds apart, while progress grows.
        """
        now = self._clock()
        is_due = percent - self._told >= 100 / STEPS and now - self._at >= SECONDS_APART
        if is_due:
            self._told, self._at = percent, now
        return is_due
