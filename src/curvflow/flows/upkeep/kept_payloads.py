"""The payloads that collection keeps: those of live runs, pins and last runs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from curvflow.flows.graph.heartbeats import SILENCE, HeartbeatMonitor, process
from curvflow.schemas.records.receipts import Pin, Receipt, RunRecord
from curvflow.stores.base import Index, Store


@dataclass(frozen=True)
class KeptPayloads:
    """Payloads that stay, by the reason.

    Attributes:
        live: runs that are or may be alive.
        working: payloads that these read or have made.
        pins: payloads of pinned runs, by the name of the pin.
        kept: payloads of the latest runs of each study.
        since: the time when the first live run began, by the store's clock.
        unknown: a live run that has not recorded its plan yet.
    """

    live: Sequence[RunRecord]
    working: frozenset[str]
    pins: Mapping[str, frozenset[str]]
    kept: frozenset[str]
    since: float = math.inf
    unknown: RunRecord | None = None

    @property
    def pinned(self) -> frozenset[str]:
        """Payloads of pinned runs."""
        return frozenset[str]().union(*self.pins.values())


def find_kept_payloads(
    store: Store, index: Index, *, keep_runs: int, grace: float
) -> KeptPayloads:
    """Return the payloads that a collection keeps, and why."""
    live = live_runs(store, index, grace=grace)
    plans = {run.begun: _planned(store, run) for run in live}
    first = min((run.begun for run in live), default=index.number + 1)
    made = [r for (number, _), r in index.rows.items() if number > first]
    kept = list(_kept(index, {run.begun for run in live}, keep_runs))
    unfinished = [run for run in kept if run.ended is None]
    return KeptPayloads(
        live,
        _payloads(index, made).union(*(plan or () for plan in plans.values())),
        {pin.name: _pinned(index, pin) for pin in index.pins.values()},
        _payloads(index, _results(index, kept)).union(
            *(_planned(store, run) or () for run in unfinished)
        ),
        min((store.files.entry_time(run.begun) for run in live), default=math.inf),
        next((run for run in live if plans[run.begun] is None), None),
    )


def _pinned(index: Index, pin: Pin) -> frozenset[str]:
    runs = [run for run in index.runs if run.begun == pin.begun]
    return _payloads(index, _results(index, runs))


def live_runs(store: Store, index: Index, *, grace: float) -> list[RunRecord]:
    """Return the runs that are or may be alive, in order; `grace` is in seconds."""
    watch, room = HeartbeatMonitor(store), store.files
    now, heartbeats = room.clock(), store.heartbeats()
    times = {int(item.payload): item.time for item in room.items("runs")}

    def is_live(run: RunRecord) -> bool:
        heartbeat = heartbeats.get(run.begun)
        if heartbeat is None:  # it may have begun a moment ago
            return now - room.entry_time(run.begun) < grace
        if watch.is_gone(run.begun):
            return False
        silent = now - times.get(run.begun, now)
        return process(heartbeat) != "elsewhere" or silent < max(grace, SILENCE)

    return [run for run in index.runs if run.ended is None and is_live(run)]


def _planned(store: Store, run: RunRecord) -> Sequence[str] | None:
    plans = [
        notice["payloads"]
        for notice in store.journal(run)
        if notice.get("event") == "plan"
    ]
    return [payload for payloads in plans for payload in payloads] if plans else None


def _kept(index: Index, live: set[int], keep_runs: int) -> Iterator[RunRecord]:
    """Yield the last finished runs per study, and later interrupted ones."""
    by_study: defaultdict[str, list[RunRecord]] = defaultdict(list)
    for run in index.runs:
        by_study[run.study].append(run)
    for runs in by_study.values():
        finished = [run for run in runs if run.ended is not None]
        yield from finished[max(0, len(finished) - keep_runs) :]
        last = finished[-1].begun if finished else 0
        # The next run resumes from their results.
        yield from (run for run in runs if run.begun > last and run.begun not in live)


def _results(index: Index, runs: Sequence[RunRecord]) -> Iterator[Receipt]:
    by_end = {run.ended: run for run in index.runs}
    places: set[tuple[int, int]] = set()
    for run in runs:
        for name, table in run.tables.items():
            origin = by_end.get(table.get("same_as", run.ended))
            # The run with the same table may be torn out of the log.
            nodes = origin.tables[name]["nodes"] if origin else ()
            places.update(tuple(place) for _, place, _ in nodes if place)
    yield from (index.rows[place] for place in places if place in index.rows)
    cut_short = [run.begun for run in runs if run.ended is None]
    if cut_short:
        for (number, _), receipt in index.rows.items():
            if _is_of(receipt, number, cut_short):
                yield receipt


def _is_of(receipt: Receipt, number: int, runs: Sequence[int]) -> bool:
    """Return whether one of these runs made a result; old receipts do not name it."""
    return receipt.run in runs if receipt.run else number > min(runs)


def _payloads(index: Index, receipts: Iterable[Receipt]) -> frozenset[str]:
    payloads: set[str | None] = set()
    for receipt in receipts:
        payloads.add(receipt.payload)
        live = index.receipts.get(receipt.key)
        if live is not None and live.digest == receipt.digest:
            payloads.add(live.payload)  # computed again, and the same
    return frozenset(payload for payload in payloads if payload)
