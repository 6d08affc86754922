"""Payloads as zarr groups: encoding to files, and reading.

A payload is one zarr v3 group, one array (nodes, ...) per variable: one chunk for a
small one, else a chunk per node, zstd and then crc32c over the compressed bytes. zarr
answers a missing chunk with the fill value and without a word, so presence is checked
here before anything is read.
"""

from __future__ import annotations

import errno
import io
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import zarr
from zarr.abc.store import Store
from zarr.codecs import Crc32cCodec, ZstdCodec
from zarr.core.buffer import Buffer
from zarr.storage import LocalStore, MemoryStore, ZipStore

from curvflow.errors import CorruptPayloadError, StoreError
from curvflow.schemas.disk_arrays import DiskArray, RowReader, as_array
from curvflow.schemas.keys import array_digest
from curvflow.schemas.nodes import Array
from curvflow.stores.base import Layout
from curvflow.stores.payload_digests import TEXT, corrupt_payload, payload_id
from curvflow.stores.row_files import rows_in

# One shard holds as many nodes as fit in this, so that writing needs no more memory.
SHARD_BYTES = 64 << 20
# Variables up to this size are one chunk, as a chunk takes zarr 0.14 to 0.4 ms however
# small it is (benchmarks/payloads.py). Where each node has a chunk, as in payloads of
# earlier versions, they are read whole once a second node of them is wanted.
WHOLE_BYTES = 1 << 20
# Every entry of a zip bears this date, so that equal payloads are equal files.
DATE = (1980, 1, 1, 0, 0, 0)
# Variable that holds the digest of all others; no variable of a stage has a colon.
DIGEST = "digest:of"
# Not the payload's fault, so no reason to compute it again.
NOT_CORRUPT = {errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM}

ZarrArray = zarr.Array[Any]


def entries(
    arrays: Mapping[str, Array], *, sharded: bool
) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each entry of the zarr group."""
    held: dict[str, Buffer] = {}
    group = zarr.create_group(MemoryStore(held), zarr_format=3)
    for name, array in sorted(arrays.items()):
        if isinstance(array, DiskArray):
            yield from _row_chunks(group, name, array, held)
        else:
            yield from _chunks(group, name, _stored(array), held, sharded)
    for name, data in sorted(held.items()):
        yield name, data.to_bytes()


def _chunks(
    group: zarr.Group, name: str, array: Array, held: dict[str, Buffer], sharded: bool
) -> Iterator[tuple[str, bytes]]:
    nodes, inner = len(array), tuple(max(1, size) for size in array.shape[1:])
    step = max(1, min(nodes, SHARD_BYTES * nodes // max(1, array.nbytes)))
    rows = step if array.nbytes <= WHOLE_BYTES else 1
    is_text = array.dtype.kind in TEXT
    made = group.create_array(
        name,
        shape=array.shape,
        dtype=str if is_text else array.dtype,
        chunks=(rows, *inner),
        shards=(step, *inner) if sharded else None,
        compressors=[ZstdCodec(level=1), Crc32cCodec()],
        fill_value="" if is_text else 0,
        config={"write_empty_chunks": True},
    )
    for start in range(0, nodes, step):
        made[start : start + step] = array[start : start + step]
        for key in [key for key in held if not key.endswith("zarr.json")]:
            yield key, held.pop(key).to_bytes()


def _row_chunks(
    group: zarr.Group, name: str, array: DiskArray, held: dict[str, Buffer]
) -> Iterator[tuple[str, bytes]]:
    """Yield chunks of rows as they are, so that single rows can be read of them."""
    step = max(1, min(len(array), SHARD_BYTES * len(array) // max(1, array.nbytes)))
    made = group.create_array(
        name,
        shape=(1, *array.shape),
        dtype=array.dtype,
        chunks=(1, step, *array.shape[1:]),
        compressors=None,
        fill_value=0,
        config={"write_empty_chunks": True},
    )
    for number, block in enumerate(array.blocks(step)):
        made[:, number * step : number * step + len(block)] = block[None]
        for key in [key for key in held if not key.endswith("zarr.json")]:
            yield key, held.pop(key).to_bytes()


def _stored(array: Array) -> Array:
    if array.dtype.kind in TEXT:
        return array.astype(np.dtypes.StringDType())
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def zip_payload(arrays: Mapping[str, Array]) -> bytes:
    """Encode a payload as a sorted, uncompressed zip; equal arrays give equal bytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, data in sorted(entries(arrays, sharded=False)):
            archive.writestr(zipfile.ZipInfo(name, DATE), data)
    return file.getvalue()


def zip_snapshot(arrays: Mapping[str, Array]) -> bytes:
    """Encode the snapshot of a tile: arrays of any shapes, and their digest."""
    whole = {name: np.asarray(array)[None] for name, array in arrays.items()}
    return zip_payload({**whole, DIGEST: np.array([payload_id(whole)])})


def read_snapshot(path: Path) -> dict[str, Array] | None:
    """Read a snapshot written by `zip_snapshot`; None if its digest differs."""
    try:
        whole = ZarrPayload(path.name, path).read_all()
    except StoreError:
        return None
    digest = whole.pop(DIGEST, None)
    if digest is None or str(digest[0]) != payload_id(whole):
        return None
    return {name: array[0] for name, array in whole.items()}


@contextmanager
def _corruption(payload: str, slot: int | None, what: str) -> Iterator[None]:
    try:
        yield
    except (CorruptPayloadError, MemoryError):
        raise
    # Flipped bits in metadata make zarr and zipfile fail anywhere, with any error.
    except Exception as error:
        if isinstance(error, OSError) and error.errno in NOT_CORRUPT:
            raise StoreError(
                f"payload {payload[:12]}: expected it to be readable, got "
                f"{error.strerror}. Check your rights and limits."
            ) from error
        reason = f"{what} cannot be read ({type(error).__name__}: {error})"
        raise corrupt_payload(payload, slot, reason) from error


class ZarrPayload:
    """An opened payload; a small variable is read whole and kept."""

    def __init__(self, payload: str, path: Path) -> None:
        """Open a folder or a zip file."""
        self._payload = payload
        with _corruption(payload, None, "it"):
            store, names, self._holds = _opened(path)
            self._folder = path if path.is_dir() else None
            group = zarr.open_group(store, mode="r", zarr_format=3)
            # One by one: of several at once zarr raises the first error and leaves the
            # others to the interpreter, which prints them.
            self._arrays = {name: cast("ZarrArray", group[name]) for name in names}
        self._whole: dict[str, Array] = {}
        self._asked: set[str] = set()
        self._verified: dict[RowReader, str] = {}

    def layout(self) -> dict[str, Layout]:
        """Return shape within one node and type of each variable."""
        return {
            name: Layout(
                array.shape[1:],
                np.dtype(object) if array.dtype.kind in TEXT else array.dtype,
            )
            for name, array in self._arrays.items()
        }

    def rows(self, name: str, slots: Sequence[int]) -> Array:
        """Return fresh rows of one variable, shape (slots, ...)."""
        array = self._array(name, slots)
        if self._is_whole(name, array, slots):
            return self._whole[name][list(slots)]
        if len(slots) == 1:
            return self._read(name, array, slots[0], slots[0] + 1)
        return np.concatenate([self._read(name, array, s, s + 1) for s in slots])

    def on_disk(self, name: str, slot: int, digest: str) -> DiskArray | None:
        """Return one node's array with its rows unread; None if they are compressed.

        All of it is read once, to compare its digest.

        Raises:
            CorruptPayloadError: a chunk is missing, or the digest differs.
        """
        array = self._arrays.get(name)
        if array is None or self._folder is None or not _has_row_chunks(array):
            return None
        with _corruption(self._payload, slot, name):
            found = rows_in(
                [self._folder / chunk for chunk in _chunk_names(name, array, slot)],
                array.shape[1:],
                array.dtype,
                rows_per_file=array.chunks[1],
            )
            if found.reader not in self._verified:
                self._verified[found.reader] = array_digest(as_array(found))
            if self._verified[found.reader] != digest:
                what = f"{name} is not what was computed"
                raise CorruptPayloadError(f"payload {self._payload[:12]}: {what}")
        return found

    def row_bytes(self, name: str) -> int:
        """Return the bytes of a row; 0 if the variable is missing."""
        array = self._arrays.get(name)
        return 0 if array is None else array.nbytes // max(1, array.shape[0])

    def _is_whole(self, name: str, array: ZarrArray, slots: Sequence[int]) -> bool:
        """Return whether a variable is kept whole, after reading it if that is quicker.

        Of chunks that hold a node each, the first is read alone.
        """
        if name in self._whole:
            return True
        alone = array.chunks[0] == 1 and len(slots) == 1 and name not in self._asked
        self._asked.add(name)
        return not alone and array.nbytes <= WHOLE_BYTES and self._load(name, array)

    def read_all(self) -> dict[str, Array]:
        """Return all variables of all nodes, shape (nodes, ...)."""
        return {
            name: self._read(name, array, 0, array.shape[0])
            for name, array in self._arrays.items()
        }

    def _array(self, name: str, slots: Sequence[int]) -> ZarrArray:
        array = self._arrays.get(name)
        rows = 0 if array is None or array.ndim == 0 else array.shape[0]
        if array is None or not all(0 <= slot < rows for slot in slots):
            raise corrupt_payload(self._payload, slots[0], f"{name} is missing")
        return array

    def _load(self, name: str, array: ZarrArray) -> bool:
        try:
            self._whole[name] = self._read(name, array, 0, array.shape[0])
        except CorruptPayloadError:
            return False  # some other node's chunk; those that are well stay readable
        return True

    def _read(self, name: str, array: ZarrArray, start: int, stop: int) -> Array:
        with _corruption(self._payload, start, name):
            step = (array.shards or array.chunks)[0]
            for row in range(start // step, -(-stop // step)) if array.size else ():
                if not all(map(self._holds, _chunk_names(name, array, row))):
                    slot = max(start, row * step)
                    raise corrupt_payload(self._payload, slot, f"{name} has no chunk")
            values = np.asarray(array[start:stop])
        return (
            values.astype(object).astype(str) if values.dtype.kind in TEXT else values
        )


def _opened(path: Path) -> tuple[Store, list[str], Callable[[str], bool]]:
    """Return a payload's zarr store, its variables, and a test for an entry."""
    if path.is_dir():
        variables = sorted(entry.name for entry in path.iterdir() if entry.is_dir())
        store = LocalStore(path, read_only=True)
        return store, variables, lambda entry: (path / entry).is_file()
    with zipfile.ZipFile(path) as archive:
        names = frozenset(archive.namelist())
    variables = sorted({entry.partition("/")[0] for entry in names if "/" in entry})
    return ZipStore(path, mode="r"), variables, names.__contains__


def _chunk_names(name: str, array: ZarrArray, row: int) -> list[str]:
    """Return the entries that hold a row of chunks: one, or several of an array's."""
    if not _has_row_chunks(array):
        return ["/".join([name, "c", str(row), *["0"] * (array.ndim - 1)])]
    count, rest = -(-array.shape[1] // array.chunks[1]), ["0"] * (array.ndim - 2)
    return ["/".join([name, "c", str(row), str(n), *rest]) for n in range(count)]


def _has_row_chunks(array: ZarrArray) -> bool:
    """Return whether rows lie in chunks as they are."""
    return array.ndim > 2 and array.shards is None and not array.compressors
