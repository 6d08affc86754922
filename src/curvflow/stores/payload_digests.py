"""Ids of payloads, and verification of their parts against receipts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from curvflow.errors import CorruptPayloadError, UnknownNameError, nearest
from curvflow.schemas.keys import array_digest, sha256
from curvflow.schemas.nodes import Array
from curvflow.schemas.records.receipts import DIVERGED, Receipt

TEXT = "UOT"


def payload_id(arrays: Mapping[str, Array]) -> str:
    """Return the hash of a payload's content, whatever its chunking and codec."""
    return sha256({name: array_digest(array) for name, array in arrays.items()})


def read_parts(
    receipt: Receipt, parts: Sequence[str], fetch: Callable[[str], Array]
) -> dict[str, Array]:
    """Return parts, `variable` or `variable@label`, with their digests verified."""
    arrays = {}
    for part in parts:
        variable = part.partition("@")[0]
        slices = _slices(receipt, variable)
        if part not in receipt.parts and part not in (variable if slices else ()):
            raise UnknownNameError(
                f"{receipt.stage}: expected a part of the result, got '{part}'. "
                f"{nearest(part, receipt.parts)}"
            )
        arrays[part] = _read_part(receipt, part, slices, fetch(variable))
    return arrays


def verify_receipts(
    payload: str, arrays: Mapping[str, Array], receipts: Iterable[Receipt]
) -> None:
    """Raise CorruptPayloadError unless arrays match a payload's id and its receipts."""
    if payload_id(arrays) != payload:
        raise corrupt_payload(payload, None, "its content is not what was written")
    for receipt in receipts:

        def fetch(variable: str, slot: int = receipt.slot) -> Array:
            if variable not in arrays or slot >= len(arrays[variable]):
                raise corrupt_payload(payload, slot, f"{variable} is missing")
            return np.asarray(arrays[variable][slot])

        variables = dict.fromkeys(part.partition("@")[0] for part in receipt.parts)
        read_parts(receipt, list(variables), fetch)


def _slices(receipt: Receipt, variable: str) -> list[str]:
    return [part for part in receipt.parts if part.startswith(f"{variable}@")]


def _read_part(
    receipt: Receipt, part: str, slices: Sequence[str], array: Array
) -> Array:
    if not slices:
        return _verified(receipt, part, array)
    if array.ndim == 0 or len(array) != len(slices):
        raise corrupt(receipt, f"{part}: expected {len(slices)} slices")
    if part in slices:
        piece = array[slices.index(part)]
        return _verified(receipt, part, np.array(piece))
    for name, piece in zip(slices, array, strict=True):
        _verified(receipt, name, piece)
    return array


def _verified(receipt: Receipt, part: str, array: Array) -> Array:
    expected = receipt.parts[part]
    if expected != DIVERGED and array_digest(array) != expected:
        raise corrupt(receipt, f"{part}: its content is not what was computed")
    return array


def corrupt(receipt: Receipt, what: str) -> CorruptPayloadError:
    """Return the error for a receipt whose payload differs from it."""
    return corrupt_payload(str(receipt.payload), receipt.slot, what)


def corrupt_payload(payload: str, slot: int | None, what: str) -> CorruptPayloadError:
    """Return the error for an unusable payload, or one node's slot (row) of it."""
    where = f"payload {payload[:12]}" + ("" if slot is None else f", slot {slot}")
    return CorruptPayloadError(f"{where}: {what.rstrip('.')}")
