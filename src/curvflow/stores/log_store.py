"""Stores with a commit log, and among them those whose payloads are zarr files."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeVar

from curvflow.errors import CorruptPayloadError
from curvflow.schemas.nodes import Array
from curvflow.schemas.records.receipts import (
    CodeRecord,
    Pin,
    Receipt,
    RunRecord,
    Settlement,
)
from curvflow.stores.base import Index, Layout, Store
from curvflow.stores.claims import Claims
from curvflow.stores.files import json_object
from curvflow.stores.log import Log
from curvflow.stores.payload_digests import (
    Found,
    read_rows,
    unreadable,
    verify_nodes,
)

if TYPE_CHECKING:
    from curvflow.stores.zarr_payloads import ZarrPayload


class LogStore(Store):
    """A store that keeps receipts and runs as entries of a commit log."""

    def __init__(self, location: str, log: Log, claims: Claims) -> None:
        """Bind the store to its location, commit log and claims."""
        self.location, self._log, self.claims = location, log, claims

    def index(self, as_of: int | None = None) -> Index:
        """Return the folded log, up to entry `as_of`; reads only new entries."""
        return self._log.index(as_of)

    def live(self, keys: Iterable[str]) -> dict[str, Receipt]:
        """Return the live receipts of these keys, without evicted payloads."""
        return self._log.live(keys)

    def index_of(self, keys: Iterable[str]) -> Index:
        """Return an index of these keys alone: live receipts and evicted payloads."""
        return self._log.index_of(keys)

    def commit(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        """Append receipts whose keys are not live; return the live one of each key."""
        return self._log.commit(receipts)

    def retire(
        self,
        keys: Sequence[str],
        reason: str,
        *,
        payload: str | None = None,
        upto: int | None = None,
    ) -> None:
        """Append an entry that retires the receipts of these keys."""

        def build(index: Index) -> dict[str, Any] | None:
            later = set() if upto is None else _committed_after(upto, index)
            meant = [key for key in keys if key not in later]
            entry = {"type": "retired", "keys": meant, "reason": reason}
            return entry | {"payload": payload} if meant else None

        self._log.append(build)

    def record_codes(self, codes: Mapping[str, CodeRecord]) -> None:
        """Append an entry with the code behind new fingerprints."""

        def build(index: Index) -> dict[str, Any] | None:
            fresh = {
                fingerprint: asdict(code)
                for fingerprint, code in codes.items()
                if fingerprint not in index.codes
            }
            return {"type": "code", "codes": fresh} if fresh else None

        self._log.append(build)

    def settle(self, settlements: Sequence[Settlement]) -> None:
        """Append an entry that settles code drift."""
        entry = {"type": "settled", "settlements": [asdict(s) for s in settlements]}
        self._log.append(lambda _: entry)

    def evict(
        self,
        payloads: Sequence[str],
        reason: str,
        *,
        unless: Callable[[Index], bool] | None = None,
    ) -> int | None:
        """Append an entry that evicts payloads; return its number, None if refused."""
        entry = {"type": "evicted", "payloads": list(payloads), "reason": reason}
        refused = False

        def build(index: Index) -> dict[str, Any] | None:
            nonlocal refused
            refused = unless is not None and unless(index)
            return None if refused else entry

        number = self._log.append(build)
        return None if refused else number

    def torn_entries(self) -> list[int]:
        """Return the numbers of torn or missing entries that have no tombstone."""
        return self._log.torn_entries()

    def collided_entries(self) -> list[int]:
        """Return the numbers at which copies of the log that went apart were merged."""
        return self._log.collided_entries()

    def write_tombstones(self, numbers: Iterable[int]) -> None:
        """Replace torn or missing entries with tombstones."""
        self._log.write_tombstones(numbers)

    def pin(self, pin: Pin) -> None:
        """Append an entry that pins a run's results."""
        self._log.append(lambda _: {"type": "pinned", **asdict(pin)})

    def unpin(self, name: str) -> None:
        """Append an entry that removes a pin."""
        self._log.append(lambda _: {"type": "unpinned", "name": name})

    def begin_run(
        self,
        study: str,
        *,
        document: Mapping[str, Any],
        environment: Mapping[str, str],
        options: Mapping[str, Any],
    ) -> RunRecord:
        """Append an entry that a run begins, and return its record."""
        entry = {
            "type": "run-begun",
            "study": study,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "document": dict(document),
            "environment": dict(environment),
            "options": dict(options),
        }
        return self._run(self._log.append(lambda _: entry))

    def end_run(
        self,
        run: RunRecord,
        *,
        seconds: float,
        counts: Mapping[str, Mapping[str, int]],
        failures: Sequence[Mapping[str, Any]],
        tables: Mapping[str, Any],
    ) -> RunRecord:
        """Append an entry that a run ends, and return its record."""
        entry = {
            "type": "run-ended",
            "begun": run.begun,
            "seconds": seconds,
            "counts": {name: dict(count) for name, count in counts.items()},
            "failures": [dict(failure) for failure in failures],
            "tables": dict(tables),
        }

        def build(index: Index) -> dict[str, Any]:
            begun = index.marked.get(run.begun)
            return entry | ({"of": begun} if begun else {})

        self._log.append(build)
        return self._run(run.begun)

    def _run(self, begun: int) -> RunRecord:
        return next(run for run in self.index().runs if run.begun == begun)


def _committed_after(number: int, index: Index) -> set[str]:
    """Return the keys of the receipts in entries after this number."""
    latest_first = reversed(index.rows.items())
    rows = takewhile(lambda row: row[0][0] > number, latest_first)
    return {receipt.key for _, receipt in rows}


T = TypeVar("T")


class ZarrStore(LogStore):
    """A store that reads results out of opened zarr payloads."""

    @abstractmethod
    def _open(self, payload: str) -> ZarrPayload:
        """Return an opened payload; a cache may keep it open."""

    @abstractmethod
    def _forget(self) -> None:
        """Close all opened payloads."""

    def layout(self, payload: str) -> Mapping[str, Layout]:
        """Return the variables of a payload, read from its metadata alone."""
        return self._retry_once(lambda: self._open(payload).layout())

    def read_together(
        self, receipts: Sequence[Receipt], parts: Sequence[str]
    ) -> list[Found]:
        """Read parts of several results of one payload and verify their digests."""
        rows = self._read_rows(receipts, parts)
        if lost := unreadable(rows):
            self._forget()  # collection may have moved the payload meanwhile
            again = self._read_rows([receipts[number] for number in lost], parts)
            for number, row in zip(lost, again, strict=True):
                rows[number] = row
            if unreadable(again):
                self._forget()  # another run may heal it by then
        return rows

    def _read_rows(
        self, receipts: Sequence[Receipt], parts: Sequence[str]
    ) -> list[Found]:
        if not parts:
            return [{} for _ in receipts]
        try:
            payload = self._open(str(receipts[0].payload))
        except CorruptPayloadError as error:
            return [error for _ in receipts]
        return read_rows(payload, receipts, parts)

    def read_payload(self, payload: str) -> dict[str, Array]:
        """Return all variables of all nodes of a payload."""
        return self._retry_once(lambda: self._open(payload).read_all())

    def _retry_once(self, read: Callable[[], T]) -> T:
        """Retry a failed read once: collection may have moved the payload meanwhile."""
        try:
            return read()
        except CorruptPayloadError:
            self._forget()
        try:
            return read()
        except CorruptPayloadError:
            self._forget()  # another run may heal it by then
            raise

    def verify_payload(self, payload: str, receipts: Iterable[Receipt]) -> None:
        """Read a payload afresh, in parts, and compare it with id and receipts."""
        known = list(receipts)
        self._forget()  # what is open may have been replaced since
        self._retry_once(lambda: verify_nodes(payload, self._open(payload), known))


NAME = re.compile(r"([0-9]{10,})\.beat")
FIELDS = {"count": int, "pid": int, "host": str}


def parse_heartbeats(
    files: Iterable[tuple[str, bytes | None]],
) -> dict[int, dict[str, Any]]:
    """Return the valid heartbeats of files, by the log number their run began at."""
    return {
        int(name[1]): sign
        for path, content in files
        if (name := NAME.fullmatch(PurePath(path).name))
        and content is not None
        and (sign := json_object(content))
        and all(type(sign.get(key)) is kind for key, kind in FIELDS.items())
    }
