"""Heartbeats of runs: written by a run, watched by others.

A run replaces its heartbeat, a counter, every few seconds. An observer judges only
whether the counter moved while its own clock went on; clocks are never compared. A
process of this machine that has ended is known at once.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from curvflow.errors import StoreError
from curvflow.flows.graph.stopping import Stopping
from curvflow.schemas.records.receipts import RunRecord
from curvflow.stores.base import Store

SILENCE = 60.0
BEATS_PER_SILENCE = 6
LOOK_EVERY = 0.5  # seconds after which workers learn of a request to end, at most

Process = Literal["running", "paused", "ended", "elsewhere"]


class HeartbeatMonitor:
    """Watches heartbeats, to see which runs are gone."""

    def __init__(
        self,
        store: Store,
        *,
        silence: float = SILENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._silence, self._clock = store, silence, clock
        self._seen: dict[int, tuple[int, float]] = {}

    def is_gone(self, begun: int) -> bool:
        """Return whether a run has ended, died, or been silent for too long.

        A run seen for the first time is not gone, unless its process has ended.
        """
        sign = self._store.heartbeats().get(begun)
        if sign is None or process(sign) == "ended":
            return True
        now, count = self._clock(), sign["count"]
        last, since = self._seen.get(begun, (None, now))
        if last != count:
            self._seen[begun] = count, now
            return False
        return now - since > self._silence


@contextmanager
def beating(
    store: Store, run: RunRecord, stop: Stopping, *, silence: float
) -> Iterator[None]:
    """Write heartbeats until the block ends.

    Once the run is asked to end, they say so to its workers. After `silence` seconds
    without one, others take the run for gone.
    """
    who, over = _identity(), threading.Event()

    def beat(count: int) -> None:
        asked = {} if stop.signal is None else {"stop": stop.signal}
        with suppress(StoreError):  # a full disk is met by what publishes
            store.write_heartbeat(run, {"count": count, **who, **asked})

    def beat_on() -> None:
        count, has_said = 0, False
        last = time.monotonic()
        while not over.wait(min(LOOK_EVERY, silence / BEATS_PER_SILENCE)):
            is_news = stop.signal is not None and not has_said
            if is_news or time.monotonic() - last >= silence / BEATS_PER_SILENCE:
                count, last, has_said = count + 1, time.monotonic(), is_news or has_said
                beat(count)

    beat(0)
    thread = threading.Thread(target=beat_on, name="curvflow-beat", daemon=True)
    thread.start()
    # Who it was tells nothing any more, and a store may be passed on.
    gone = {"host": "", "count": -1, "over": True}
    last: dict[str, Any] | None = {**who, **gone}
    try:
        yield
        last = None  # the run's end is an entry of the log
    finally:
        over.set()
        thread.join()
        with suppress(StoreError):
            store.write_heartbeat(run, None)  # first, for a full disk takes no new one
            if last is not None:
                store.write_heartbeat(run, last)


def at_work(store: Store) -> list[dict[str, Any]]:
    """Describe the runs that have heartbeats, one row each.

    `state` is `running`, `paused`, or, for a process of another machine, `silent` if
    its counter did not move while this function watched; `claimed` counts the nodes
    claimed and not done.
    """
    index, signs, claimed = store.index(), store.heartbeats(), store.claims.holders()
    done = store.live(claimed)
    held = Counter(run for key, run in claimed.items() if key not in done)
    elsewhere = {begun for begun, sign in signs.items() if process(sign) == "elsewhere"}
    moving = _moving(store, elsewhere)
    rows = []
    for run in index.runs:
        if run.begun not in signs or run.ended is not None:
            continue
        sign = signs[run.begun]
        state: str = process(sign)
        if state == "elsewhere":
            state = "running" if run.begun in moving else "silent"
        if state != "ended":
            rows.append(
                {
                    "study": run.study,
                    "run": run.number,
                    "started": run.started,
                    "state": state,
                    "host": sign["host"],
                    "pid": sign["pid"],
                    "claimed": held[run.begun],
                }
            )
    return rows


def in_work(store: Store) -> set[str]:
    """Return the keys that runs have claimed whose end is not known, done or not."""
    signs = store.heartbeats().items()
    if not (alive := {begun for begun, sign in signs if process(sign) != "ended"}):
        return set()
    return {key for key, run in store.claims.holders().items() if run in alive}


def _moving(store: Store, runs: Collection[int]) -> set[int]:
    """Watch runs of other machines for a little longer than one beat."""
    before = {begun: sign["count"] for begun, sign in store.heartbeats().items()}
    until = time.monotonic() + 1.2 * SILENCE / BEATS_PER_SILENCE
    moved: set[int] = set()
    while not moved.issuperset(runs) and time.monotonic() < until:
        time.sleep(0.5)
        now = store.heartbeats()
        moved = {
            run for run in runs if run in now and now[run]["count"] != before.get(run)
        }
    return moved


def process(sign: Mapping[str, Any]) -> Process:
    """Return the state of the process that wrote a heartbeat, as far as known."""
    if sign.get("over"):
        return "ended"
    here = _identity()
    if here["boot"] is None or sign.get("boot") != here["boot"]:
        return "elsewhere"
    state, started = _state(sign["pid"])
    if started is None or started != sign.get("started") or state in "ZX":
        return "ended"
    return "paused" if state in "Tt" else "running"


def _identity() -> dict[str, Any]:
    """Identify this process; `boot` also holds its machine and its space of numbers."""
    pid, boot = os.getpid(), None
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        boot += " " + str(Path("/proc/self/ns/pid").readlink())
    return {
        "host": socket.gethostname(),
        "boot": boot,
        "pid": pid,
        "started": _state(pid)[1],
    }


def _state(pid: int) -> tuple[str, str | None]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "", None
    fields = text.rpartition(")")[2].split()  # the name before may hold anything
    return fields[0], fields[19]
