"""Ids of payloads, and verification of their parts against receipts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from curvflow.errors import CorruptPayloadError, UnknownNameError, nearest
from curvflow.schemas.disk_arrays import DiskArray
from curvflow.schemas.keys import (
    DigestInParts,
    array_digest,
    row_digests,
    sha256,
    stacked_digest,
)
from curvflow.schemas.nodes import Array
from curvflow.schemas.records.receipts import DIVERGED, Receipt

TEXT = "UOT"


def payload_id(arrays: Mapping[str, Array]) -> str:
    """Return the hash of a payload's content, whatever its chunking and codec.

    An array on disk is that of the one node there is.
    """
    return sha256({name: _digest(array) for name, array in arrays.items()})


def _digest(array: Array) -> str:
    on_disk = isinstance(array, DiskArray)
    return stacked_digest(array) if on_disk else array_digest(array)


Found = dict[str, Array] | CorruptPayloadError

# Results are read and verified together up to this size.
TOGETHER_BYTES = 16 << 20


class Rows(Protocol):
    """A payload that can be read by rows of its variables, one for each node."""

    def rows(self, name: str, slots: Sequence[int]) -> Array:
        """Return fresh rows of one variable, shape (slots, ...).

        Raises:
            CorruptPayloadError: the variable or a row is missing or unreadable.
        """

    def row_bytes(self, name: str) -> int:
        """Return the bytes of a row; 0 if the variable is missing."""


@dataclass(frozen=True)
class ArrayRows:
    """A payload in memory.

    Attributes:
        payload: its id.
        arrays: variable to array, leading dimension `node`.
    """

    payload: str
    arrays: Mapping[str, Array]

    def rows(self, name: str, slots: Sequence[int]) -> Array:
        """Return copies of rows of one variable."""
        try:
            return self.arrays[name][list(slots)]
        except LookupError as error:
            fault = f"{name} is missing"
            raise corrupt_payload(self.payload, slots[0], fault) from error

    def row_bytes(self, name: str) -> int:
        """Return the bytes of a row; 0 if the variable is missing."""
        array = self.arrays.get(name, np.empty(0))
        return array.nbytes // max(1, len(array))


def read_rows(
    payload: Rows, receipts: Sequence[Receipt], parts: Sequence[str]
) -> list[Found]:
    """Return parts of several results of one payload, with their digests verified.

    A variable is read once for as many of them as fit. What is wrong with one result
    stands in its place and concerns no other.

    Args:
        payload: that holds them.
        receipts: of the results.
        parts: `variable` or `variable@label`.

    Raises:
        UnknownNameError: a result has no such part.
    """
    variables = {variable_of(part) for part in parts}
    size = sum(map(payload.row_bytes, variables))
    most = max(1, TOGETHER_BYTES // max(1, size))
    alike: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, receipt in enumerate(receipts):
        alike[tuple(receipt.parts)].append(number)
    rows: list[Found] = [{} for _ in receipts]
    for numbers in alike.values():
        for start in range(0, len(numbers), most):
            few = numbers[start : start + most]
            read = _read_alike(payload, [receipts[number] for number in few], parts)
            for number, row in zip(few, read, strict=True):
                rows[number] = row
    return rows


def unreadable(rows: Sequence[Found]) -> list[int]:
    """Return the places of results that could not be read."""
    return [n for n, row in enumerate(rows) if isinstance(row, CorruptPayloadError)]


def _read_alike(
    payload: Rows, receipts: Sequence[Receipt], parts: Sequence[str]
) -> list[Found]:
    """Read results that have the same parts."""
    labels = [_labels(receipts[0], part) for part in parts]
    slots = [receipt.slot for receipt in receipts]
    try:
        columns = {
            part: _verified(receipts, part, cut, payload.rows(variable_of(part), slots))
            for part, cut in zip(parts, labels, strict=True)
        }
    except CorruptPayloadError as error:
        if len(receipts) == 1:
            return [error]
        return [each for r in receipts for each in _read_alike(payload, [r], parts)]
    return [
        {part: np.asarray(column[row]) for part, column in columns.items()}
        for row in range(len(receipts))
    ]


class Nodes(Protocol):
    """A payload that can be gone through once, node by node, and parts of nodes."""

    def names(self) -> Iterable[str]:
        """Return the names of the variables."""

    def form(self, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return shape, (nodes, ...), and type of a variable.

        Raises:
            CorruptPayloadError: it is not one entry for each node.
        """

    def nodes(self, name: str) -> Iterator[Iterable[Array]]:
        """Yield the entry of each node, in parts along its first dimension.

        Raises:
            CorruptPayloadError: a node is missing or unreadable.
        """


@dataclass(frozen=True)
class ArrayNodes:
    """The same of a payload in memory.

    Attributes:
        arrays: variable to array, leading dimension `node`.
    """

    arrays: Mapping[str, Array]

    def names(self) -> Iterable[str]:
        """Return the names of the variables."""
        return self.arrays

    def form(self, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return shape, (nodes, ...), and type of a variable."""
        return self.arrays[name].shape, self.arrays[name].dtype

    def nodes(self, name: str) -> Iterator[Iterable[Array]]:
        """Yield the entry of each node as one part."""
        return ([np.asarray(row)] for row in self.arrays[name])


@dataclass(frozen=True)
class _Digests:
    """Digests of a variable: as a whole, of its nodes, and of slices of these."""

    whole: str
    nodes: Sequence[str]
    slices: Sequence[Sequence[str]]


def verify_nodes(payload: str, nodes: Nodes, receipts: Iterable[Receipt]) -> None:
    """Raise CorruptPayloadError unless id and receipts match; parts come in turn."""
    known = list(receipts)
    cut = {variable_of(part) for r in known for part in r.parts if "@" in part}
    digests = {n: _digests(nodes, n, is_cut=n in cut) for n in nodes.names()}
    if sha256({name: each.whole for name, each in digests.items()}) != payload:
        raise corrupt_payload(payload, None, "its content is not what was written")
    for receipt in known:
        for part in dict.fromkeys(map(variable_of, receipt.parts)):
            _compare_digests(receipt, part, digests.get(part))


def _digests(nodes: Nodes, name: str, *, is_cut: bool) -> _Digests:
    shape, dtype = nodes.form(name)
    if dtype.kind in TEXT:
        rows = [np.asarray(part) for parts in nodes.nodes(name) for part in parts]
        array = np.stack(rows) if rows else np.empty(shape, dtype)
        slices = [row_digests(row) for row in array if is_cut and row.ndim]
        return _Digests(array_digest(array), row_digests(array), slices)
    whole, digests, slices = DigestInParts(dtype, shape), [], []
    for parts in nodes.nodes(name):
        if is_cut and len(shape) > 1:
            # Without rows where a store is corrupt, which the digest then tells.
            node = np.concatenate([np.empty((0, *shape[2:]), dtype), *parts])
            parts = [node]
            slices.append(row_digests(node))
        digest = DigestInParts(dtype, shape[1:])
        for part in parts:
            whole.update(part)
            digest.update(part)
        digests.append(digest.hexdigest())
    return _Digests(whole.hexdigest(), digests, slices)


def _compare_digests(receipt: Receipt, part: str, digests: _Digests | None) -> None:
    """Compare a variable of one result."""
    slot, labels = receipt.slot, _labels(receipt, part)
    if digests is None or slot >= len(digests.nodes):
        raise corrupt_payload(str(receipt.payload), slot, f"{part} is missing")
    given = [digests.nodes[slot]]
    if labels:
        given = [*digests.slices[slot]] if digests.slices else []
        if len(given) != len(labels):
            raise corrupt(receipt, f"{part}: expected {len(labels)} slices")
    for name, digest in zip(labels or [part], given, strict=True):
        if receipt.parts[name] not in (DIVERGED, digest):
            raise corrupt(receipt, f"{name}: its content is not what was computed")


def variable_of(part: str) -> str:
    """Return the variable that a part, `variable` or `variable@label`, belongs to."""
    return part.partition("@")[0]


def _labels(receipt: Receipt, part: str) -> list[str]:
    """Return the parts that the variable of a part is cut into; none if it is whole."""
    variable = variable_of(part)
    cut = [name for name in receipt.parts if name.startswith(f"{variable}@")]
    if part not in receipt.parts and not (cut and part == variable):
        raise UnknownNameError(
            f"{receipt.stage}: expected a part of the result, got '{part}'. "
            f"{nearest(part, receipt.parts)}"
        )
    return cut


def _verified(
    receipts: Sequence[Receipt], part: str, labels: Sequence[str], column: Array
) -> Array:
    """Return a part of all results, (results, ...), out of rows of its variable."""
    if not labels:
        _compare(receipts, part, column)
        return column
    if column.ndim == 1 or column.shape[1] != len(labels):
        raise corrupt(receipts[0], f"{part}: expected {len(labels)} slices")
    if part in labels:
        column = column[:, labels.index(part)].copy()
        _compare(receipts, part, column)
        return column
    for number, name in enumerate(labels):
        _compare(receipts, name, column[:, number])
    return column


def _compare(receipts: Sequence[Receipt], part: str, column: Array) -> None:
    for receipt, digest in zip(receipts, row_digests(column), strict=True):
        if receipt.parts[part] not in (DIVERGED, digest):
            raise corrupt(receipt, f"{part}: its content is not what was computed")


def corrupt(receipt: Receipt, fault: str) -> CorruptPayloadError:
    """Return the error for a receipt whose payload differs from it."""
    return corrupt_payload(str(receipt.payload), receipt.slot, fault)


def corrupt_payload(payload: str, slot: int | None, fault: str) -> CorruptPayloadError:
    """Return the error for an unusable payload, or one node's slot (row) of it."""
    where = f"payload {payload[:12]}" + ("" if slot is None else f", slot {slot}")
    return CorruptPayloadError(f"{where}: {fault.rstrip('.')}")
