"""Interface of every store: commit log, payloads, claims, heartbeats, snapshots."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from curvflow.errors import CorruptPayloadError, RemovedPayloadError, StoreError
from curvflow.schemas.disk_arrays import DiskArray
from curvflow.schemas.nodes import Array
from curvflow.schemas.records.receipts import (
    CodeRecord,
    Pin,
    Receipt,
    RunRecord,
    Settlement,
)
from curvflow.schemas.words import counted
from curvflow.stores.claims import Claims
from curvflow.stores.payload_digests import ArrayNodes, Found, verify_nodes
from curvflow.stores.trash import StoredFiles


@dataclass
class Index:
    """The commit log folded up to and including one number.

    Attributes:
        number: last log number read; 0 for an empty log.
        receipts: live receipts by action key; the first writer of a key wins, until
            its entry is retired.
        runs: runs in the order they began.
        rows: every receipt ever committed, by (log number, row).
        retired: reason for which a key's earlier receipt was retired.
        evicted: payloads that collection has removed; their receipts stay valid.
        codes: code that computed results, by fingerprint.
        settlements: accepted code drift, in order.
        pins: runs whose results collection keeps, by name.
        void: numbers of torn or lost entries.
        checksum: of the last entry; empty for none and for a void one.
        breaks: numbers of entries that were written after another entry than the one
            before them, in another copy of the log.
        marked: checksums of the entries that have marks, by number.
        events: numbers and entries other than receipts and runs, in order.
        places: position in `runs`, by the number the run began at.
        counts: number of runs of each study.
    """

    number: int = 0
    receipts: dict[str, Receipt] = field(default_factory=dict)
    runs: list[RunRecord] = field(default_factory=list)
    rows: dict[tuple[int, int], Receipt] = field(default_factory=dict)
    retired: dict[str, str] = field(default_factory=dict)
    evicted: set[str] = field(default_factory=set)
    codes: dict[str, CodeRecord] = field(default_factory=dict)
    settlements: list[Settlement] = field(default_factory=list)
    pins: dict[str, Pin] = field(default_factory=dict)
    void: list[int] = field(default_factory=list)
    events: list[tuple[int, Mapping[str, Any]]] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    checksum: str = field(default="", compare=False)  # where reading goes on
    breaks: list[int] = field(default_factory=list)
    marked: dict[int, str] = field(default_factory=dict)

    def copy(self) -> Index:
        """Return a copy that later commits do not change."""
        return Index(
            self.number,
            dict(self.receipts),
            list(self.runs),
            dict(self.rows),
            dict(self.retired),
            set(self.evicted),
            dict(self.codes),
            list(self.settlements),
            dict(self.pins),
            list(self.void),
            list(self.events),
            dict(self.places),
            Counter(self.counts),
            self.checksum,
            list(self.breaks),
            dict(self.marked),
        )


@dataclass(frozen=True)
class Layout:
    """Shape and type of one variable of a payload, known without reading it.

    Attributes:
        shape: within one node.
        dtype: object for text.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class Store(ABC):
    """An append-only numbered log, and immutable payloads.

    Payloads are durable before a commit names them. Of two commits of one action key
    the first wins. Nothing needs a lock that outlives its process, so nothing needs
    unlocking. Threads may share a store object.
    """

    location: str
    claims: Claims
    files: StoredFiles
    # Whether payloads may hold arrays on disk, each of one node, and read them by rows.
    keeps_rows = False

    @abstractmethod
    def index(self, as_of: int | None = None) -> Index:
        """Read the log, up to `as_of` if given; new entries are read incrementally."""

    @abstractmethod
    def live(self, keys: Iterable[str]) -> dict[str, Receipt]:
        """Return the live receipts of these keys, without evicted payloads."""

    @abstractmethod
    def index_of(self, keys: Iterable[str]) -> Index:
        """Return an index of these keys alone: live receipts and evicted payloads."""

    @abstractmethod
    def write_payload(self, arrays: Mapping[str, Array]) -> str:
        """Write one tile's arrays, leading dimension `node`, and return their id.

        Args:
            arrays: variable to array of shape (nodes, ...); at least one variable.

        Returns:
            The payload's id. The payload is durable and complete when this returns.

        Raises:
            StoreError: the payload cannot be written, the disk being full, say.
        """

    @abstractmethod
    def present(self, payloads: Iterable[str]) -> set[str]:
        """Return those payloads that exist; cheap, their content is not read."""

    @abstractmethod
    def layout(self, payload: str) -> Mapping[str, Layout]:
        """Return the variables of a payload, read from its metadata alone.

        Args:
            payload: its id.

        Returns:
            Variable to shape and type.

        Raises:
            CorruptPayloadError: the payload is missing or its metadata are torn.
        """

    @abstractmethod
    def read_together(
        self, receipts: Sequence[Receipt], parts: Sequence[str]
    ) -> list[Found]:
        """Read parts of several results of one payload and verify their digests.

        Args:
            receipts: name the payload, the slots and the digests; at least one.
            parts: variable names, or `variable@label` for one slice of a sliced one;
                a sliced variable's bare name reads all of its slices.

        Returns:
            Per result, part name to array, without the `node` dimension; or a
            CorruptPayloadError if the payload is missing, lacks a chunk, fails a
            checksum or does not have the digests of the receipt.

        Raises:
            UnknownNameError: a result has no such part.
        """

    def read_many(
        self, receipts: Sequence[Receipt], parts: Sequence[str]
    ) -> list[Found]:
        """Read the same parts of many results, payload by payload.

        Args:
            receipts: of the results.
            parts: see `read_together`.

        Returns:
            Per result, its parts or the error, as `read_together` does.

        Raises:
            UnknownNameError: a result has no such part.
        """
        places: dict[str | None, list[int]] = defaultdict(list)
        for number, receipt in enumerate(receipts):
            places[receipt.payload].append(number)
        rows: list[Found] = [{} for _ in receipts]
        for numbers in places.values():
            together = [receipts[number] for number in numbers]
            for number, row in zip(
                numbers, self.read_together(together, parts), strict=True
            ):
                rows[number] = row
        return rows

    def read(self, receipt: Receipt, parts: Sequence[str]) -> dict[str, Array]:
        """Read parts of one result and verify their digests.

        Args:
            receipt: names the payload, the slot and the digests.
            parts: see `read_together`.

        Returns:
            Part name to array, without the `node` dimension.

        Raises:
            CorruptPayloadError: it cannot be read, or something differs.
            UnknownNameError: the result has no such part.
        """
        (row,) = self.read_together([receipt], parts)
        if isinstance(row, CorruptPayloadError):
            raise row
        return row

    def on_disk(self, receipt: Receipt, part: str) -> DiskArray | None:
        """Return a part of a result with its rows unread, once its digest is verified.

        Args:
            receipt: names the payload, the slot and the digest.
            part: name of a variable.

        Returns:
            The array; None if the store does not have it so: it was not written as one
            on disk, or this store `keeps_rows` of none.

        Raises:
            CorruptPayloadError: it cannot be read, or differs.
        """
        return None

    @abstractmethod
    def read_payload(self, payload: str) -> dict[str, Array]:
        """Read all variables of all nodes of a payload.

        Args:
            payload: its id.

        Returns:
            Variable to array of shape (nodes, ...).

        Raises:
            CorruptPayloadError: it is missing, lacks a chunk or fails a checksum.
        """

    def verify_payload(self, payload: str, receipts: Iterable[Receipt]) -> None:
        """Read all of a payload and compare it with its id and with receipts.

        Args:
            payload: its id.
            receipts: of results in it.

        Raises:
            CorruptPayloadError: it cannot be read, or something differs.
        """
        verify_nodes(payload, ArrayNodes(self.read_payload(payload)), receipts)

    def fetch(self, receipt: Receipt, parts: Sequence[str]) -> dict[str, Array]:
        """Read parts of a result; an unreadable result is retired.

        Args:
            receipt: of the result.
            parts: see `read_together`.

        Returns:
            Part name to array.

        Raises:
            CorruptPayloadError: the result is unreadable; the next run computes it
                again.
            RemovedPayloadError: collection has removed it; nothing is retired.
        """
        (row,) = self.fetch_many([receipt], parts)
        if isinstance(row, StoreError):
            raise row
        return row

    def fetch_many(
        self, receipts: Sequence[Receipt], parts: Sequence[str]
    ) -> list[dict[str, Array] | StoreError]:
        """Read the same parts of many results; unreadable results are retired.

        The log is asked once, and one entry retires all results of what is lost.

        Args:
            receipts: of the results.
            parts: see `read_together`.

        Returns:
            Per result, its parts; or the error that `fetch` raises for it.
        """
        rows: list[dict[str, Array] | StoreError] = [*self.read_many(receipts, parts)]
        lost = {n: e for n, e in enumerate(rows) if isinstance(e, CorruptPayloadError)}
        if not lost:
            return rows
        index = self.index()
        moved: dict[int, Receipt] = {}
        struck: dict[str, str] = {}  # payload to what is wrong with it
        for number, error in lost.items():
            receipt = receipts[number]
            live = index.receipts.get(receipt.key, receipt)
            if live.payload != receipt.payload and live.digest == receipt.digest:
                moved[number] = live  # the same result, computed again since
            elif receipt.payload in index.evicted:
                rows[number] = RemovedPayloadError(receipt.stage)
            else:
                struck.setdefault(str(receipt.payload), str(error).rstrip("."))
                rows[number] = CorruptPayloadError(
                    f"{str(error).rstrip('.')}. Its results are struck off; "
                    "run the study to compute them again."
                )
        with suppress(StoreError):  # a store that cannot be written stays as it is
            self.strike_off(struck, upto=index.number)
        again = self.fetch_many(list(moved.values()), parts) if moved else []
        for number, row in zip(moved, again, strict=True):
            rows[number] = row
        return rows

    def strike_off(self, payloads: Mapping[str, str], *, upto: int) -> list[str]:
        """Retire the live results of unreadable payloads, in one entry of the log.

        Args:
            payloads: their ids, and the fault of each.
            upto: number of the last entry that was read when they were found to be
                unreadable; results of later ones stay.

        Returns:
            The keys of the results.
        """
        live = self.index().receipts.values()
        keys = [receipt.key for receipt in live if receipt.payload in payloads]
        if keys:
            (payload, reason), *others = payloads.items()
            if others:
                more = f"and {counted(len(others), 'other payload')} unreadable"
                self.retire(keys, f"{reason}; {more}", upto=upto)
            else:
                self.retire(keys, reason, payload=payload, upto=upto)
        return keys

    @abstractmethod
    def commit(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        """Append receipts as one entry of the log.

        Args:
            receipts: of nodes whose payloads have been written.

        Returns:
            The live receipt for each key given: the receipt itself, or the one that
            another run committed first.
        """

    @abstractmethod
    def retire(
        self,
        keys: Sequence[str],
        reason: str,
        *,
        payload: str | None = None,
        upto: int | None = None,
    ) -> None:
        """Append an entry that retires the receipts of these keys.

        Args:
            keys: action keys.
            reason: the fault of the results.
            payload: retire only receipts of this payload, so that a result that
                another run has recomputed meanwhile stays.
            upto: retire only receipts of entries up to this number, so that a
                recomputed result stays even if it is bitwise equal.
        """

    @abstractmethod
    def begin_run(
        self,
        study: str,
        *,
        document: Mapping[str, Any],
        environment: Mapping[str, str],
        options: Mapping[str, Any],
    ) -> RunRecord:
        """Append an entry that a run has begun, and number it within its study."""

    @abstractmethod
    def end_run(
        self,
        run: RunRecord,
        *,
        seconds: float,
        counts: Mapping[str, Mapping[str, int]],
        failures: Sequence[Mapping[str, Any]],
        tables: Mapping[str, Any],
    ) -> RunRecord:
        """Append an entry that a run has ended, with its counts and results."""

    @abstractmethod
    def record_codes(self, codes: Mapping[str, CodeRecord]) -> None:
        """Append an entry with the code behind new fingerprints."""

    @abstractmethod
    def settle(self, settlements: Sequence[Settlement]) -> None:
        """Append an entry that settles code drift."""

    @abstractmethod
    def evict(
        self,
        payloads: Sequence[str],
        reason: str,
        *,
        unless: Callable[[Index], bool] | None = None,
    ) -> int | None:
        """Append an entry that payloads are removed while their receipts stand.

        Args:
            payloads: their ids.
            reason: why they go.
            unless: condition on the log just before the entry.

        Returns:
            The entry's number; None if `unless` was true.
        """

    @abstractmethod
    def torn_entries(self) -> list[int]:
        """Return the numbers of torn or missing entries that have no tombstone."""

    @abstractmethod
    def collided_entries(self) -> list[int]:
        """Return the numbers at which copies of the log that went apart were merged.

        Of two entries of one number a merge keeps one. The marks of the other show that
        it was there, and so does an entry that was written after another predecessor.
        """

    @abstractmethod
    def write_tombstones(self, numbers: Iterable[int]) -> None:
        """Replace torn or missing entries with tombstones.

        Args:
            numbers: of the entries; readable ones are left alone.
        """

    @abstractmethod
    def pin(self, pin: Pin) -> None:
        """Append an entry that pins a run's results; replaces a pin of that name."""

    @abstractmethod
    def unpin(self, name: str) -> None:
        """Append an entry that removes a pin."""

    @abstractmethod
    def write_heartbeat(self, run: RunRecord, sign: Mapping[str, Any] | None) -> None:
        """Replace a run's heartbeat; None removes it."""

    @abstractmethod
    def heartbeats(self) -> dict[int, dict[str, Any]]:
        """Return the latest heartbeat of each run, by the number it began at."""

    @abstractmethod
    def save_snapshot(self, name: str, arrays: Mapping[str, Array]) -> None:
        """Replace the snapshot of an unfinished tile; durable when this returns.

        Args:
            name: of the tile, letters and digits only.
            arrays: variable to array, of any shapes.

        Raises:
            StoreError: it cannot be written.
        """

    @abstractmethod
    def load_snapshot(self, name: str) -> dict[str, Array] | None:
        """Return the snapshot of a tile; None if it is missing or torn."""

    @abstractmethod
    def drop_snapshot(self, name: str) -> None:
        """Remove the snapshot of a tile, if it has one."""

    @abstractmethod
    def append_event(self, run: RunRecord, event: Mapping[str, Any]) -> None:
        """Append one event to the run's journal, which is no part of the commit log."""

    @abstractmethod
    def journal(self, run: RunRecord) -> list[dict[str, Any]]:
        """Return the events of a run's journal."""
