"""Payloads of a local store: immutable files and folders, named by their content.

payloads/ab/<id>.zarr.zip   a payload; a large one is a folder, <id>.zarr, and so is
                            one with arrays on disk, whose rows are uncompressed
trash/<number>/<id>.zarr.zip   a payload that collection has moved, still readable
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from curvflow.errors import CorruptPayloadError
from curvflow.schemas.disk_arrays import is_on_disk
from curvflow.schemas.nodes import Array
from curvflow.stores.files import Disk, disk_errors
from curvflow.stores.payload_digests import corrupt_payload, payload_id

if TYPE_CHECKING:
    from curvflow.stores.zarr_payloads import ZarrPayload

# Payloads of more bytes than this become a sharded folder. Up to here both take the
# same time, and one file is easier on file systems; 500 MB took 3 to 4 s as a zip,
# which is held in memory three times, and 1.5 s as a folder (benchmarks/payloads.py).
ZIP_BYTES = 64 << 20
# Payloads kept open; each holds a file and at most its small variables.
MAX_OPEN = 32
SUFFIXES = (".zarr.zip", ".zarr")


class LocalPayloads:
    """The payloads of one folder, and of the trash."""

    def __init__(
        self, folder: Path, disk: Disk, *, temporary: Callable[[str], Path]
    ) -> None:
        """Bind to a folder; `temporary` makes a unique path from a word."""
        self._folder, self._disk, self._temporary = folder, disk, temporary
        self._trash = folder.parent / "trash"
        self.open = lru_cache(maxsize=MAX_OPEN)(self._opened)

    def write(self, arrays: Mapping[str, Array]) -> str:
        """Write one tile's arrays durably and return the payload's id."""
        name = payload_id(arrays)
        size = sum(array.nbytes for array in arrays.values())
        suffix, write = (
            (SUFFIXES[0], self._write_zip)
            if size <= ZIP_BYTES and not any(map(is_on_disk, arrays.values()))
            else (SUFFIXES[1], self._write_folder)
        )
        target = self._path(name, suffix)
        written = self._temporary("payload")
        with disk_errors(target, size):
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
        from curvflow.stores.zarr_payloads import zip_payload  # planning needs no zarr

        self._disk.write(written, zip_payload(arrays))
        self._disk.flush(written)

    def _write_folder(self, written: Path, arrays: Mapping[str, Array]) -> None:
        from curvflow.stores.zarr_payloads import entries  # planning needs no zarr

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
        """Publish a payload, replacing a corrupt one of the same name."""
        if target.exists():
            self.open.cache_clear()
        if target.is_dir():
            # A folder cannot be replaced in one step, so a good one is left alone.
            if self._is_intact(name):
                return
            self._disk.rename(target, self._temporary("corrupt"))
        self._disk.rename(written, target)

    def _is_intact(self, name: str) -> bool:
        try:
            return payload_id(self._opened(name).read_all()) == name
        except CorruptPayloadError:
            return False

    def present(self, payloads: Iterable[str]) -> set[str]:
        """Return those payloads that exist; each folder they are in is listed once."""
        wanted = set(payloads)
        existing = self._stored(wanted)
        if missing := wanted - existing:
            existing |= missing & self._trashed().keys()
        # One may have come home while the trash was looked through.
        return existing | self._stored(wanted - existing)

    def _stored(self, payloads: Iterable[str]) -> set[str]:
        wanted = defaultdict(set)
        for name in payloads:
            wanted[name[:2]].add(name)
        existing: set[str] = set()
        for prefix, names in wanted.items():
            folder = self._folder / prefix
            with disk_errors(folder):
                listed = {p.name for p in folder.iterdir()} if folder.is_dir() else ()
            existing |= names & {file.partition(".")[0] for file in listed}
        return existing

    def _trashed(self) -> dict[str, Path]:
        """Return the payloads in the trash by id; the latest move counts."""
        with disk_errors(self._trash):
            folders = sorted(self._trash.glob("*/"))
        paths = {}
        for folder in folders:
            # Another process may have emptied it meanwhile.
            with disk_errors(folder), suppress(FileNotFoundError):
                for path in folder.iterdir():
                    name, dot, rest = path.name.partition(".")
                    if f"{dot}{rest}" in SUFFIXES:
                        paths[name] = path
        return paths

    def path(self, name: str) -> Path | None:
        """Return the path of a payload, in the trash too; None if it is missing."""
        for suffix in SUFFIXES:
            if (path := self._path(name, suffix)).exists():
                return path
        # Collection moves first and removes at its next pass, so that a process that
        # was about to read can still do so.
        return self._trashed().get(name)

    def _opened(self, name: str) -> ZarrPayload:
        from curvflow.stores.zarr_payloads import ZarrPayload  # planning needs no zarr

        if path := self.path(name):
            return ZarrPayload(name, path)
        raise corrupt_payload(name, None, "it is missing")

    def _path(self, name: str, suffix: str) -> Path:
        return self._folder / name[:2] / f"{name}{suffix}"
