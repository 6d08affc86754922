"""Systems that do the same in turns, for the benchmarks beside peers."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch

# Median of the seconds, and a number to check the answer by; or why there is none.
Found = tuple[float, float] | str

# From nothing to what is timed, and the number that its first call gave.
Prepare = Callable[[], tuple[Callable[[], object], float]]


@contextmanager
def failing(failed: dict[str, str], name: str) -> Iterator[None]:
    """Keep the reason of what fails: a peer may fail in any way, and is listed."""
    try:
        yield
    except Exception as error:
        failed[name] = f"{type(error).__name__}: {str(error)[:110]}"


def clock_of(device: str) -> Callable[[], float]:
    """Return a clock: of the process, or of the wall once a GPU has done its work."""
    if device == "cpu":
        return time.process_time

    def seconds() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    return seconds


def in_turns(
    systems: Mapping[str, Prepare],
    turns: int,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, Found]:
    """Return of each system the median of its seconds, and its number.

    The order is drawn anew for each turn, for the memory that one system frees is what
    the next one takes, or gives back before.

    Args:
        systems: what each does, by name; its first call is not timed.
        turns: calls of each that are, one system after another.
        clock: whose seconds count.
    """
    failed: dict[str, str] = {}
    ready: dict[str, tuple[Callable[[], object], float]] = {}
    times: dict[str, list[float]] = {name: [] for name in systems}
    for name, prepare in systems.items():
        with failing(failed, name):
            ready[name] = prepare()
    draws = random.Random(0)
    for _ in range(turns):
        for name in draws.sample(list(ready), len(ready)):
            call, _ = ready[name]
            begun = clock()
            call()
            times[name].append(clock() - begun)
    return {
        name: failed.get(name) or (statistics.median(times[name]), ready[name][1])
        for name in systems
    }
