"""Systems that do the same in turns, for the benchmarks beside peers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

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


def in_turns(systems: Mapping[str, Prepare], turns: int) -> dict[str, Found]:
    """Return of each system the median of its seconds of the process, and its number.

    Args:
        systems: what each does, by name; its first call is not timed.
        turns: calls of each that are, one system after another.
    """
    failed: dict[str, str] = {}
    ready: dict[str, tuple[Callable[[], object], float]] = {}
    times: dict[str, list[float]] = {name: [] for name in systems}
    for name, prepare in systems.items():
        with failing(failed, name):
            ready[name] = prepare()
    for _ in range(turns):
        for name, (call, _) in ready.items():
            begun = time.process_time()
            call()
            times[name].append(time.process_time() - begun)
    return {
        name: failed.get(name) or (statistics.median(times[name]), ready[name][1])
        for name in systems
    }
