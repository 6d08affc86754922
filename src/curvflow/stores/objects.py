"""A store in a bucket: the local store's layout, one object per file.

FORMAT                      what this prefix is
commits/0000000001.json     the log, by conditional put
commits/0000000001-<...>.mark  which entry a run began with, by its checksum
payloads/ab/<id>.zarr.zip   a payload, of any size
runs/<log number>/<...>     the journal of the run that began there, an object per line
beats/<log number>.beat     its heartbeat
claims/0000000001.json      nodes that runs are computing
partials/<tile>.zarr.zip    the snapshot of a long tile
trash/<log number>/         payloads that the collection noted there has moved
quarantine/<log number>/    payloads that verification found corrupt

An object appears whole or not at all and is durable once it is written, so nothing is
written under a temporary name.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from curvflow.errors import StoreError
from curvflow.schemas.nodes import Array
from curvflow.schemas.records.receipts import RunRecord
from curvflow.stores.bucket import PAGE, Bucket, ObjectCommits, ObjectInfo
from curvflow.stores.claims import Claims
from curvflow.stores.files import CONTENT, check_empty, check_format, json_object
from curvflow.stores.log import Log
from curvflow.stores.log_store import ZarrStore, parse_heartbeats
from curvflow.stores.payload_cache import PayloadCache
from curvflow.stores.payload_digests import corrupt_payload, payload_id
from curvflow.stores.trash import PATTERNS, Folder, Item

if TYPE_CHECKING:
    from curvflow.stores.zarr_payloads import ZarrPayload


class ObjectFiles:
    """The stored files of a bucket: objects below the prefix whose names match."""

    def __init__(
        self, bucket: Bucket, *, commits: ObjectCommits, forget: Callable[[], None]
    ) -> None:
        """Bind to a bucket."""
        self._bucket, self._commits, self._forget = bucket, commits, forget

    def exists(self) -> bool:
        """Return whether the prefix is a store."""
        return self._bucket.head("FORMAT") is not None

    def clock(self) -> float:
        """Return the time of an object written now, or of the last commit."""
        if not self.exists():
            return 0.0
        path = f"tmp/clock-{uuid4().hex}"
        try:
            self._bucket.put(path, b"")
            info = self._bucket.head(path)
            self._bucket.remove([path])
        except StoreError:
            info = None
        return info.time if info else self._latest()

    def _latest(self) -> float:
        return max((entry.time for entry in self._bucket.list("commits")), default=0.0)

    def entry_time(self, number: int) -> float:
        """Return the time of an entry of the log."""
        return self._commits.time(number)

    def items(self, folder: Folder) -> list[Item]:
        """Return the files in one folder, ordered by path."""
        prefix = "beats" if folder == "runs" else folder
        return sorted(
            (
                Item(info.path, info.bytes, info.time)
                for info in self._bucket.list(prefix)
                if _is_ours(folder, info)
            ),
            key=lambda item: item.path,
        )

    def move(self, item: Item, folder: str) -> bool:
        """Move a payload to another folder of the store; False if it is gone."""
        self._forget()
        return self._bucket.move(item.path, f"{folder}/{item.name}")

    def redate(self, items: Iterable[Item]) -> None:
        """Do nothing: a bucket dates all by its own clock."""

    def remove(self, items: Iterable[Item]) -> None:
        """Delete files for good; missing ones are skipped."""
        self._forget()
        self._bucket.remove(item.path for item in items)


def _is_ours(folder: Folder, info: ObjectInfo) -> bool:
    inner, wanted = PATTERNS[folder]
    *folders, name = info.path.split("/")[1:]
    if wanted.fullmatch(name) is None:
        return False
    if inner is None:
        return not folders
    return len(folders) == 1 and re.fullmatch(inner, folders[0]) is not None


SUFFIX = ".zarr.zip"


class ObjectStore(ZarrStore):
    """A store below a prefix of an S3 bucket.

    A prefix with nothing below it reads as an empty store; the first write makes it.
    """

    def __init__(self, bucket: Bucket) -> None:
        """Open a prefix."""
        content = bucket.get("FORMAT")
        names = [] if content else [info.path for info in islice(bucket.list(), 1)]
        # Another process may have made the store between the two questions.
        if names and (content := bucket.get("FORMAT")) is None:
            check_empty(names, bucket.location)
        if content is not None:
            check_format(content, bucket.location)
        self._bucket, self._made = bucket, False
        commits = ObjectCommits(bucket, "commits", prepare=self.make)
        claims = ObjectCommits(bucket, "claims", prepare=self.make)
        super().__init__(bucket.location, Log(commits, bucket.location), Claims(claims))
        self._cache = PayloadCache(self._fetch_payload, SUFFIX)
        self.files = ObjectFiles(bucket, commits=commits, forget=self._forget)

    def make(self) -> None:
        """Write a missing FORMAT object; check that the server honours conditions."""
        if self._made:
            return
        if self._bucket.create("FORMAT", CONTENT) and self._bucket.create(
            "FORMAT", CONTENT
        ):
            raise StoreError(
                f"{self.location}: expected a server that honours conditional puts "
                "(If-None-Match), got one that overwrites. Update it, or name another "
                "store."
            )
        self._made = True

    def write_payload(self, arrays: Mapping[str, Array]) -> str:
        """Write one tile's arrays durably and return their id."""
        from curvflow.stores.zarr_payloads import zip_payload  # planning needs no zarr

        self.make()
        name = payload_id(arrays)
        self._bucket.put(_path(name), zip_payload(arrays))
        self._cache.forget(name)  # the stored one may have been corrupt
        return name

    def present(self, payloads: Iterable[str]) -> set[str]:
        """Return those payloads that exist, in the trash too."""
        wanted = set(payloads)
        if not wanted:
            return set()
        existing = wanted & self._stored(wanted)
        if missing := wanted - existing:
            existing |= missing & self._trashed().keys()
        # One may have come home while the trash was looked through.
        missing = wanted - existing
        return existing | (missing and (missing & self._stored(missing)))

    def _stored(self, payloads: set[str]) -> set[str]:
        first = [
            _name(info.path) for info in islice(self._bucket.list("payloads"), PAGE)
        ]
        if len(first) < PAGE:
            return set(first)
        folders = sorted({f"payloads/{name[:2]}" for name in payloads})
        listed = self._bucket.list_all(folders)
        return {_name(info.path) for info in listed}

    def _trashed(self) -> dict[str, str]:
        return {_name(info.path): info.path for info in self._bucket.list("trash")}

    def _open(self, payload: str) -> ZarrPayload:
        return self._cache.open(payload)

    def _forget(self) -> None:
        self._cache.forget()

    def _fetch_payload(self, payload: str) -> bytes:
        data = self._bucket.get(_path(payload))
        if data is None and (path := self._trashed().get(payload)):
            data = self._bucket.get(path)
        if data is None:
            raise corrupt_payload(payload, None, "it is missing")
        return data

    def write_heartbeat(self, run: RunRecord, sign: Mapping[str, Any] | None) -> None:
        """Replace a run's heartbeat; None removes it."""
        path = f"beats/{run.begun:010}.beat"
        if sign is None:
            self._bucket.remove([path])
            return
        self.make()
        self._bucket.put(path, json.dumps(sign).encode())

    def heartbeats(self) -> dict[int, dict[str, Any]]:
        """Return the latest heartbeat of each run, by the number it began at."""
        paths = [info.path for info in self._bucket.list("beats")]
        return parse_heartbeats(zip(paths, self._bucket.get_all(paths), strict=True))

    def save_snapshot(self, name: str, arrays: Mapping[str, Array]) -> None:
        """Replace the snapshot of an unfinished tile; durable when this returns."""
        from curvflow.stores.zarr_payloads import zip_snapshot  # planning needs no zarr

        self.make()
        self._bucket.put(f"partials/{name}{SUFFIX}", zip_snapshot(arrays))

    def load_snapshot(self, name: str) -> dict[str, Array] | None:
        """Return the snapshot of a tile; None if it is missing or torn."""
        data = self._bucket.get(f"partials/{name}{SUFFIX}")
        if data is None:
            return None
        from curvflow.stores.zarr_payloads import (
            read_snapshot,  # planning needs no zarr
        )

        with self._cache.written(data) as path:
            return read_snapshot(path)

    def drop_snapshot(self, name: str) -> None:
        """Remove the snapshot of a tile, if it has one."""
        self._bucket.remove([f"partials/{name}{SUFFIX}"])

    def append_event(self, run: RunRecord, event: Mapping[str, Any]) -> None:
        """Append one event to the run's journal, which is no part of the commit log."""
        self.make()
        name = f"{time.time_ns():020}-{uuid4().hex}.json"
        self._bucket.put(f"{_journal(run)}/{name}", json.dumps(event).encode())

    def journal(self, run: RunRecord) -> list[dict[str, Any]]:
        """Return the events of a run's journal, ordered by their writers' clocks."""
        paths = [info.path for info in self._bucket.list(_journal(run))]
        lines = self._bucket.get_all(sorted(paths))
        return [note for line in lines if line and (note := json_object(line))]


def _journal(run: RunRecord) -> str:
    return f"runs/{run.begun:010}"


def _path(payload: str) -> str:
    return f"payloads/{payload[:2]}/{payload}{SUFFIX}"


def _name(path: str) -> str:
    return path.rpartition("/")[2].partition(".")[0]
