"""Threads of a user's that go on when a call or an import is over."""

from __future__ import annotations

import threading
from collections.abc import Collection
from threading import Thread
from types import FrameType

from curvflow.flows.reads.hook import (
    Callers,
    Importing,
    close_eye,
    open_eye,
    server_threads,
)
from curvflow.flows.reads.ledgers import by_name, held, merge
from curvflow.flows.reads.places import Sight


class Background:
    """Threads of a user's that go on when a call or an import is over.

    What they read counts for all that reach the modules of that call.
    """

    frames: frozenset[FrameType] = frozenset()
    thread = -1

    def __init__(self) -> None:
        self._modules: dict[Thread, Collection[str]] = {}

    def follow(self, modules: Collection[str], threads: Collection[Thread]) -> None:
        """Look on while some threads live, but for those of servers."""
        lasting = dict.fromkeys(set(threads) - set(server_threads()), modules)
        known = self._modules | lasting
        self._turn_to({t: names for t, names in known.items() if t.is_alive()})

    def drop(self) -> None:
        """Follow no thread any more."""
        self._turn_to({})

    def _turn_to(self, modules: dict[Thread, Collection[str]]) -> None:
        was_open, self._modules = bool(self._modules), modules
        if bool(modules) != was_open:
            (close_eye if was_open else open_eye)(self)

    def note(self, name: str, sight: Sight, _: Callers) -> None:
        """Take down what one of the threads reads."""
        for module in self._modules.get(threading.current_thread(), ()):
            merge(held[module], {name: sight})

    def written(self, name: str, before: Sight, *, anew: bool) -> None:
        """Do nothing."""

    def imported(self, modules: list[str], how: Importing, callers: Callers) -> None:
        """Take down what computed names lead to; other imports in threads are rare."""
        if how.is_computed:
            by_name.update(modules)

    def failed(self, error: Exception) -> None:
        """Do nothing."""


background = Background()
