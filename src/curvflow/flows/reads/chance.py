"""Generators that all code of a process shares, and whether a call drew from them."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from curvflow.flows.reads.hook import serves


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
