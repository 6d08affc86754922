"""Arrays in zarr folders and netCDF files, whole or by rows."""

from __future__ import annotations

import base64
import os
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from curvflow.errors import InputError
from curvflow.schemas.disk_arrays import BLOCK_BYTES, DiskArray, as_array
from curvflow.schemas.nodes import Array
from curvflow.schemas.words import one_line
from curvflow.stores.row_files import stamp_of

if TYPE_CHECKING:
    import xarray

NETCDF = frozenset({".nc", ".nc4", ".cdf", ".netcdf"})

_METADATA = ("zarr.json", ".zarray", ".zgroup")
_PACKED = ("scale_factor", "add_offset")
# What netCDF has where nothing was written, if a variable states nothing else.
UNWRITTEN = 9.969209968386869e36
_MISSING = ("_FillValue", "missing_value")

Stamps = tuple[tuple[str, int, int], ...]


def is_zarr(path: Path) -> bool:
    """Return whether a path is a folder in which zarr keeps an array or a group."""
    return path.is_dir() and any((path / name).is_file() for name in _METADATA)


def stored_arrays(name: str, path: Path, limit: int | None) -> dict[str, Array]:
    """Return the arrays of a zarr folder or a netCDF file.

    Args:
        name: parameter that names it, for messages.
        path: where it is.
        limit: bytes of an array, unpacked, above which its rows are not read until they
            are needed; None to read all arrays.

    Returns:
        The arrays by name; that of a folder which is an array itself is `array`.

    Raises:
        InputError: it cannot be read, packs numbers in a way that zarr does not undo,
            or has rows that cannot be read apart.
        MemoryError: the arrays that are read do not fit.
        OSError: a file cannot be read.
    """
    stamps = _stamps(path)
    try:
        opened = _opened(str(path), stamps)
        return {key: _array(key, opened, path, limit, stamps) for key in opened}
    except InputError as error:
        raise InputError(f"{name}: {error}") from error
    except MemoryError:
        raise
    except Exception as error:  # of zarr, xarray, HDF5 and of codecs, of any kind
        # HDF5 raises one without a number where the content is broken.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise InputError(f"{name}: {_not_readable(path, error)}") from error


def _not_readable(path: Path, error: Exception) -> str:
    return (
        f"expected the arrays of {path.name} to be readable, got "
        f"{type(error).__name__} ({one_line(error)[:200]}). Save it again."
    )


def _array(
    key: str,
    opened: Mapping[str, _Stored],
    path: Path,
    limit: int | None,
    stamps: Stamps,
) -> Array:
    stored = opened[key]
    size = int(np.prod(stored.shape, dtype=np.int64)) * stored.dtype.itemsize
    is_read = limit is None or size <= limit or len(stored.shape) < 2
    if is_read or stored.dtype.kind not in "fiub":
        return stored.read(slice(None))
    row = size // stored.shape[0]
    assert limit is not None
    if stored.rows_per_chunk * row > max(limit, BLOCK_BYTES):
        raise InputError(
            f"expected chunks of no more than rows_above, {limit} bytes, got "
            f"{stored.rows_per_chunk} rows of {row} bytes in a chunk of '{key}' of "
            f"{path.name}. Save it in chunks of fewer rows."
        )
    rows = StoredRows(
        str(path), stamps, key, stored.shape, stored.dtype, stored.rows_per_chunk
    )
    return as_array(DiskArray(rows, stored.dtype))


@dataclass(frozen=True)
class StoredRows:
    """Rows of an array in chunks, each unpacked once for all rows asked of it.

    Attributes:
        path: the folder or file.
        stamps: name, size and time of change of each file, which show whether it is
            the same.
        name: of the array.
        shape: of the whole array.
        dtype: of the rows read.
        rows_per_chunk: rows that are unpacked together.
    """

    path: str
    stamps: Stamps
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    rows_per_chunk: int

    def read(self, numbers: Array) -> Array:
        """Return rows by their numbers, in any order.

        Raises:
            InputError: a file has changed, or cannot be read.
            MemoryError: the rows do not fit.
        """
        try:
            rows = self._rows(numbers)
            is_same = _stamps(Path(self.path)) == self.stamps
        except (InputError, MemoryError):
            raise
        except Exception as error:  # of zarr, xarray, HDF5 and of codecs, of any kind
            raise InputError(_not_readable(Path(self.path), error)) from error
        if not is_same:
            raise InputError(
                f"expected the arrays of {Path(self.path).name} to stay as they were, "
                "got one that has changed since. Run again."
            )
        return rows

    def _rows(self, numbers: Array) -> Array:
        rows = np.empty((len(numbers), *self.shape[1:]), self.dtype)
        stored = _opened(self.path, self.stamps)[self.name]
        order = np.argsort(numbers, kind="stable")
        ascending = np.asarray(numbers, np.int64)[order]
        chunks = np.flatnonzero(np.diff(ascending // self._rows_at_once)) + 1
        for places in np.split(order, chunks) if len(order) else ():
            first, last = int(numbers[places[0]]), int(numbers[places[-1]])
            block = stored.read(slice(first, last + 1))
            if block.dtype.kind == "f" and self.dtype.kind != "f":
                raise InputError(
                    f"expected a number everywhere in '{self.name}' of "
                    f"{Path(self.path).name}, got {np.isnan(block).sum()} missing. "
                    "Fill them in, or leave those samples out."
                )
            rows[places] = block[numbers[places] - first]
        return rows

    @property
    def _rows_at_once(self) -> int:
        """Whole chunks, as many as fill a block."""
        row = int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize
        chunks = BLOCK_BYTES // max(1, row * self.rows_per_chunk)
        return self.rows_per_chunk * max(1, chunks)


@dataclass(frozen=True)
class _Stored:
    """An array of which slices of rows can be read."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    rows_per_chunk: int
    read: Callable[[slice], Array]


def _stamps(path: Path) -> Stamps:
    """Return stamps that change with the files of an array.

    Raises:
        OSError: a file cannot be found.
    """
    if not path.is_dir():
        return ((path.name, *stamp_of(path.stat())),)
    stamps = [
        (os.path.relpath(file, path), *stamp_of(file.stat()))
        for place, _, names in os.walk(path)
        for file in (Path(place) / name for name in names)
    ]
    return tuple(sorted(stamps))


@lru_cache(maxsize=16)
def _opened(path: str, _: Stamps) -> Mapping[str, _Stored]:
    """Return the arrays, unread; the stamps distinguish those of a changed file."""
    return _zarr(Path(path)) if Path(path).is_dir() else _netcdf(Path(path))


def _zarr(path: Path) -> dict[str, _Stored]:
    import zarr

    node = zarr.open(path, mode="r")
    if isinstance(node, zarr.Array):
        return {"array": _of_zarr(node, path)}
    return {name: _of_zarr(array, path) for name, array in node.arrays()}


def _of_zarr(array: Any, path: Path) -> _Stored:
    if packed := [name for name in _PACKED if name in array.attrs]:
        raise InputError(
            f"expected numbers as they are in {path.name}, got '{array.basename}' with "
            f"{' and '.join(packed)}. Save what xarray.open_zarr makes of it, unpacked."
        )
    rows = (array.shards or array.chunks or (1,))[0]
    read = partial(_zarr_rows, array, _missing_values(array))
    return _Stored(array.shape, array.dtype, rows, read)


def _missing_values(array: Any) -> Array:
    """Return the numbers that xarray, which wrote an array, has for missing ones."""
    if array.dtype.kind not in "fiu":
        return np.zeros(0)
    stated = [array.attrs[name] for name in _MISSING if name in array.attrs]
    # In format 2 it is what zarr fills chunks with, where xarray names dimensions.
    if "_ARRAY_DIMENSIONS" in array.attrs and array.fill_value is not None:
        stated.append(array.fill_value)
    held = []
    for number in (n for value in stated for n in _stated_numbers(value)):
        # An unsigned array has no -1, nor one of whole numbers NaN or -1.5.
        with suppress(OverflowError, ValueError):
            like = array.dtype.type(number)
            if array.dtype.kind == "f" or like == number:
                held.append(like)
    return np.array(held, array.dtype)


def _stated_numbers(value: Any) -> list[Any]:
    """Return the numbers that an attribute states, if it states some."""
    if not isinstance(value, str):
        return [n for n in np.ravel(value).tolist() if isinstance(n, int | float)]
    # Reals of format 3 are eight bytes in base 64; others may write a number.
    with suppress(ValueError):
        decoded = base64.b64decode(value, validate=True)
        if len(decoded) == struct.calcsize("<d"):
            return list(struct.unpack("<d", decoded))
    with suppress(ValueError):
        return [float(value)]
    return []


def _zarr_rows(array: Any, missing: Array, rows: slice) -> Array:
    """Return rows with NaN for missing numbers, whole ones too."""
    values = _rows(array, rows)
    is_missing = np.isin(values, missing)
    if not is_missing.any():
        return values
    reals = values.astype(np.result_type(values.dtype, np.float32))
    reals[is_missing] = np.nan
    return reals


def _netcdf(path: Path) -> dict[str, _Stored]:
    with _dataset(path) as opened:
        return {
            str(name): _Stored(
                variable.shape,
                variable.dtype,
                int((variable.encoding.get("chunksizes") or (1,))[0]),
                partial(_variable_rows, path, str(name)),
            )
            for name, variable in opened.variables.items()
        }


def _variable_rows(path: Path, name: str, rows: slice) -> Array:
    # Not kept open: HDF5 complains of files that are when the interpreter ends.
    with _dataset(path) as opened:
        variable = opened.variables[name]
        values = _rows(variable, rows)
    if values.dtype.kind != "f" or "_FillValue" in variable.encoding:
        return values
    real = values.dtype.type
    return np.where(values == real(UNWRITTEN), real(np.nan), values)


def _dataset(path: Path) -> xarray.Dataset:
    """Open a file with its times as dates, as numbers if NumPy has not all of them."""
    import xarray

    # Times of other calendars, as climate models have, and of years before 1 are in
    # order as numbers too; without cftime xarray opens no file with such.

    reason = None
    for decode_times in (True, False):
        try:
            opened = xarray.open_dataset(path, cache=False, decode_times=decode_times)
        except ValueError as error:
            reason = error
            continue
        if not any(_is_of_cftime(each) for each in opened.variables.values()):
            return opened
        opened.close()
    if find_spec("h5netcdf") is None and not _is_classic(path):
        raise InputError(
            "expected a netCDF file, which of version 4 needs h5netcdf, got "
            f"{path.name}. Run pip install h5netcdf h5py."
        ) from reason
    raise InputError(
        f"expected a netCDF file, of version 3 or 4, got {path.name}, which is none, "
        "or is cut short. Copy or save it again."
    ) from reason


def _is_classic(path: Path) -> bool:
    """Return whether a file says that it is of netCDF before version 4."""
    with path.open("rb") as file:
        return file.read(3) == b"CDF"


def _is_of_cftime(variable: xarray.Variable) -> bool:
    return variable.dtype.kind == "O" and "calendar" in variable.encoding


def _rows(array: Any, rows: slice) -> Array:
    values = np.asarray(array[rows if array.ndim else ()])
    return values.astype(str) if values.dtype.kind in "TO" else values
