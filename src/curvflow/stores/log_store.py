"""Stores whose truth is a commit log, and those whose payloads are packs."""

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
from curvflow.stores.payload_digests import read_parts

if TYPE_CHECKING:
    from curvflow.stores.zarr_payloads import ZarrPayload


class LogStore(Store):
    """Receipts and runs as entries of a log."""

    def __init__(self, location: str, log: Log, claims: Claims) -> None:
        """Bind the store to its log.

        Args:
            location: for messages.
            log: its commit log.
            claims: which run is at work on what.
        """
        self.location, self._log, self.claims = location, log, claims

    def index(self, as_of: int | None = None) -> Index:
        """Return what the log says, up to `as_of` if given; reads only what is new."""
        return self._log.index(as_of)

    def live(self, keys: Iterable[str]) -> dict[str, Receipt]:
        """Return the live receipts of keys whose arrays no collection has removed."""
        return self._log.live(keys)

    def index_of(self, keys: Iterable[str]) -> Index:
        """Return what the log says of some keys: receipts, and which are evicted."""
        return self._log.index_of(keys)

    def commit(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        """Return the live receipt for each key given, having appended what is new."""
        return self._log.commit(receipts)

    def retire(
        self,
        keys: Sequence[str],
        reason: str,
        *,
        payload: str | None = None,
        upto: int | None = None,
    ) -> None:
        """Append an entry that these keys' receipts no longer stand."""

        def build(index: Index) -> dict[str, Any] | None:
            later = set() if upto is None else _committed_after(upto, index)
            meant = [key for key in keys if key not in later]
            entry = {"type": "retired", "keys": meant, "reason": reason}
            return entry | {"payload": payload} if meant else None

        self._log.append(build)

    def record_codes(self, codes: Mapping[str, CodeRecord]) -> None:
        """Append an entry that says what these fingerprints stand for."""

        def build(index: Index) -> dict[str, Any] | None:
            fresh = {
                fingerprint: asdict(code)
                for fingerprint, code in codes.items()
                if fingerprint not in index.codes
            }
            return {"type": "code", "codes": fresh} if fresh else None

        self._log.append(build)

    def settle(self, settlements: Sequence[Settlement]) -> None:
        """Append an entry that changed code was accepted."""
        entry = {"type": "settled", "settlements": [asdict(s) for s in settlements]}
        self._log.append(lambda _: entry)

    def evict(
        self,
        payloads: Sequence[str],
        reason: str,
        *,
        unless: Callable[[Index], bool] | None = None,
    ) -> int | None:
        """Return the number of an entry that payloads are removed, or None."""
        entry = {"type": "evicted", "payloads": list(payloads), "reason": reason}
        refused = False

        def build(index: Index) -> dict[str, Any] | None:
            nonlocal refused
            refused = unless is not None and unless(index)
            return None if refused else entry

        number = self._log.append(build)
        return None if refused else number

    def torn_entries(self) -> list[int]:
        """Return the numbers of entries that are torn or lost."""
        return self._log.torn_entries()

    def write_tombstones(self, numbers: Iterable[int]) -> None:
        """Put word that they are void in the place of torn or lost entries."""
        self._log.write_tombstones(numbers)

    def pin(self, pin: Pin) -> None:
        """Append an entry that a run's results are to be kept."""
        self._log.append(lambda _: {"type": "pinned", **asdict(pin)})

    def unpin(self, name: str) -> None:
        """Append an entry that a pin no longer holds."""
        self._log.append(lambda _: {"type": "unpinned", "name": name})

    def begin_run(
        self,
        study: str,
        *,
        document: Mapping[str, Any],
        environment: Mapping[str, str],
        options: Mapping[str, Any],
    ) -> RunRecord:
        """Return the record of a run that begins now, having appended it."""
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
        """Return the record of a run that ends now, having appended it."""
        entry = {
            "type": "run-ended",
            "begun": run.begun,
            "seconds": seconds,
            "counts": {name: dict(count) for name, count in counts.items()},
            "failures": [dict(failure) for failure in failures],
            "tables": dict(tables),
        }
        self._log.append(lambda _: entry)
        return self._run(run.begun)

    def _run(self, begun: int) -> RunRecord:
        return next(run for run in self.index().runs if run.begun == begun)


def _committed_after(number: int, index: Index) -> set[str]:
    """Return the keys of receipts that entries after this number hold."""
    latest_first = reversed(index.rows.items())
    rows = takewhile(lambda row: row[0][0] > number, latest_first)
    return {receipt.key for _, receipt in rows}


T = TypeVar("T")


class ZarrStore(LogStore):
    """Reads results out of opened packs."""

    @abstractmethod
    def _open(self, payload: str) -> ZarrPayload:
        """Return an opened payload, which may stay open."""

    @abstractmethod
    def _forget(self) -> None:
        """Close the payloads that are open."""

    def layout(self, payload: str) -> Mapping[str, Layout]:
        """Return the variables of a payload, read from its metadata alone."""
        return self._retry_once(lambda: self._open(payload).layout())

    def read(self, receipt: Receipt, parts: Sequence[str]) -> dict[str, Array]:
        """Read parts of one node's result and verify their digests.

        Args:
            receipt: names the payload, the slot and the digests.
            parts: variable names, or `variable@label` for one slice of a sliced one.

        Returns:
            Part name to array, without the `node` dimension.

        Raises:
            UnknownNameError: the receipt has no such part.
            CorruptPayloadError: the payload is missing, lacks a chunk, fails a
                checksum or does not have the digests of the receipt.
        """

        def fetch(variable: str) -> Array:
            return self._open(str(receipt.payload)).node(variable, receipt.slot)

        return self._retry_once(lambda: read_parts(receipt, parts, fetch))

    def read_payload(self, payload: str) -> dict[str, Array]:
        """Return all variables of all nodes of a payload."""
        return self._retry_once(lambda: self._open(payload).read_all())

    def _retry_once(self, read: Callable[[], T]) -> T:
        """Read again what cannot be read: it may have been moved in the midst of it."""
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
        """Read all of a payload, as it is there now, and compare it with receipts.

        Args:
            payload: its id.
            receipts: of results in it.

        Raises:
            CorruptPayloadError: it cannot be read, or something differs.
        """
        self._forget()  # what is open may have been replaced since
        super().verify_payload(payload, receipts)


NAME = re.compile(r"([0-9]{10,})\.beat")
FIELDS = {"count": int, "pid": int, "host": str}


def parse_heartbeats(
    found: Iterable[tuple[str, bytes | None]],
) -> dict[int, dict[str, Any]]:
    """Return the signs of life among what was found.

    Args:
        found: path and content; a content of None is of a run that has ended
            meanwhile.

    Returns:
        Sign by the log number at which its run began. What is cut short, or no sign
        of life at all, is left out.
    """
    return {
        int(name[1]): sign
        for path, text in found
        if (name := NAME.fullmatch(PurePath(path).name))
        and text is not None
        and (sign := json_object(text))
        and all(type(sign.get(key)) is kind for key, kind in FIELDS.items())
    }
