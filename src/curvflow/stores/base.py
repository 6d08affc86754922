"""What every store offers; flows know this and nothing beneath it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from curvflow.errors import CorruptPayloadError, RemovedPayloadError, StoreError
from curvflow.schemas.nodes import Array
from curvflow.schemas.records.receipts import (
    CodeRecord,
    Pin,
    Receipt,
    RunRecord,
    Settlement,
)
from curvflow.stores.claims import Claims
from curvflow.stores.payload_digests import verify_receipts
from curvflow.stores.trash import StoredFiles


@dataclass
class Index:
    """What the commit log says up to and including one number.

    Attributes:
        number: last log number read; 0 for an empty log.
        receipts: live receipts by action key; the first writer of a key wins, until
            its entry is retired.
        runs: runs in the order they began.
        rows: every receipt ever committed, by (log number, row).
        retired: why a key's earlier receipt no longer stands.
        evicted: payloads that collection has removed; their receipts stand.
        codes: the code that computed results, by fingerprint.
        settlements: changed code that was accepted as meaning the same, in order.
        pins: runs whose results collection leaves alone, by name.
        void: numbers of torn or lost entries.
        events: numbers and entries of what is neither receipts nor a run, in order.
        places: where in `runs` a run is, by the number it began at.
        counts: how many runs each study has had.
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

    def copy(self) -> Index:
        """Return an index that later commits leave as it is."""
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
    """An append-only numbered log, and immutable payloads beside it.

    Payloads are durable before a commit names them. Of two commits of one action key
    the first wins. Nothing needs a lock that outlives its process, so nothing needs
    unlocking. Threads may share a store object.
    """

    location: str
    claims: Claims
    files: StoredFiles

    @abstractmethod
    def index(self, as_of: int | None = None) -> Index:
        """Read the log, up to `as_of` if given; new entries are read incrementally."""

    @abstractmethod
    def live(self, keys: Iterable[str]) -> dict[str, Receipt]:
        """Return the live receipts of keys whose arrays no collection has removed."""

    @abstractmethod
    def index_of(self, keys: Iterable[str]) -> Index:
        """Return what the log says of some keys: receipts, and which are evicted."""

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
    def read(self, receipt: Receipt, parts: Sequence[str]) -> dict[str, Array]:
        """Read parts of one node's result and verify their digests.

        Args:
            receipt: names the payload, the slot and the digests.
            parts: variable names, or `variable@label` for one slice of a sliced one;
                a sliced variable's bare name reads all of its slices.

        Returns:
            Part name to array, without the `node` dimension.

        Raises:
            CorruptPayloadError: the payload is missing, lacks a chunk, fails a
                checksum or does not have the digests of the receipt.
            UnknownNameError: the result has no such part.
        """

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
        verify_receipts(payload, self.read_payload(payload), receipts)

    def fetch(self, receipt: Receipt, parts: Sequence[str]) -> dict[str, Array]:
        """Read parts of a result; what cannot be read is struck off the log.

        Args:
            receipt: of the result.
            parts: see `read`.

        Returns:
            Part name to array.

        Raises:
            CorruptPayloadError: the result is unreadable; the next run computes it
                again.
            RemovedPayloadError: collection has removed it; nothing is struck off.
        """
        try:
            return self.read(receipt, parts)
        except CorruptPayloadError as error:
            index = self.index()
            live = index.receipts.get(receipt.key, receipt)
            if live.payload != receipt.payload and live.digest == receipt.digest:
                return self.fetch(live, parts)  # the same result, computed again since
            if receipt.payload in index.evicted:
                raise RemovedPayloadError(receipt.stage) from error
            with suppress(StoreError):  # a store that cannot be written stays as it is
                self.retire(
                    self.payload_keys(receipt), str(error), payload=receipt.payload
                )
            raise CorruptPayloadError(
                f"{str(error).rstrip('.')}. Its results are struck off; "
                "run the study to compute them again."
            ) from error

    def payload_keys(self, receipt: Receipt) -> list[str]:
        """Return the keys of all live results in the payload of one of them."""
        live = self.index().receipts.values()
        others = [one.key for one in live if one.payload == receipt.payload]
        return list(dict.fromkeys([receipt.key, *others]))

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
        """Append an entry that these keys' receipts no longer stand.

        Args:
            keys: action keys.
            reason: what is wrong with the results.
            payload: only receipts of this payload are meant, so that a result that
                somebody has computed again meanwhile stays.
            upto: only receipts of entries up to this number are meant, so that this
                holds even if it came out the same.
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
        """Append an entry that says what these fingerprints stand for."""

    @abstractmethod
    def settle(self, settlements: Sequence[Settlement]) -> None:
        """Append an entry that changed code was accepted."""

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
            unless: asked of the log as it stands just before the entry.

        Returns:
            The entry's number; None if there is none, since `unless` held.
        """

    @abstractmethod
    def torn_entries(self) -> list[int]:
        """Return the numbers of entries that are torn or lost."""

    @abstractmethod
    def write_tombstones(self, numbers: Iterable[int]) -> None:
        """Put word that they are void in the place of torn or lost entries.

        Args:
            numbers: of the entries; those that can be read after all are left alone.
        """

    @abstractmethod
    def pin(self, pin: Pin) -> None:
        """Append an entry that a run's results are to be kept; replaces that name."""

    @abstractmethod
    def unpin(self, name: str) -> None:
        """Append an entry that a pin no longer holds."""

    @abstractmethod
    def write_heartbeat(self, run: RunRecord, sign: Mapping[str, Any] | None) -> None:
        """Replace a run's sign of life; None removes it."""

    @abstractmethod
    def heartbeats(self) -> dict[int, dict[str, Any]]:
        """Return the latest sign of life of each run, by the number it began at."""

    @abstractmethod
    def save_snapshot(self, name: str, arrays: Mapping[str, Array]) -> None:
        """Replace what a tile in work has so far; durable when this returns.

        Args:
            name: of the tile, digits and letters alone.
            arrays: variable to array, of any shapes.

        Raises:
            StoreError: it cannot be written.
        """

    @abstractmethod
    def load_snapshot(self, name: str) -> dict[str, Array] | None:
        """Return what a tile had so far; None if there is nothing, or it is torn."""

    @abstractmethod
    def drop_snapshot(self, name: str) -> None:
        """Remove what a tile had so far, if there is any."""

    @abstractmethod
    def append_event(self, run: RunRecord, event: Mapping[str, Any]) -> None:
        """Append one line to the run's journal; not part of the log's truth."""

    @abstractmethod
    def journal(self, run: RunRecord) -> list[dict[str, Any]]:
        """Return the lines of a run's journal."""
