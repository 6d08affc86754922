"""Cache of payloads from a remote store, in a folder that ends with the process."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING
from uuid import uuid4
from weakref import finalize

if TYPE_CHECKING:
    from curvflow.stores.zarr_payloads import ZarrPayload

# Payloads kept at hand; a result is mostly read with others of its tile.
MAX_PAYLOADS = 32


class PayloadCache:
    """Least recently used cache of opened payloads; thread-safe."""

    def __init__(self, fetch: Callable[[str], bytes], suffix: str) -> None:
        """Start empty; `fetch` returns the bytes of a payload's file."""
        self._fetch, self._suffix, self._lock = fetch, suffix, RLock()
        self._payloads: OrderedDict[str, ZarrPayload] = OrderedDict()
        self._made: Path | None = None
        self._pid = 0

    def open(self, payload: str) -> ZarrPayload:
        """Return an opened payload, fetched on a miss; eviction does not close it."""
        from curvflow.stores.zarr_payloads import ZarrPayload  # planning needs no zarr

        with self._lock:
            if payload in self._payloads:
                self._payloads.move_to_end(payload)
                return self._payloads[payload]
        data = self._fetch(payload)
        with self._lock:
            path = self._folder() / f"{payload}{self._suffix}"
            path.unlink(missing_ok=True)  # an opened payload keeps its file
            path.write_bytes(data)
            self._payloads[payload] = opened = ZarrPayload(payload, path)
            while len(self._payloads) > MAX_PAYLOADS:
                self._drop(next(iter(self._payloads)))
        return opened

    def forget(self, payload: str | None = None) -> None:
        """Drop one payload, or all of them."""
        with self._lock:
            for name in list(self._payloads) if payload is None else [payload]:
                self._drop(name)

    @contextmanager
    def written(self, data: bytes) -> Iterator[Path]:
        """Yield the path of a temporary file with this content."""
        with self._lock:
            path = self._folder() / f"{uuid4().hex}{self._suffix}"
        path.write_bytes(data)
        try:
            yield path
        finally:
            path.unlink()

    def _drop(self, payload: str) -> None:
        if self._payloads.pop(payload, None) is not None:
            (self._folder() / f"{payload}{self._suffix}").unlink(missing_ok=True)

    def _folder(self) -> Path:
        """Return this process's folder; a forked child makes a new one."""
        pid = os.getpid()
        if self._made is None or self._pid != pid:
            self._made, self._pid = Path(tempfile.mkdtemp(prefix="curvflow-")), pid
            finalize(self, _remove, self._made, pid)
        return self._made


def _remove(folder: Path, pid: int) -> None:
    """Remove a folder, unless a forked child ends before the process that made it."""
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)
