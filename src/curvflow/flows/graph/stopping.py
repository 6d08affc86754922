"""End a run on request: after the work in hand, or at once on a second request."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from curvflow.errors import Stopped

ASKED = b"curvflow: stopping as soon as work is safe; once more to stop now\n"
LOOK_EVERY = 0.05
# Seconds within which SIGTERM may come again and mean the same: a service manager sends
# it to all processes, and a parent passes it on to its child.
SAME_WISH = 1.0


class Stopping:
    """The request to end a run.

    Attributes:
        signal: number of the signal; None without a request.
    """

    def __init__(self) -> None:
        self.signal: int | None = None

    def check(self) -> None:
        """Raise Stopped if the run has been asked to end."""
        if self.signal is not None:
            raise Stopped(self.signal)

    def sleep(self, seconds: float) -> None:
        """Wait, but no longer than until the run is asked to end."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.check()
            time.sleep(LOOK_EVERY)


@contextmanager
def stopping(stop: Stopping) -> Iterator[None]:
    """Take the first SIGINT or SIGTERM as a request; the second acts as it always does.

    Outside the main thread signals cannot be taken, and what ignores a signal goes on
    to ignore it.
    """
    before: dict[int, Any] = {}
    since, owner = 0.0, os.getpid()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def asked(number: int, _frame: FrameType | None) -> None:
        nonlocal since
        if os.getpid() != owner:  # a pool's child, which its parent ends by SIGTERM
            restore()
            signal.raise_signal(number)
        elif stop.signal is None:
            stop.signal, since = number, time.monotonic()
            os.write(2, ASKED)  # a handler may not wait for the lock of a stream
        elif number != signal.SIGTERM or time.monotonic() - since > SAME_WISH:
            restore()
            signal.raise_signal(number)

    for number in _heard():
        before[number] = signal.signal(number, asked)
    try:
        yield
    finally:
        restore()


def _heard() -> list[int]:
    """Return the signals that can be taken, and that are not ignored."""
    if threading.current_thread() is not threading.main_thread():
        return []
    unheard = (signal.SIG_IGN, None)
    both = (signal.SIGINT, signal.SIGTERM)
    return [number for number in both if signal.getsignal(number) not in unheard]
