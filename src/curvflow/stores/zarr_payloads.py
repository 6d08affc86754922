"""Payloads as zarr groups: encoding to files, and reading.

A payload is one zarr v3 group, one array (nodes, ...) per variable: one chunk for a
small one, else a chunk per node, zstd and then crc32c over the compressed bytes. zarr
answers a missing chunk with the fill value and without a word, so presence is checked
here before anything is read.

Arrays of that form are written and read here, entry by entry, as zarr would: for each
chunk zarr goes to another thread and back, which takes ten times as long as what
is done there. Shards, rows of arrays on disk and whatever else is found are zarr's.
"""

from __future__ import annotations

import errno
import io
import json
import math
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import google_crc32c
import numpy as np
from numcodecs.vlen import VLenUTF8
from numcodecs.zstd import Zstd

from curvflow.errors import CorruptPayloadError, StoreError
from curvflow.schemas.disk_arrays import DiskArray, RowReader, as_array
from curvflow.schemas.keys import array_digest
from curvflow.schemas.nodes import Array
from curvflow.stores.base import Layout
from curvflow.stores.payload_digests import TEXT, corrupt_payload, payload_id
from curvflow.stores.row_files import rows_in

if TYPE_CHECKING:
    import zarr
    from zarr.core.buffer import Buffer

    ZarrArray = zarr.Array[Any]

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

AnyArray: TypeAlias = "PlainArray | ZarrArray"
Content: TypeAlias = Callable[[str], bytes]
# Types of plain arrays, as zarr names them.
PLAIN = {
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
}
STRING = np.dtypes.StringDType()
GROUP = {"attributes": {}, "zarr_format": 3, "node_type": "group"}
ZSTD = Zstd(level=1)
UTF8 = VLenUTF8()
CHECKSUM = 4  # bytes, after the compressed ones


class TornChunkError(ValueError):
    """The bytes of a chunk are not those that its checksum is of."""


@dataclass(frozen=True)
class PlainArray:
    """An array whose chunks hold whole nodes, compressed and with a checksum.

    Attributes:
        shape: (nodes, ...).
        dtype: of its elements; that of strings for text.
        chunks: shape of a chunk.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...]

    shards = None
    compressors = ("zstd", "crc32c")

    @property
    def ndim(self) -> int:
        """Return the number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Return the bytes of all elements."""
        return self.size * self.dtype.itemsize

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """Return the metadata as zarr has them."""
        is_text = self.dtype == STRING
        numbers: dict[str, Any] = {"name": "bytes"}
        if self.dtype.itemsize > 1:
            numbers |= {"configuration": {"endian": "little"}}
        fill = {"b": False, "f": 0.0, "c": [0.0, 0.0]}.get(self.dtype.kind, 0)
        text = {"name": "vlen-utf8", "configuration": {}}
        zstd = {"name": "zstd", "configuration": {"level": 1, "checksum": False}}
        grid = {"chunk_shape": list(self.chunks)}
        return {
            "shape": list(self.shape),
            "data_type": "string" if is_text else self.dtype.name,
            "chunk_grid": {"name": "regular", "configuration": grid},
            "chunk_key_encoding": {
                "name": "default",
                "configuration": {"separator": "/"},
            },
            "fill_value": "" if is_text else fill,
            "codecs": [text if is_text else numbers, zstd, {"name": "crc32c"}],
            "attributes": {},
            "zarr_format": 3,
            "node_type": "array",
            "storage_transformers": [],
        }

    def encoded(self, values: Array) -> bytes:
        """Return the chunk of some nodes."""
        if self.dtype == STRING:
            raw = UTF8.encode(values.astype(object, order="C"))
        else:
            raw = values.astype(self.dtype.newbyteorder("<"), copy=False).tobytes()
        data = bytes(ZSTD.encode(raw))
        return data + _checksum(data)

    def decoded(self, chunk: bytes) -> Array:
        """Return the nodes of a chunk; they may be read alone."""
        data, checksum = chunk[:-CHECKSUM], chunk[-CHECKSUM:]
        if _checksum(data) != checksum:
            raise TornChunkError("the checksum differs")
        raw = ZSTD.decode(data)
        if self.dtype == STRING:
            return cast("Array", UTF8.decode(raw)).reshape(self.chunks)
        plain = np.frombuffer(raw, self.dtype.newbyteorder("<"))
        return plain.reshape(self.chunks)

    def read(self, name: str, content: Content, start: int, stop: int) -> Array:
        """Return fresh nodes `start` to `stop`, by the entries of a payload."""
        kind = object if self.dtype == STRING else self.dtype
        values = np.empty((stop - start, *self.shape[1:]), kind)
        step = self.chunks[0]
        for row in range(start // step, -(-stop // step)) if values.size else ():
            first = row * step
            lower, upper = max(start, first), min(stop, first + step)
            chunk = self.chunk(name, content, row)[lower - first : upper - first]
            values[lower - start : upper - start] = chunk
        return values.astype(str) if self.dtype == STRING else values

    def chunk(self, name: str, content: Content, row: int) -> Array:
        """Return the nodes of a row of chunks, not to be written to."""
        (entry,) = _chunk_names(name, self, row)
        return self.decoded(content(entry))


def _checksum(data: bytes) -> bytes:
    return int(google_crc32c.value(data)).to_bytes(CHECKSUM, "little")


def _plain(metadata: object) -> PlainArray | None:
    """Return the array of these metadata if it is a plain one."""
    try:
        fields = cast("dict[str, Any]", metadata)
        named, shape = fields["data_type"], tuple(fields["shape"])
        chunks = tuple(fields["chunk_grid"]["configuration"]["chunk_shape"])
        is_known = named == "string" or named in PLAIN
    except (LookupError, TypeError):
        return None
    if not is_known or not shape or not all(type(n) is int for n in (*shape, *chunks)):
        return None
    array = PlainArray(shape, STRING if named == "string" else np.dtype(named), chunks)
    is_of_nodes = chunks == (chunks[0], *(max(1, size) for size in shape[1:]))
    is_whole = chunks[0] == 1 or chunks[0] == max(1, shape[0])
    return array if is_of_nodes and is_whole and array.metadata == fields else None


def entries(
    arrays: Mapping[str, Array], *, sharded: bool
) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each entry of the zarr group."""
    yield "zarr.json", _json(GROUP)
    for name, array in sorted(arrays.items()):
        if isinstance(array, DiskArray):
            yield from _by_zarr(name, array, _row_chunks)
        elif sharded or not _is_plain(array):
            yield from _by_zarr(name, _stored(array), _chunks, sharded)
        else:
            yield from _plain_chunks(name, array)


def _is_plain(array: Array) -> bool:
    is_known = array.dtype.kind in TEXT or array.dtype.name in PLAIN
    return is_known and _steps(array)[1][0] in (1, len(array))


def _plain_chunks(name: str, array: Array) -> Iterator[tuple[str, bytes]]:
    _, chunks = _steps(array)
    dtype = STRING if array.dtype.kind in TEXT else array.dtype.newbyteorder("=")
    made = PlainArray(array.shape, dtype, chunks)
    for row in range(len(array) // chunks[0]) if array.size else ():
        (entry,) = _chunk_names(name, made, row)
        yield entry, made.encoded(array[row * chunks[0] : (row + 1) * chunks[0]])
    yield f"{name}/zarr.json", _json(made.metadata)


def _json(metadata: Mapping[str, Any]) -> bytes:
    return json.dumps(metadata, indent=2).encode()


def _by_zarr(
    name: str, array: Any, write: Callable[..., Iterator[tuple[str, bytes]]], *how: bool
) -> Iterator[tuple[str, bytes]]:
    """Yield the entries of one variable as zarr writes them."""
    import zarr  # what is plain needs none
    from zarr.storage import MemoryStore

    buffers: dict[str, Buffer] = {}
    group = zarr.create_group(MemoryStore(buffers), zarr_format=3)
    yield from write(group, name, array, buffers, *how)
    yield f"{name}/zarr.json", buffers[f"{name}/zarr.json"].to_bytes()


def _steps(array: Array) -> tuple[int, tuple[int, ...]]:
    """Return the nodes of a shard and the shape of a chunk."""
    nodes, inner = len(array), tuple(max(1, size) for size in array.shape[1:])
    step = max(1, min(nodes, SHARD_BYTES * nodes // max(1, array.nbytes)))
    return step, (step if array.nbytes <= WHOLE_BYTES else 1, *inner)


def _chunks(
    group: zarr.Group,
    name: str,
    array: Array,
    buffers: dict[str, Buffer],
    sharded: bool,
) -> Iterator[tuple[str, bytes]]:
    from zarr.codecs import Crc32cCodec, ZstdCodec

    nodes, (step, chunks) = len(array), _steps(array)
    is_text = array.dtype.kind in TEXT
    made = group.create_array(
        name,
        shape=array.shape,
        dtype=str if is_text else array.dtype,
        chunks=chunks,
        shards=(step, *chunks[1:]) if sharded else None,
        compressors=[ZstdCodec(level=1), Crc32cCodec()],
        fill_value="" if is_text else 0,
        config={"write_empty_chunks": True},
    )
    for start in range(0, nodes, step):
        made[start : start + step] = array[start : start + step]
        for key in [key for key in buffers if not key.endswith("zarr.json")]:
            yield key, buffers.pop(key).to_bytes()


def _row_chunks(
    group: zarr.Group, name: str, array: DiskArray, buffers: dict[str, Buffer]
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
        for key in [key for key in buffers if not key.endswith("zarr.json")]:
            yield key, buffers.pop(key).to_bytes()


def _stored(array: Array) -> Array:
    if array.dtype.kind in TEXT:
        return array.astype(np.dtypes.StringDType(), order="C")
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
def _corruption(payload: str, slot: int | None, part: str) -> Iterator[None]:
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
        reason = f"{part} cannot be read ({type(error).__name__}: {error})"
        raise corrupt_payload(payload, slot, reason) from error


class ZarrPayload:
    """An opened payload; a small variable is read whole and kept."""

    def __init__(self, payload: str, path: Path) -> None:
        """Open a folder or a zip file."""
        self._payload = payload
        with _corruption(payload, None, "it"):
            names, self._holds, self._content = _opened(path)
            self._folder = path if path.is_dir() else None
            self._arrays = _arrays(path, names, self._content)
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
            rows = self._row_files(name, array, slot)
            if rows.reader not in self._verified:
                self._verified[rows.reader] = array_digest(as_array(rows))
            if self._verified[rows.reader] != digest:
                fault = f"{name} is not what was computed"
                raise CorruptPayloadError(f"payload {self._payload[:12]}: {fault}")
        return rows

    def row_bytes(self, name: str) -> int:
        """Return the bytes of a row; 0 if the variable is missing."""
        array = self._arrays.get(name)
        return 0 if array is None else array.nbytes // max(1, array.shape[0])

    def _is_whole(self, name: str, array: AnyArray, slots: Sequence[int]) -> bool:
        """Return whether a variable is kept whole, after reading it if that is quicker.

        Of chunks that hold a node each, the first is read alone.
        """
        if name in self._whole:
            return True
        alone = array.chunks[0] == 1 and len(slots) == 1 and name not in self._asked
        self._asked.add(name)
        return not alone and array.nbytes <= WHOLE_BYTES and self._load(name, array)

    def names(self) -> Iterable[str]:
        """Return the names of the variables."""
        return self._arrays

    def form(self, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return shape, (nodes, ...), and type of a variable."""
        array = self._array(name, ())
        return array.shape, np.dtype(array.dtype)

    def nodes(self, name: str) -> Iterator[Iterable[Array]]:
        """Yield the entry of each node, in parts along its first dimension.

        Raises:
            CorruptPayloadError: a chunk is missing or unreadable.
        """
        array = self._array(name, ())
        if self._folder is not None and _has_row_chunks(array):
            for slot in range(array.shape[0]):
                yield self._blocks(name, array, slot)
            return
        step = (array.shards or array.chunks)[0]
        for start in range(0, array.shape[0], step):
            for entry in self._step(name, array, start, step):
                yield [np.asarray(entry)]

    def _step(self, name: str, array: AnyArray, start: int, step: int) -> Array:
        """Return nodes from the beginning of a chunk on, numbers without a copy."""
        stop = min(start + step, array.shape[0])
        if not isinstance(array, PlainArray) or array.dtype == STRING or not array.size:
            return self._read(name, array, start, stop)
        with _corruption(self._payload, start, name):
            if not all(map(self._holds, _chunk_names(name, array, start // step))):
                raise corrupt_payload(self._payload, start, f"{name} has no chunk")
            return array.chunk(name, self._content, start // step)[: stop - start]

    def _blocks(self, name: str, array: AnyArray, slot: int) -> Iterator[Array]:
        with _corruption(self._payload, slot, name):
            if not all(map(self._holds, _chunk_names(name, array, slot))):
                raise corrupt_payload(self._payload, slot, f"{name} has no chunk")
            yield from self._row_files(name, array, slot).blocks()

    def _row_files(self, name: str, array: AnyArray, slot: int) -> DiskArray:
        """Return one node's array of a payload that is a folder, its rows unread."""
        assert self._folder is not None
        return rows_in(
            [self._folder / chunk for chunk in _chunk_names(name, array, slot)],
            array.shape[1:],
            array.dtype,
            rows_per_file=array.chunks[1],
        )

    def read_all(self) -> dict[str, Array]:
        """Return all variables of all nodes, shape (nodes, ...)."""
        return {
            name: self._read(name, array, 0, array.shape[0])
            for name, array in self._arrays.items()
        }

    def _array(self, name: str, slots: Sequence[int]) -> AnyArray:
        array = self._arrays.get(name)
        rows = 0 if array is None or array.ndim == 0 else array.shape[0]
        if array is None or not (array.ndim and all(0 <= s < rows for s in slots)):
            first = slots[0] if slots else None
            raise corrupt_payload(self._payload, first, f"{name} is missing")
        return array

    def _load(self, name: str, array: AnyArray) -> bool:
        try:
            self._whole[name] = self._read(name, array, 0, array.shape[0])
        except CorruptPayloadError:
            return False  # some other node's chunk; those that are well stay readable
        return True

    def _read(self, name: str, array: AnyArray, start: int, stop: int) -> Array:
        with _corruption(self._payload, start, name):
            step = (array.shards or array.chunks)[0]
            for row in range(start // step, -(-stop // step)) if array.size else ():
                if not all(map(self._holds, _chunk_names(name, array, row))):
                    slot = max(start, row * step)
                    raise corrupt_payload(self._payload, slot, f"{name} has no chunk")
            if isinstance(array, PlainArray):
                return array.read(name, self._content, start, stop)
            values = np.asarray(array[start:stop])
        return (
            values.astype(object).astype(str) if values.dtype.kind in TEXT else values
        )


def _opened(path: Path) -> tuple[list[str], Callable[[str], bool], Content]:
    """Return a payload's variables, a test for an entry, and what reads one."""
    if path.is_dir():
        variables = sorted(entry.name for entry in path.iterdir() if entry.is_dir())
        return (
            variables,
            lambda entry: (path / entry).is_file(),
            lambda entry: (path / entry).read_bytes(),
        )
    archive = zipfile.ZipFile(path)
    names = frozenset(archive.namelist())
    variables = sorted({entry.partition("/")[0] for entry in names if "/" in entry})
    return variables, names.__contains__, archive.read


def _arrays(path: Path, names: Sequence[str], content: Content) -> dict[str, AnyArray]:
    """Return the variables of a payload: plain ones, or as zarr opens them."""
    arrays: dict[str, AnyArray] = {}
    if json.loads(content("zarr.json")) == GROUP:
        stored = {
            name: _plain(json.loads(content(f"{name}/zarr.json"))) for name in names
        }
        arrays |= {name: array for name, array in stored.items() if array is not None}
    if rest := [name for name in names if name not in arrays]:
        group = _zarr_group(path)
        # One by one: of several at once zarr raises the first error and leaves the
        # others to the interpreter, which prints them.
        arrays |= {name: cast("ZarrArray", group[name]) for name in rest}
    return arrays


def _zarr_group(path: Path) -> zarr.Group:
    import zarr  # what is plain needs none
    from zarr.storage import LocalStore, ZipStore

    is_folder = path.is_dir()
    store = LocalStore(path, read_only=True) if is_folder else ZipStore(path, mode="r")
    return zarr.open_group(store, mode="r", zarr_format=3)


def _chunk_names(name: str, array: AnyArray, row: int) -> list[str]:
    """Return the entries that hold a row of chunks: one, or several of an array's."""
    if not _has_row_chunks(array):
        return ["/".join([name, "c", str(row), *["0"] * (array.ndim - 1)])]
    count, rest = -(-array.shape[1] // array.chunks[1]), ["0"] * (array.ndim - 2)
    return ["/".join([name, "c", str(row), str(n), *rest]) for n in range(count)]


def _has_row_chunks(array: AnyArray) -> bool:
    """Return whether rows lie in chunks as they are."""
    return array.ndim > 2 and array.shards is None and not array.compressors
