"""The folder of a monitor: its numbers, and what the next measurement begins with.

`monitor.npz` holds an array for each variable and the identity as JSON, and
`state.npz` the weights and vectors of the last measurement. Each is replaced at once,
numbers first: what is killed between the two loses the start of the next measurement.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from curvflow.errors import InputError, StoreError
from curvflow.schemas.kinds.monitor.read import IDENTITY
from curvflow.schemas.nodes import Array
from curvflow.stores.files import NO_ARRAYS, Disk, disk_errors

NUMBERS, STATE = "monitor.npz", "state.npz"


def write(path: Path, arrays: Mapping[str, Array]) -> None:
    """Replace a file of arrays at once; a kill leaves the old one.

    Args:
        path: of the file, whose folder is made if there is none.
        arrays: by name.

    Raises:
        StoreError: it cannot be written.
    """
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    disk, partial = Disk(), path.with_name(f".{path.name}.{uuid4().hex}")
    content = buffer.getvalue()
    with disk_errors(path, len(content)):
        try:
            disk.make_folder(path.parent)
            disk.write(partial, content)
            disk.flush(partial)
            disk.rename(partial, path)
            disk.flush(path.parent)
        finally:
            disk.remove(partial)


def read(path: Path) -> dict[str, Array]:
    """Return the arrays of a file.

    Args:
        path: of the file.

    Raises:
        StoreError: there is none, or it holds no arrays.
    """
    try:
        with disk_errors(path), np.load(path, allow_pickle=False) as loaded:
            return dict(loaded)
    except (TypeError, OSError, *NO_ARRAYS) as error:
        raise StoreError(
            f"{path}: expected a file that a curvflow.Monitor has written, got "
            "another. Name the folder that was its store."
        ) from error


def numbers_file(path: str | Path) -> Path:
    """Return the file with the numbers of a folder, or the file itself."""
    path = Path(path).expanduser()
    return path / NUMBERS if path.suffix != ".npz" else path


class _Absent:
    """A setting that one side lacks; it equals none that the other has."""

    def __str__(self) -> str:
        return "nothing"


_ABSENT = _Absent()


def check_identity(there: Mapping[str, Array], here: Mapping[str, Any]) -> None:
    """Refuse numbers that were measured in another way.

    Args:
        there: arrays that are kept, with their identity.
        here: the identity of the monitor that would go on with them.

    Raises:
        InputError: they differ; the first difference is named.
    """
    kept = json.loads(str(there[IDENTITY])) if IDENTITY in there else {}
    if kept == json.loads(json.dumps(here)):
        return
    flat_there, flat_here = _flat(kept), _flat(here)
    for name in [*flat_here, *flat_there]:
        before, now = flat_there.get(name, _ABSENT), flat_here.get(name, _ABSENT)
        if before != now:
            raise InputError(
                f"store: expected measurements of the same kind, got {name} {before} "
                f"there and {now} here. Name another folder, or take the settings that "
                "are kept there."
            )


def _flat(nested: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{above}{name}.")
        else:
            flat[f"{above}{name}"] = value
    return flat
