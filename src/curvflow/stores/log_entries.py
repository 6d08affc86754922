"""Entries of the commit log as bytes: compact JSON that carries its own checksum."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from curvflow.errors import CurvflowError, StoreFormatError
from curvflow.schemas.records.receipts import Receipt

# Entries of the second form have receipts with `reads`; all others are as before.
FORMAT, WITH_READS = 1, 2
TYPES = (
    "receipts",
    "retired",
    "run-begun",
    "run-ended",
    "code",
    "settled",
    "evicted",
    "pinned",
    "unpinned",
    "void",
    "claimed",  # in the log of claims
)

Entry = Mapping[str, Any]

_FIELDS = tuple(field.name for field in fields(Receipt))
_MISSING = object()
SCALARS = (str, int, float, bool, type(None))


class TornEntryError(CurvflowError):
    """Bytes that are no whole entry, after a loss of power or a flipped bit."""


def encode(number: int, entry: Entry, *, after: str = "") -> bytes:
    """Write an entry as JSON, CRC-32 of the rest first, its predecessor's last."""
    form = WITH_READS if _has_reads(entry) else FORMAT
    whole = {"format": form, "number": number, **entry}
    if after:
        whole["after"] = after
    rest = json.dumps(whole, separators=(",", ":"))[1:].encode()
    return b'{"crc32":"%08x",%b\n' % (zlib.crc32(rest), rest)


def checksum(data: bytes) -> str:
    """Return the CRC-32 that an encoded entry carries, as eight hexadecimal digits."""
    return data[10:18].decode("ascii", "replace")


def decode(number: int, data: bytes) -> Entry:
    """Decode an entry; raise TornEntryError if its checksum or number is wrong."""
    rest = memoryview(data)[20:-1]  # entries are large, and most of what a plan reads
    if data[:20] != b'{"crc32":"%08x",' % zlib.crc32(rest) or data[-1:] != b"\n":
        raise TornEntryError(f"commit {number}: checksum does not match")
    entry: dict[str, Any] = json.loads(data)
    if entry["format"] > WITH_READS or entry["type"] not in TYPES:
        raise StoreFormatError(
            f"commit {number}: expected format {WITH_READS} and one of "
            f"{', '.join(TYPES)}, got format {entry['format']} and {entry['type']}. "
            "Update curvflow."
        )
    entry["crc32"] = checksum(data)
    if entry["number"] != number:
        raise TornEntryError(f"commit {number}: holds the entry {entry['number']}")
    return entry


def pack_receipts(receipts: Sequence[Receipt]) -> dict[str, Any]:
    """Encode receipts: `shared` fields, common `params`, and `rows` with the rest."""
    rows = [{name: getattr(receipt, name) for name in _FIELDS} for receipt in receipts]
    params = _common([row["params"] for row in rows])
    for row in rows:
        if row["reads"] is None:
            del row["reads"]
        row["params"] = {k: v for k, v in row["params"].items() if k not in params}
    shared = _common(rows)
    rest = [{k: v for k, v in row.items() if k not in shared} for row in rows]
    return {"shared": shared, "params": params, "rows": rest}


def unpack_receipts(packed: Mapping[str, Any]) -> list[Receipt]:
    """Decode what `pack_receipts` encoded."""
    shared, params, rows = packed["shared"], packed["params"], packed["rows"]
    fill = _Filler(shared, params, rows[0]) if rows else None
    return [
        fill(row)
        if fill and row.keys() == fill.names
        else Receipt(**_whole(shared, params, row))
        for row in rows
    ]


def _whole(
    shared: Mapping[str, Any], params: Mapping[str, Any], row: Mapping[str, Any]
) -> dict[str, Any]:
    whole = {**shared, **row}
    return {**whole, "params": params | whole["params"]}


class _Filler:
    """Receipts of siblings, of which rows have the same names.

    A frozen dataclass makes each three times as slowly.
    """

    def __init__(
        self,
        shared: Mapping[str, Any],
        params: Mapping[str, Any],
        row: Mapping[str, Any],
    ) -> None:
        """Let a receipt as others are made check the names, and bring the defaults."""
        first = Receipt(**_whole(shared, params, row))
        setters = {name: getattr(Receipt, name).__set__ for name in _FIELDS}
        self.names = row.keys()
        self._own = [(name, setters[name]) for name in row if name != "params"]
        self._same = [(setters[n], getattr(first, n)) for n in _FIELDS if n not in row]
        self._params, self._set_params = params, setters["params"]
        self._has_params = "params" in row

    def __call__(self, row: Mapping[str, Any]) -> Receipt:
        """Return the receipt of a row."""
        receipt: Receipt = object.__new__(Receipt)
        for set_field, value in self._same:
            set_field(receipt, value)
        for name, set_field in self._own:
            set_field(receipt, row[name])
        if self._has_params:
            self._set_params(receipt, self._params | row["params"])
        return receipt


def _has_reads(entry: Entry) -> bool:
    parts = [entry.get("shared", {}), *entry.get("rows", ())]
    return entry["type"] == "receipts" and any("reads" in part for part in parts)


def _common(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    if not rows:
        return {}
    return {
        name: value
        for name, value in rows[0].items()
        if all(_same(row.get(name, _MISSING), value) for row in rows[1:])
    }


def _same(left: object, right: object) -> bool:
    # 1, 1.0 and True are equal to Python but not to a key.
    if left != right or type(left) is not type(right):
        return False
    return isinstance(left, SCALARS) or json.dumps(left) == json.dumps(right)
