"""What collection leaves alone: the payloads that runs at work, pins and runs need."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from curvflow.flows.graph.heartbeats import SILENCE, Watch, process
from curvflow.schemas.records.receipts import Pin, Receipt, RunRecord
from curvflow.stores.base import Index, Store


@dataclass(frozen=True)
class Roots:
    """Payloads by who needs them.

    Attributes:
        live: runs that are at work, or may be.
        working: payloads that these take or have made.
        pins: payloads of pinned runs, by the name of the pin.
        kept: payloads of the latest runs of each study.
        since: when the first of the live runs began, by the store's clock.
        unknown: a live run that has not said yet what it takes.
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


def find_roots(store: Store, index: Index, *, keep_runs: int, grace: float) -> Roots:
    """Find what a collection may not touch.

    Args:
        store: tells which runs are at work and what they take.
        index: its log.
        keep_runs: number of finished runs to keep per study.
        grace: seconds that a run without a sign of life is given.

    Returns:
        The roots.
    """
    live = live_runs(store, index, grace=grace)
    plans = {run.begun: _planned(store, run) for run in live}
    first = min((run.begun for run in live), default=index.number + 1)
    made = [r for (number, _), r in index.rows.items() if number > first]
    kept = list(_kept(index, {run.begun for run in live}, keep_runs))
    unfinished = [run for run in kept if run.ended is None]
    return Roots(
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
    """Return the runs that are at work, or may be.

    Args:
        store: holds the signs of life.
        index: its log.
        grace: seconds, by the store's clock, after which a run without a sign of life
            is taken for gone, and one elsewhere whose sign has not moved.

    Returns:
        In the order in which they began.
    """
    watch, room = Watch(store), store.files
    now, signs = room.clock(), store.heartbeats()
    times = {int(item.payload): item.time for item in room.items("runs")}

    def is_live(run: RunRecord) -> bool:
        sign = signs.get(run.begun)
        if sign is None:  # it may have begun a moment ago
            return now - room.entry_time(run.begun) < grace
        if watch.is_gone(run.begun):
            return False
        silent = now - times.get(run.begun, now)
        return process(sign) != "elsewhere" or silent < max(grace, SILENCE)

    return [run for run in index.runs if run.ended is None and is_live(run)]


def _planned(store: Store, run: RunRecord) -> Sequence[str] | None:
    plans = [n["payloads"] for n in store.journal(run) if n.get("event") == "plan"]
    return [payload for some in plans for payload in some] if plans else None


def _kept(index: Index, live: set[int], keep_runs: int) -> Iterator[RunRecord]:
    """Yield the last finished runs per study, and later ones that were cut short."""
    by_study: defaultdict[str, list[RunRecord]] = defaultdict(list)
    for run in index.runs:
        by_study[run.study].append(run)
    for runs in by_study.values():
        finished = [run for run in runs if run.ended is not None]
        yield from finished[max(0, len(finished) - keep_runs) :]
        last = finished[-1].begun if finished else 0
        # The next run goes on from what they have made.
        yield from (run for run in runs if run.begun > last and run.begun not in live)


def _results(index: Index, runs: Sequence[RunRecord]) -> Iterator[Receipt]:
    by_end = {run.ended: run for run in index.runs}
    places: set[tuple[int, int]] = set()
    for run in runs:
        for name, table in run.tables.items():
            origin = by_end.get(table.get("same_as", run.ended))
            # The run that said the same may be torn out of the log.
            nodes = origin.tables[name]["nodes"] if origin else ()
            places.update(tuple(place) for _, place, _ in nodes if place)
    yield from (index.rows[place] for place in places if place in index.rows)
    cut_short = [run.begun for run in runs if run.ended is None]
    if cut_short:
        for (number, _), receipt in index.rows.items():
            if _is_of(receipt, number, cut_short):
                yield receipt


def _is_of(receipt: Receipt, number: int, runs: Sequence[int]) -> bool:
    """Whether one of these runs has made a result; old ones do not say which did."""
    return receipt.run in runs if receipt.run else number > min(runs)


def _payloads(index: Index, receipts: Iterable[Receipt]) -> frozenset[str]:
    found: set[str | None] = set()
    for receipt in receipts:
        found.add(receipt.payload)
        live = index.receipts.get(receipt.key)
        if live is not None and live.digest == receipt.digest:
            found.add(live.payload)  # computed again, and the same
    return frozenset(payload for payload in found if payload)
