"""A store in a folder: the commit log, payloads, journals, and what is not finished.

FORMAT                      what this folder is
commits/0000000001.json     the log
payloads/ab/<id>.zarr.zip   a payload; a large one is a folder, <id>.zarr
runs/<log number>.ndjson    the journal of the run that began there
tmp/                        never looked at
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from curvflow.errors import CorruptPayloadError, StoreFormatError
from curvflow.schemas.nodes import Array
from curvflow.schemas.receipts import Receipt, RunRecord
from curvflow.stores.base import Layout
from curvflow.stores.commits import LocalCommits
from curvflow.stores.contents import corrupt_payload, payload_id, read_parts
from curvflow.stores.files import Disk, explained
from curvflow.stores.log import Log
from curvflow.stores.logged import LoggedStore

if TYPE_CHECKING:
    from curvflow.stores.packs import Pack

FORMAT = 1
FOLDERS = ("commits", "payloads", "runs", "tmp")
# Payloads of more bytes than this become a sharded folder. Up to here both take the
# same time, and one file is easier on file systems; 500 MB took 3 to 4 s as a zip,
# which is held in memory three times, and 1.5 s as a folder (benchmarks/payloads.py).
ZIP_BYTES = 64 << 20
# Payloads kept open; each holds a file and at most its small variables.
OPEN_PACKS = 32
SUFFIXES = (".zarr.zip", ".zarr")


class LocalStore(LoggedStore):
    """A store in a folder of a local or network file system.

    A folder that is not there yet reads as an empty store and is made by the first
    write. Reading writes nothing, so a store may be read-only.
    """

    def __init__(self, folder: Path, *, disk: Disk | None = None) -> None:
        """Open a folder.

        Args:
            folder: the store's; empty or missing for a new one.
            disk: through which all changes pass.

        Raises:
            StoreFormatError: the folder holds something else, or a newer format.
            StoreError: the folder cannot be read.
        """
        _check_format(folder)
        self._folder, self._disk, self._made = folder, disk or Disk(), False
        commits = LocalCommits(
            self._disk, folder / "commits", folder / "tmp", prepare=self.make
        )
        super().__init__(str(folder), Log(commits, str(folder)))
        self._open = lru_cache(maxsize=OPEN_PACKS)(self._opened)

    def make(self) -> None:
        """Make the folders and the FORMAT file, where they are missing.

        Raises:
            StoreError: they cannot be written.
        """
        if self._made:
            return
        with explained(self._folder):
            self._disk.make_folder(self._folder / "tmp")
            if not (self._folder / "FORMAT").exists():
                written = self._scratch("format")
                self._disk.write(
                    written, b'{"store":"curvflow","format":%d}\n' % FORMAT
                )
                self._disk.flush(written)
                self._disk.rename(written, self._folder / "FORMAT")
                self._disk.flush(self._folder)  # no other name without FORMAT
            for name in FOLDERS:
                self._disk.make_folder(self._folder / name)
            self._disk.flush(self._folder)
            self._disk.flush(self._folder.parent)
        self._made = True

    def write_payload(self, arrays: Mapping[str, Array]) -> str:
        """Write one tile's arrays, leading dimension `node`, and return their id.

        Args:
            arrays: variable to array of shape (nodes, ...); at least one variable.

        Returns:
            The payload's id. The payload is durable and complete when this returns.

        Raises:
            StoreError: the payload cannot be written, the disk being full, say.
        """
        self.make()
        name = payload_id(arrays)
        size = sum(array.nbytes for array in arrays.values())
        kind, write = (
            (".zarr.zip", self._write_zip)
            if size <= ZIP_BYTES
            else (".zarr", self._write_folder)
        )
        target = self._payload_path(name, kind)
        written = self._scratch("payload")
        with explained(target, size):
            try:
                write(written, arrays)
                self._disk.make_folder(target.parent)
                self._replace(written, target, name)
                self._disk.flush(target.parent)
                self._disk.flush(target.parent.parent)
            finally:
                self._disk.remove(written)
        return name

    def _write_zip(self, written: Path, arrays: Mapping[str, Array]) -> None:
        from curvflow.stores.packs import zipped  # planning needs no zarr

        self._disk.write(written, zipped(arrays))
        self._disk.flush(written)

    def _write_folder(self, written: Path, arrays: Mapping[str, Array]) -> None:
        from curvflow.stores.packs import entries  # planning needs no zarr

        folders = {written}
        for entry, data in entries(arrays, sharded=True):
            path = written / entry
            self._disk.make_folder(path.parent)
            self._disk.write(path, data)
            self._disk.flush(path)
            folders.update(p for p in path.parents if p.is_relative_to(written))
        for folder in sorted(folders, reverse=True):
            self._disk.flush(folder)

    def _replace(self, written: Path, target: Path, name: str) -> None:
        """Publish a payload, in place of a corrupt one of the same name if need be."""
        if target.exists():
            self._open.cache_clear()
        if target.is_dir():
            # A folder cannot be replaced in one step, so a good one is left alone.
            if self._is_intact(name):
                return
            self._disk.rename(target, self._scratch("corrupt"))
        self._disk.rename(written, target)

    def _is_intact(self, name: str) -> bool:
        try:
            return payload_id(self._open(name).everything()) == name
        except CorruptPayloadError:
            return False

    def present(self, payloads: Iterable[str]) -> set[str]:
        """Return those payloads that exist; each folder they are in is listed once.

        Args:
            payloads: ids.

        Returns:
            Those of them that have a file or folder.

        Raises:
            StoreError: a folder cannot be read.
        """
        wanted = defaultdict(set)
        for name in payloads:
            wanted[name[:2]].add(name)
        found: set[str] = set()
        for prefix, names in wanted.items():
            folder = self._folder / "payloads" / prefix
            with explained(folder):
                listed = {p.name for p in folder.iterdir()} if folder.is_dir() else ()
            found |= names & {file.partition(".")[0] for file in listed}
        return found

    def layout(self, payload: str) -> Mapping[str, Layout]:
        """Return the variables of a payload, read from its metadata alone.

        Args:
            payload: its id.

        Returns:
            Variable to shape and type.

        Raises:
            CorruptPayloadError: the payload is missing or its metadata are torn.
        """
        return self._open(payload).layout()

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

        try:
            return read_parts(receipt, parts, fetch)
        except CorruptPayloadError:
            self._open.cache_clear()  # another run may heal it by then
            raise

    def _opened(self, payload: str) -> Pack:
        from curvflow.stores.packs import Pack  # planning needs no zarr

        for suffix in SUFFIXES:
            path = self._payload_path(payload, suffix)
            if path.exists():
                return Pack(payload, path)
        raise corrupt_payload(payload, None, "it is missing")

    def note(self, run: RunRecord, event: Mapping[str, Any]) -> None:
        """Append one line to the run's journal; not part of the log's truth."""
        self.make()
        path = self._journal(run)
        with explained(path):
            self._disk.append(path, json.dumps(event).encode() + b"\n")

    def notes(self, run: RunRecord) -> list[dict[str, Any]]:
        """Return the lines of a run's journal; a line cut short is left out."""
        path = self._journal(run)
        with explained(path):
            text = path.read_bytes() if path.exists() else b""
        return [note for line in text.splitlines() if (note := _parsed(line))]

    def _journal(self, run: RunRecord) -> Path:
        return self._folder / "runs" / f"{run.begun:010}.ndjson"

    def _payload_path(self, payload: str, suffix: str) -> Path:
        return self._folder / "payloads" / payload[:2] / f"{payload}{suffix}"

    def _scratch(self, what: str) -> Path:
        return self._folder / "tmp" / f"{what}-{uuid4().hex}"


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        note: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return note


def _check_format(folder: Path) -> None:
    path = folder / "FORMAT"
    with explained(folder):
        if folder.exists() and not folder.is_dir():
            raise StoreFormatError(
                f"{folder}: expected a folder, got a file. Name another store."
            )
        names = {p.name for p in folder.iterdir()} if folder.exists() else set()
        if "FORMAT" not in names:
            if strangers := sorted(names - {"tmp"}):
                raise StoreFormatError(
                    f"{folder}: expected a store or an empty folder, got a folder with "
                    f"'{strangers[0]}' and no FORMAT file. Name another store."
                )
            return
        found = _parsed(path.read_bytes()) or {}
    if not isinstance(number := found.get("format"), int):
        raise StoreFormatError(
            f"{path}: expected the format of a store, got something else. "
            "Name another store."
        )
    if number > FORMAT:
        raise StoreFormatError(
            f"{folder}: expected store format {FORMAT}, got {number}. Update curvflow."
        )
