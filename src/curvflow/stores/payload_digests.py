"""What a payload's arrays are worth: its id, and parts that match their receipt."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from curvflow.errors import CorruptPayloadError, UnknownNameError, nearest
from curvflow.schemas.keys import array_digest, sha256
from curvflow.schemas.nodes import Array
from curvflow.schemas.records.receipts import DIVERGED, Receipt

TEXT = "UOT"


def payload_id(arrays: Mapping[str, Array]) -> str:
    """Hash the content of a payload, so that equal payloads coincide.

    Args:
        arrays: variable to array of shape (nodes, ...).

    Returns:
        64 hexadecimal digits, which depend on no chunking, codec or version of zarr.
    """
    return sha256({name: array_digest(array) for name, array in arrays.items()})


def read_parts(
    receipt: Receipt, parts: Sequence[str], fetch: Callable[[str], Array]
) -> dict[str, Array]:
    """Cut parts out of a node's variables and verify their digests.

    Args:
        receipt: names the parts there are, and their digests.
        parts: variable names, or `variable@label` for one slice.
        fetch: reads one variable of the node.

    Returns:
        Part name to array.

    Raises:
        UnknownNameError: the receipt has no such part.
        CorruptPayloadError: a digest differs.
    """
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
    """Raise CorruptPayloadError unless arrays are a payload's, and its receipts'."""
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
    """Return the error that a receipt's payload is not what it should be."""
    return corrupt_payload(str(receipt.payload), receipt.slot, what)


def corrupt_payload(payload: str, slot: int | None, what: str) -> CorruptPayloadError:
    """Return the error that a payload, or one node's slot of it, cannot be used.

    Args:
        payload: its id.
        slot: the node's row; None for all of it.
        what: is wrong.

    Returns:
        The error, to be raised.
    """
    where = f"payload {payload[:12]}" + ("" if slot is None else f", slot {slot}")
    return CorruptPayloadError(f"{where}: {what.rstrip('.')}")
