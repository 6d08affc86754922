"""A store in a folder: commit log, payloads, journals and temporary files.

FORMAT                      what this folder is
commits/0000000001.json     the log
commits/0000000001-<...>.mark  which entry a run began with, by its checksum
payloads/ab/<id>.zarr.zip   a payload; a large one is a folder, <id>.zarr
runs/<log number>.ndjson    the journal of the run that began there
runs/<log number>.beat      its heartbeat
claims/0000000001.json      nodes that runs are computing
partials/<tile>.zarr.zip    the snapshot of a long tile
trash/<log number>/         payloads that the collection noted there has moved
quarantine/<log number>/    payloads that verification found corrupt
tmp/                        unfinished files
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from curvflow.errors import CorruptPayloadError, StoreFormatError
from curvflow.schemas.disk_arrays import DiskArray
from curvflow.schemas.nodes import Array
from curvflow.schemas.records.receipts import Receipt, RunRecord
from curvflow.stores.claims import Claims
from curvflow.stores.commits import LocalCommits
from curvflow.stores.files import (
    CONTENT,
    Disk,
    check_empty,
    check_format,
    disk_errors,
    json_object,
)
from curvflow.stores.local_payloads import LocalPayloads
from curvflow.stores.log import Log
from curvflow.stores.log_store import ZarrStore, parse_heartbeats
from curvflow.stores.trash import LocalFiles

if TYPE_CHECKING:
    from curvflow.stores.zarr_payloads import ZarrPayload

FOLDERS = ("commits", "payloads", "runs", "claims", "partials", "tmp")


class LocalStore(ZarrStore):
    """A store in a folder of a local or network file system.

    A folder that is not there yet reads as an empty store and is made by the first
    write. Reading writes nothing, so a store may be read-only.
    """

    keeps_rows = True

    def __init__(self, folder: Path, *, disk: Disk | None = None) -> None:
        """Open a folder."""
        _check_format(folder)
        self._folder, self._disk, self._made = folder, disk or Disk(), False
        commits = LocalCommits(
            self._disk, folder / "commits", folder / "tmp", prepare=self.make
        )
        claims = LocalCommits(
            self._disk,
            folder / "claims",
            folder / "tmp",
            prepare=self.make,
            durable=False,
        )
        super().__init__(str(folder), Log(commits, str(folder)), Claims(claims))
        self._payloads = LocalPayloads(
            folder / "payloads", self._disk, temporary=self._temporary
        )
        self.files = LocalFiles(
            folder,
            self._disk,
            commits=commits,
            temporary=self._clock_file,
            forget=self._forget,
        )

    def make(self) -> None:
        """Make the missing folders and the FORMAT file."""
        if self._made:
            return
        with disk_errors(self._folder):
            self._disk.make_folder(self._folder / "tmp")
            if not (self._folder / "FORMAT").exists():
                written = self._temporary("format")
                self._disk.write(written, CONTENT)
                self._disk.flush(written)
                self._disk.rename(written, self._folder / "FORMAT")
                self._disk.flush(self._folder)  # no other name without FORMAT
            for name in FOLDERS:
                self._disk.make_folder(self._folder / name)
            self._disk.flush(self._folder)
            self._disk.flush(self._folder.parent)
        self._made = True

    def write_payload(self, arrays: Mapping[str, Array]) -> str:
        """Write one tile's arrays, leading dimension `node`, and return their id."""
        self.make()
        return self._payloads.write(arrays)

    def present(self, payloads: Iterable[str]) -> set[str]:
        """Return those payloads that exist; each folder they are in is listed once."""
        return self._payloads.present(payloads)

    def on_disk(self, receipt: Receipt, part: str) -> DiskArray | None:
        """Return a part of a result with its rows unread, once its digest is verified.

        Raises:
            CorruptPayloadError: it cannot be read, or differs.
        """
        if part not in receipt.parts:
            return None
        where = part, receipt.slot, receipt.parts[part]
        try:
            return self._open(str(receipt.payload)).on_disk(*where)
        except CorruptPayloadError:
            self._forget()  # collection may have moved the payload meanwhile
            return self._open(str(receipt.payload)).on_disk(*where)

    def _open(self, payload: str) -> ZarrPayload:
        return self._payloads.open(payload)

    def _forget(self) -> None:
        self._payloads.open.cache_clear()

    def write_heartbeat(self, run: RunRecord, sign: Mapping[str, Any] | None) -> None:
        """Replace a run's heartbeat; None removes it."""
        path = self._journal(run, ".beat")
        if sign is not None:
            self._replace(path, json.dumps(sign).encode())
            return
        with disk_errors(path):
            self._disk.remove(path)

    def heartbeats(self) -> dict[int, dict[str, Any]]:
        """Return the latest heartbeat of each run, by the number it began at."""
        files = []
        for path in self._folder.glob("runs/*.beat"):
            # The run has ended meanwhile, or it is not ours.
            with suppress(FileNotFoundError, IsADirectoryError):
                files.append((path.name, path.read_bytes()))
        return parse_heartbeats(files)

    def save_snapshot(self, name: str, arrays: Mapping[str, Array]) -> None:
        """Replace the snapshot of an unfinished tile; durable when this returns."""
        from curvflow.stores.zarr_payloads import zip_snapshot  # planning needs no zarr

        path, data = self._partial(name), zip_snapshot(arrays)
        self._replace(path, data, flush=True)

    def load_snapshot(self, name: str) -> dict[str, Array] | None:
        """Return the snapshot of a tile; None if it is missing or torn."""
        path = self._partial(name)
        if not path.exists():
            return None
        from curvflow.stores.zarr_payloads import (
            read_snapshot,  # planning needs no zarr
        )

        return read_snapshot(path)

    def drop_snapshot(self, name: str) -> None:
        """Remove the snapshot of a tile, if it has one."""
        with disk_errors(self._partial(name)):
            self._disk.remove(self._partial(name))

    def _replace(self, path: Path, data: bytes, *, flush: bool = False) -> None:
        self.make()
        written = self._temporary(path.suffix[1:])
        with disk_errors(path, len(data)):
            try:
                self._disk.write(written, data)
                if flush:
                    self._disk.flush(written)
                self._disk.rename(written, path)
                if flush:
                    self._disk.flush(path.parent)
            finally:
                self._disk.remove(written)

    def append_event(self, run: RunRecord, event: Mapping[str, Any]) -> None:
        """Append one event to the run's journal, which is no part of the commit log."""
        self.make()
        path = self._journal(run)
        with disk_errors(path):
            self._disk.append(path, json.dumps(event).encode() + b"\n")

    def journal(self, run: RunRecord) -> list[dict[str, Any]]:
        """Return the events of a run's journal, without a truncated line."""
        path = self._journal(run)
        with disk_errors(path):
            text = path.read_bytes() if path.exists() else b""
        return [note for line in text.splitlines() if (note := json_object(line))]

    def _journal(self, run: RunRecord, suffix: str = ".ndjson") -> Path:
        return self._folder / "runs" / f"{run.begun:010}{suffix}"

    def _partial(self, name: str) -> Path:
        return self._folder / "partials" / f"{name}.zarr.zip"

    def _clock_file(self) -> Path:
        self.make()
        return self._temporary("clock")

    def _temporary(self, what: str) -> Path:
        return self._folder / "tmp" / f"{what}-{uuid4().hex}"


def _check_format(folder: Path) -> None:
    with disk_errors(folder):
        if folder.exists() and not folder.is_dir():
            raise StoreFormatError(
                f"{folder}: expected a folder, got a file. Name another store."
            )
        names = {p.name for p in folder.iterdir()} if folder.exists() else set()
        # Another process may have made the store while its names were listed.
        if (folder / "FORMAT").exists():
            check_format((folder / "FORMAT").read_bytes(), str(folder))
        else:
            check_empty(names - {"tmp"}, str(folder))
