"""Random generators and threads of a user's code that outlive a call or an import."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from threading import Thread
from types import FrameType
from typing import Any

import numpy as np

from curvflow.flows.reads.hook import (
    Callers,
    Importing,
    close_eye,
    open_eye,
    server_threads,
    serves,
)
from curvflow.flows.reads.ledgers import by_name, held, merge
from curvflow.flows.reads.places import Sight


def generators() -> dict[str, Any]:
    """Return the states of the generators that all code of a process shares."""
    states: dict[str, Any] = {"random": random.getstate()[1]}
    state: Any = np.random.get_state(legacy=False)  # noqa: NPY002 # a user's may be it
    if state["bit_generator"] == "MT19937":
        words, place = state["state"]["key"], state["state"]["pos"]
        states["numpy.random"] = words.tobytes(), place
    if torch := sys.modules.get("torch"):
        bits = torch.get_rng_state().numpy().tobytes()
        states["torch"] = torch.initial_seed(), bits
    return states


MOST_TWISTS = 64


def moved(before: Mapping[str, Any]) -> Iterator[str]:
    """Name the generators that were drawn from without being seeded since."""
    after = generators()
    for name in before.keys() & after.keys():
        then, now = before[name], after[name]
        if now == then:
            continue
        if name == "numpy.random":
            then, now = _words(*then), _words(*now)
        drawn = now[0] == then[0] if name == "torch" else _goes_on(then, now)
        # Threads of Dask and Prefect draw from `random` whatever a user's code does.
        if drawn and not (name == "random" and serves()):
            yield f"{name} without a seed"


def _words(key: bytes, place: int) -> tuple[int, ...]:
    return (*np.frombuffer(key, dtype=np.uint32).tolist(), place)


def _goes_on(then: tuple[int, ...], now: tuple[int, ...]) -> bool:
    """Return whether a Mersenne twister comes to a state by drawing from another."""
    twister = random.Random()
    twister.setstate((3, then, None))
    for _ in range(MOST_TWISTS):
        if twister.getstate()[1][:-1] == now[:-1]:
            return True
        twister.setstate((3, (*twister.getstate()[1][:-1], 624), None))
        twister.getrandbits(32)
    return False


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
