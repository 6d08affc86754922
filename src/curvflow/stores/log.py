"""The commit log and its folding into an Index.

The log is the truth of a store: entries numbered without gaps, created exclusively and
never changed or removed. Of two receipts with one key the first is live, until an entry
retires it. An entry that a loss of power has torn, or taken away from under a later
one, is void: it is reported, its nodes run again, and its number stays taken.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from threading import RLock
from typing import Any

from curvflow.errors import StoreError
from curvflow.schemas.long_lived import paused_gc
from curvflow.schemas.records.receipts import (
    CodeRecord,
    Pin,
    Receipt,
    RunRecord,
    Settlement,
)
from curvflow.stores.base import Index
from curvflow.stores.commits import Commits
from curvflow.stores.log_entries import (
    Entry,
    TornEntryError,
    checksum,
    decode,
    encode,
    pack_receipts,
    unpack_receipts,
)

EVENTS = ("retired", "settled", "evicted", "pinned", "unpinned")
MARKED = ("run-begun", *EVENTS)

# A taken number that stays unseen means a network file system's cache; 0.05 s each.
MAX_ATTEMPTS = 200
# Times to ask again for an entry that is missing before one that is there.
MAX_REREADS = 4

_logger = logging.getLogger("curvflow")
# Void entries told of, by store: a process that opens it again need not say so twice.
_reported: defaultdict[str, set[int]] = defaultdict(set)


class Log:
    """Incremental reader and writer of the commit log; thread-safe."""

    def __init__(self, commits: Commits, location: str) -> None:
        """Start with nothing read."""
        self._commits, self._location = commits, location
        self._index, self._lock = Index(), RLock()
        self._is_shared = False  # the index was handed out, and is changed no more

    def index(self, as_of: int | None = None) -> Index:
        """Return the folded log, up to entry `as_of` if given; nobody may change it."""
        with self._lock:
            self._refresh()
            if as_of is not None and as_of < self._index.number:
                past = Index()
                self._read_into(past, as_of)
                return past
            self._is_shared = True
            return self._index

    def live(self, keys: Iterable[str]) -> dict[str, Receipt]:
        """Return the live receipts of these keys, without evicted payloads."""
        with self._lock:
            self._refresh()
            index = self._index
            receipts = ((key, index.receipts.get(key)) for key in keys)
            return {k: r for k, r in receipts if r and r.payload not in index.evicted}

    def index_of(self, keys: Iterable[str]) -> Index:
        """Return an index of these keys alone: live receipts and evicted payloads."""
        with self._lock:
            self._refresh()
            whole = self._index
            receipts = {
                key: whole.receipts[key] for key in keys if key in whole.receipts
            }
            named = {
                receipt.payload for receipt in receipts.values() if receipt.payload
            }
            return Index(whole.number, receipts, evicted=named & whole.evicted)

    def commit(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        """Append receipts whose keys are not live; return the live one of each key."""
        # A key that is live with another digest is recorded as a twin: the same
        # action gave two results, which audits report.
        live: list[Receipt] = []

        def build(index: Index) -> Entry | None:
            fresh = {receipt.key: receipt for receipt in reversed(receipts)}
            live[:] = [_live(index, fresh[receipt.key]) for receipt in receipts]
            return _receipts_entry(receipts, live)

        self.append(build)
        return live

    def append(self, build: Callable[[Index], Entry | None]) -> int:
        """Append `build(index)`, called again after a lost race; return the number."""
        with self._lock:
            return self._append(build)

    def torn_entries(self) -> list[int]:
        """Return the numbers of void entries that have no tombstone."""
        with self._lock:
            self._refresh()
            return [number for number in self._index.void if self._read(number) is None]

    def collided_entries(self) -> list[int]:
        """Return the numbers at which copies of the log that went apart were merged."""
        with self._lock:
            self._refresh()
            index = self._index
            lost = {
                number
                for number, noted in self._commits.marks()
                if index.marked.get(number) != noted
            }
            return sorted((lost | set(index.breaks)) - set(index.void))

    def write_tombstones(self, numbers: Iterable[int]) -> None:
        """Replace torn or missing entries with tombstones."""
        with self._lock:
            for number in numbers:
                data = encode(number, {"type": "void"})
                # A lost entry that was only slow to be listed keeps its number so.
                if (
                    not self._commits.create(number, data)
                    and self._read(number) is None
                ):
                    self._commits.replace(number, data)

    def _append(self, build: Callable[[Index], Entry | None]) -> int:
        unseen = 0
        while True:
            self._refresh()
            entry = build(self._index)
            if entry is None:
                return self._index.number
            number = self._index.number + 1
            data = encode(number, entry, after=self._index.checksum)
            if self._commits.create(number, data):
                if entry["type"] in MARKED:
                    self._commits.mark(number, checksum(data))
                self._read_into(self._own_index(), number)
                return number
            # Names may be listed late; requested by name the entry may exist.
            self._refresh(number if self._read(number) else 0)
            if self._index.number < number:
                unseen += 1
                self._wait(number, unseen)

    def _wait(self, number: int, times: int) -> None:
        if times > MAX_ATTEMPTS:
            raise StoreError(
                f"{self._location}: expected commit {number}, which is taken, to be "
                "listed, got none. Check the file system's cache settings."
            )
        time.sleep(0.05)

    def _refresh(self, known: int = 0) -> None:
        """Read to the end of the listing, or to an entry known to exist."""
        last = max([known, *self._commits.after(self._index.number)])
        if last > self._index.number:
            self._read_into(self._own_index(), last)

    def _own_index(self) -> Index:
        """Return the index to fold into: a copy if the present one was handed out."""
        if self._is_shared:
            self._index, self._is_shared = self._index.copy(), False
        return self._index

    def _read_into(self, index: Index, last: int) -> None:
        # A folder that grows while it is listed may lack a name and have the next, so
        # every entry is requested by its name, and more than once.
        with paused_gc():
            for number in range(index.number + 1, last + 1):
                entry = self._read(number) or self._read_late(number)
                if entry is None:
                    index.void.append(number)
                    self._report(number)
                else:
                    FOLDS[entry["type"]](index, number, entry)
                    if entry["type"] in EVENTS:
                        index.events.append((number, entry))
                _follow(index, number, entry)
                index.number = number

    def _read(self, number: int) -> Entry | None:
        try:
            data = self._commits.read(number)
            return None if data is None else decode(number, data)
        except TornEntryError:
            return None

    def _read_late(self, number: int) -> Entry | None:
        """Read a missing entry with a successor again: names may be listed late."""
        for _ in range(MAX_REREADS):
            if self._commits.read(number) is not None:
                break
            time.sleep(0.05)
        return self._read(number)

    def _report(self, number: int) -> None:
        reported = _reported[self._location]
        if number not in reported:
            _logger.warning(
                "curvflow: %s: commit %d is torn or missing: what it held, if "
                "anything, will run again; `curvflow verify` marks it as void",
                self._location,
                number,
            )
            reported.add(number)


def _follow(index: Index, number: int, entry: Entry | None) -> None:
    """Note which entry this one is, and whether it was written after the last one."""
    if entry is None or entry["type"] == "void":
        index.checksum = ""
        return
    if index.checksum and entry.get("after", index.checksum) != index.checksum:
        index.breaks.append(number)
    index.checksum = entry["crc32"]
    if entry["type"] in MARKED:
        index.marked[number] = index.checksum


def _live(index: Index, fresh: Receipt) -> Receipt:
    """Return the receipt that is live once `fresh` is committed."""
    earlier = index.receipts.get(fresh.key)
    return fresh if earlier is None or _restores(index, earlier, fresh) else earlier


def _restores(index: Index, earlier: Receipt, fresh: Receipt) -> bool:
    """Return whether `fresh` restores an evicted result of the same digest."""
    return earlier.payload in index.evicted and earlier.digest == fresh.digest


def _receipts_entry(
    receipts: Sequence[Receipt], live: Sequence[Receipt]
) -> dict[str, Any] | None:
    pairs = list(zip(receipts, live, strict=True))
    fresh = [ours for ours, theirs in pairs if ours is theirs]
    twins = [
        {"key": ours.key, "digest": ours.digest, "live": theirs.digest}
        for ours, theirs in pairs
        if ours.digest != theirs.digest
    ]
    if not fresh and not twins:
        return None
    entry = {"type": "receipts", **pack_receipts(fresh)}
    return entry | ({"twins": twins} if twins else {})


def _fold_receipts(index: Index, number: int, entry: Entry) -> None:
    restored: set[str | None] = set()
    for row, receipt in enumerate(unpack_receipts(entry)):
        index.rows[number, row] = receipt
        live = index.receipts.setdefault(receipt.key, receipt)
        if live is not receipt and _restores(index, live, receipt):
            index.receipts[receipt.key] = receipt
        restored.add(receipt.payload)
    index.evicted.difference_update(restored)


def _fold_retired(index: Index, _: int, entry: Entry) -> None:
    payload = entry.get("payload")
    for key in entry["keys"]:
        live = index.receipts.get(key)
        if live is not None and payload in (None, live.payload):
            del index.receipts[key]
            index.retired[key] = entry["reason"]


def _fold_code(index: Index, _: int, entry: Entry) -> None:
    for fingerprint, code in entry["codes"].items():
        index.codes[fingerprint] = CodeRecord(**code)


def _fold_settled(index: Index, _: int, entry: Entry) -> None:
    index.settlements += [
        Settlement(**settlement) for settlement in entry["settlements"]
    ]


def _fold_evicted(index: Index, _: int, entry: Entry) -> None:
    index.evicted.update(entry["payloads"])


def _fold_pinned(index: Index, _: int, entry: Entry) -> None:
    index.pins[entry["name"]] = Pin(entry["name"], entry["begun"], entry["reason"])


def _fold_unpinned(index: Index, _: int, entry: Entry) -> None:
    index.pins.pop(entry["name"], None)


def _fold_void(index: Index, number: int, _: Entry) -> None:
    """A torn or missing entry that has been replaced with a tombstone."""
    index.void.append(number)


def _fold_begun(index: Index, number: int, entry: Entry) -> None:
    study = entry["study"]
    index.places[number] = len(index.runs)
    index.runs.append(
        RunRecord(
            number=index.counts[study] + 1,
            study=study,
            begun=number,
            started=entry["started"],
            document=entry["document"],
            environment=entry["environment"],
            options=entry["options"],
        )
    )
    index.counts[study] += 1


def _fold_ended(index: Index, number: int, entry: Entry) -> None:
    place = index.places.get(entry["begun"])
    ours = index.marked.get(entry["begun"])
    # In a merged log another copy's run may have begun at this number.
    if place is not None and entry.get("of", ours) == ours:
        index.runs[place] = replace(
            index.runs[place],
            ended=number,
            seconds=entry["seconds"],
            counts=entry["counts"],
            failures=entry["failures"],
            tables=entry["tables"],
        )


FOLDS: Mapping[str, Callable[[Index, int, Entry], None]] = {
    "receipts": _fold_receipts,
    "retired": _fold_retired,
    "run-begun": _fold_begun,
    "run-ended": _fold_ended,
    "code": _fold_code,
    "settled": _fold_settled,
    "evicted": _fold_evicted,
    "pinned": _fold_pinned,
    "unpinned": _fold_unpinned,
    "void": _fold_void,
}
