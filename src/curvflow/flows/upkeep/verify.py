"""Verification: read everything a store holds and compare it with its digests."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from curvflow.errors import CorruptPayloadError
from curvflow.schemas.records.receipts import Receipt
from curvflow.stores.base import Index, Store
from curvflow.stores.trash import Item, trash_folder

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Fault:
    """A payload that fails verification.

    Attributes:
        payload: its id.
        problem: for people.
        item: its files; None if missing.
        lost: the live results in it, which have to be computed again.
    """

    payload: str
    problem: str
    item: Item | None
    lost: Sequence[Receipt]


@dataclass(frozen=True)
class Verification:
    """The outcome of a verification.

    Attributes:
        faults: payloads that failed.
        torn: numbers of entries of the log that are torn or lost.
        collided: numbers at which copies of the log that went apart were merged.
        payloads: number of payloads read.
        results: number of live results compared.
        evicted: number of live results whose payloads collection has removed.
        bytes: read from the disk.
        seconds: spent.
        mended: whether faulty results were struck off and moved away.
    """

    faults: Sequence[Fault]
    torn: Sequence[int]
    collided: Sequence[int]
    payloads: int
    results: int
    evicted: int
    bytes: int
    seconds: float
    mended: bool

    @property
    def is_well(self) -> bool:
        """Return whether nothing is wrong."""
        return not self.faults and not self.torn

    @property
    def lost(self) -> list[Receipt]:
        """Return the results that have to be computed again."""
        return [receipt for fault in self.faults for receipt in fault.lost]

    def as_json(self) -> dict[str, Any]:
        """Return the verdict in the form of `curvflow verify --json`."""
        return {
            "well": self.is_well,
            "payloads": self.payloads,
            "results": self.results,
            "evicted": self.evicted,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            "torn_commits": list(self.torn),
            "collided_commits": list(self.collided),
            "faults": [
                {"payload": fault.payload, "problem": fault.problem}
                for fault in self.faults
            ],
            "recomputed": [
                {
                    "stage": receipt.stage,
                    "coords": dict(receipt.coords),
                    "seconds": receipt.seconds,
                }
                for receipt in self.lost
            ],
            "mended": self.mended,
        }


def verify(
    store: Store, *, mend: bool = True, progress: Progress | None = None
) -> Verification:
    """Read every payload of a store once, one at a time, and compare all digests.

    Args:
        store: all studies in it.
        mend: strike off the results of payloads that are unsound and move these to
            quarantine, and replace torn entries of the log with tombstones.
        progress: called with the bytes read so far and in all.

    Returns:
        The faults, and counts of what was read.

    Raises:
        StoreError: the store cannot be read, or not be written with `mend`.
    """
    started = time.perf_counter()
    torn = store.torn_entries()
    # In this order: a result committed meanwhile is not checked.
    index = store.index()
    by_payload = _by_payload(index)
    items = {item.payload: item for item in store.files.items("payloads")}
    # What lies in the trash is read until it is removed, and computed again after that.
    trash = {item.payload: item for item in store.files.items("trash")}
    named = [item for name, item in (trash | items).items() if name in by_payload]
    suspects = _missing(store, index, by_payload, items)
    suspects += _unsound(store, index, by_payload, named, progress)
    faults = [
        fault for suspect in suspects if (fault := _settled(store, suspect, mend=mend))
    ]
    if mend:
        store.write_tombstones(torn)
    return Verification(
        faults,
        torn,
        store.collided_entries(),
        len(named),
        sum(len(by_payload[item.payload]) for item in named),
        _count_evicted(index, items),
        sum(item.bytes for item in named),
        time.perf_counter() - started,
        mended=mend and bool(faults or torn),
    )


def _unsound(
    store: Store,
    index: Index,
    by_payload: Mapping[str, Sequence[Receipt]],
    items: Sequence[Item],
    progress: Progress | None,
) -> list[Fault]:
    faults, read, total = [], 0, sum(item.bytes for item in items)
    for item in items:
        name = item.payload
        problem = _problem(store, name, by_payload[name])
        if problem and store.present([name]):  # else it was collected meanwhile
            # Results whose payloads collection has removed stand without them.
            lost = [] if name in index.evicted else by_payload[name]
            faults.append(Fault(name, problem, item, lost))
        read += item.bytes
        if progress is not None:
            progress(read, total)
    return faults


def _by_payload(index: Index) -> dict[str, list[Receipt]]:
    receipts: defaultdict[str, list[Receipt]] = defaultdict(list)
    for receipt in index.receipts.values():
        if receipt.payload:
            receipts[receipt.payload].append(receipt)
    return dict(receipts)


def _missing(
    store: Store,
    index: Index,
    by_payload: dict[str, list[Receipt]],
    items: dict[str, Item],
) -> list[Fault]:
    elsewhere = by_payload.keys() - items.keys() - index.evicted
    gone = elsewhere - store.present(elsewhere)
    return [
        Fault(name, f"payload {name[:12]}: missing", None, receipts)
        for name, receipts in by_payload.items()
        if name in gone
    ]


def _problem(store: Store, payload: str, receipts: Sequence[Receipt]) -> str:
    try:
        store.verify_payload(payload, receipts)
    except CorruptPayloadError as error:
        return str(error)
    return ""


def _count_evicted(index: Index, items: dict[str, Item]) -> int:
    gone = index.evicted - items.keys()
    return sum(receipt.payload in gone for receipt in index.receipts.values())


def _settled(store: Store, suspect: Fault, *, mend: bool) -> Fault | None:
    """Check a fault again, as a run may have repaired it meanwhile."""
    index, name = store.index(), suspect.payload
    receipts = [
        receipt for receipt in index.receipts.values() if receipt.payload == name
    ]
    problem = _problem(store, name, receipts)
    is_evicted = name in index.evicted
    if not problem or (is_evicted and not store.present([name])):
        return None
    lost = [] if is_evicted else receipts
    fault = replace(suspect, problem=problem, lost=lost)
    if mend:
        _mend(store, fault, index.number)
    return fault


def _mend(store: Store, fault: Fault, seen: int) -> None:
    """Strike off first: a payload that goes before its results would be missing."""
    if fault.lost:
        keys = [receipt.key for receipt in fault.lost]
        store.retire(keys, fault.problem, payload=fault.payload, upto=seen)
    if fault.item is not None:
        store.files.move(fault.item, trash_folder("quarantine", store.index().number))
