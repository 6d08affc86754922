"""Several inputs of a sample, side by side in one array, and how to part them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field

from curvflow.errors import InputError
from curvflow.schemas.disk_arrays import DiskArray, JoinedRows, as_array, is_on_disk
from curvflow.schemas.kind import Variable
from curvflow.schemas.nodes import Array, NodeData
from curvflow.schemas.params import Names

INPUT_PARTS = "input_parts"

# Whole numbers beside real ones stay exact in single precision.
LARGEST_BESIDE_REAL = 1 << 24

SEVERAL_INPUTS = Variable(
    INPUT_PARTS,
    "where a sample has several inputs, side by side in one row: JSON of the name, the "
    "shape and the kind (f, i, b) of each",
    dtype="str",
    bulk=True,
    optional=True,
)

# Of one array, of several by their names, or by name of the argument that each is.
InputArrays = (
    str
    | Annotated[Names, Field(min_length=1)]
    | Annotated[dict[str, str], Field(min_length=1)]
)


class InputPart(NamedTuple):
    """One of several inputs.

    Attributes:
        name: of the argument that it is.
        shape: of one sample.
        kind: `f`, real numbers; `i`, whole ones; `b`, flags.
    """

    name: str
    shape: tuple[int, ...]
    kind: str

    @property
    def size(self) -> int:
        """Entries of one sample."""
        return prod(self.shape)


def argument_names(spec: Any) -> tuple[str, ...]:
    """Return the names of several inputs, of the parameter `inputs`; none of one."""
    return tuple(spec) if isinstance(spec, tuple | Mapping) else ()


def array_names(spec: InputArrays, names: tuple[str, ...]) -> dict[str, str]:
    """Return the array of each of several inputs.

    Args:
        spec: the parameter `inputs` or `test_inputs`.
        names: of the training inputs.

    Raises:
        InputError: the test set has other inputs.
    """
    if len(set(names)) < len(names):
        raise InputError(
            f"inputs: expected each name once, got {', '.join(names)}. Name each once."
        )
    arrays = dict(spec) if isinstance(spec, Mapping) else {}
    if not isinstance(spec, str | Mapping) and len(spec) == len(names):
        arrays = dict(zip(names, spec, strict=True))
    if set(arrays) != set(names):
        raise InputError(
            f"test_inputs: expected the inputs {', '.join(names)}, got "
            f"{', '.join(argument_names(spec)) or spec}. Name an array for each."
        )
    return {name: arrays[name] for name in names}


def _check_rows(role: str, arrays: Mapping[str, Array]) -> None:
    """Refuse arrays that have not a row each for the same samples."""
    for name, array in arrays.items():
        if not array.ndim:
            raise InputError(
                f"{role}.{name}: expected a row for each sample, got a number. Give it "
                "a first dimension over samples."
            )
    counts = {name: len(array) for name, array in arrays.items()}
    if len(set(counts.values())) != 1:
        listed = ", ".join(f"{count} of {name}" for name, count in counts.items())
        raise InputError(
            f"{role}: expected as many rows in each, got {listed}. Give each sample a "
            "row in all of them."
        )


def _part(role: str, name: str, array: Array) -> InputPart:
    """Return the description of one input; InputError if it holds no numbers."""
    if array.dtype.kind not in "fiub":
        raise InputError(
            f"{role}.{name}: expected real numbers, got dtype {array.dtype}. "
            "Convert it."
        )
    kind = "i" if array.dtype.kind == "u" else array.dtype.kind
    return InputPart(name, array.shape[1:], kind)


def _check_largest(place: str, array: Array, *, is_real: bool) -> None:
    """Refuse whole numbers that the type of all inputs does not hold."""
    most = _largest(array)
    if most >= (LARGEST_BESIDE_REAL if is_real else 1 << 63):
        limit = "2^24 beside real ones" if is_real else "2^63"
        raise InputError(
            f"{place}: expected whole numbers below {limit}, got {most}. Number them "
            "anew."
        )


def pack(role: str, arrays: Mapping[str, Array]) -> tuple[Array, str]:
    """Put several inputs side by side into one array.

    Args:
        role: `inputs` or `test_inputs`, for messages.
        arrays: each of shape (N, ...), in the order of the arguments.

    Returns:
        Whole numbers (N, P), int64, or float64 if one is real; and JSON of the parts.

    Raises:
        InputError: they are of other lengths, are no numbers, or hold whole numbers
            that int64, or single precision, does not.
    """
    _check_rows(role, arrays)
    parts = [_part(role, name, array) for name, array in arrays.items()]
    is_real = any(part.kind == "f" for part in parts)
    for part in parts:
        if part.kind == "i":
            _check_largest(f"{role}.{part.name}", arrays[part.name], is_real=is_real)
    dtype = np.float64 if is_real else np.int64
    text = json.dumps([list(part) for part in parts], separators=(",", ":"))
    if any(map(is_on_disk, arrays.values())):
        joined = JoinedRows(tuple(arrays.values()), np.dtype(dtype))
        return as_array(DiskArray(joined, joined.dtype)), text
    rows = [
        arrays[part.name].reshape(-1, part.size).astype(dtype)
        if part.size
        else np.empty((len(arrays[part.name]), 0), dtype)
        for part in parts
    ]
    return np.concatenate(rows, axis=1), text


def _largest(array: Array) -> int:
    """Return the largest magnitude of whole numbers, which int64 may not hold."""
    return max(0, *(abs(int(end(initial=0))) for end in (array.min, array.max)))


def input_parts(text: str) -> tuple[InputPart, ...]:
    """Return the parts of inputs that `pack` has described."""
    return tuple(
        InputPart(name, tuple(shape), kind) for name, shape, kind in json.loads(text)
    )


def only_one_input(given: Mapping[str, Any] | NodeData, taker: str) -> None:
    """Refuse data whose samples have several inputs.

    Args:
        given: variables of the data set.
        taker: takes one input.

    Raises:
        InputError: there are several.
    """
    if INPUT_PARTS in given:
        names = ", ".join(part.name for part in input_parts(str(given[INPUT_PARTS])))
        raise InputError(
            f"data: expected one input a sample for {taker}, got {names}. Take the "
            "module of a factory, whose forward has these names."
        )
