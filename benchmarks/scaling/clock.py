"""Where time goes: seconds of calls, by label."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from curvflow.flows.plan.plan import Plan
from curvflow.flows.run.context import Unwatched


class Clock:
    """Times calls.

    Attributes:
        seconds: wall time by label.
        calls: their number by label.
    """

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.calls: Counter[str] = Counter()

    @contextmanager
    def on(self, owner: Any, name: str, label: str) -> Iterator[None]:
        """Time every call of a function until the block ends.

        Args:
            owner: module, class or object that holds it.
            name: of the function.
            label: what its seconds are added to.

        Yields:
            Nothing.
        """
        function: Callable[..., Any] = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[label] += time.perf_counter() - started
                self.calls[label] += 1

        with mock.patch.object(owner, name, timed):
            yield


class Lasting(Unwatched):
    """Times a run from when its runner is there to when all is computed.

    Attributes:
        wall: seconds.
        cpu: processor time of this process, all its threads.
    """

    def begin(self, plan: Plan) -> None:
        """Start the time."""
        self._began = time.perf_counter(), time.process_time()

    def end(self) -> None:
        """Stop the time."""
        self.wall = time.perf_counter() - self._began[0]
        self.cpu = time.process_time() - self._began[1]


def load() -> str:
    """Return how busy the machine is, for the reader of a table."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
