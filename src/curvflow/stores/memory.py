"""A store in memory, for tests and experiments."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from curvflow.errors import CorruptPayloadError
from curvflow.schemas.nodes import Array
from curvflow.schemas.records.receipts import Receipt, RunRecord
from curvflow.stores.base import Layout
from curvflow.stores.claims import Claims
from curvflow.stores.commits import MemoryCommits
from curvflow.stores.log import Log
from curvflow.stores.log_store import LogStore
from curvflow.stores.payload_digests import (
    TEXT,
    ArrayRows,
    Found,
    corrupt_payload,
    payload_id,
    read_rows,
)
from curvflow.stores.trash import Folder, Item, payload_folder

Arrays = dict[str, Array]


class MemoryFiles:
    """The stored files of a memory store: payloads in dictionaries, none unfinished."""

    def __init__(
        self,
        commits: MemoryCommits,
        *,
        payloads: MutableMapping[str, Arrays],
        aside: MutableMapping[str, Arrays],
        times: MutableMapping[str, float],
    ) -> None:
        """Bind to a store's dictionaries: by id, and by path for those moved aside."""
        self._commits, self._payloads = commits, payloads
        self._aside, self._times = aside, times

    def exists(self) -> bool:
        """Return True: the store exists as long as the process."""
        return True

    def clock(self) -> float:
        """Return the store's clock, in seconds."""
        return time.monotonic()

    def entry_time(self, number: int) -> float:
        """Return the time of an entry of the log."""
        return self._commits.time(number)

    def items(self, folder: Folder) -> list[Item]:
        """Return the files in one folder, ordered by path."""
        payloads = {
            f"payloads/{name[:2]}/{name}": a for name, a in self._payloads.items()
        }
        payloads |= self._aside
        return [
            self._item(path, arrays)
            for path, arrays in sorted(payloads.items())
            if path.startswith(f"{folder}/")
        ]

    def _item(self, path: str, arrays: Arrays) -> Item:
        size = sum(array.nbytes for array in arrays.values())
        return Item(path, size, self._times.get(path.rpartition("/")[2], 0.0))

    def move(self, item: Item, folder: str) -> bool:
        """Move a payload to another folder of the store; False if it is gone."""
        there, key = self._place(item.path)
        arrays = there.get(key)
        if arrays is None:
            return False
        target, name = self._place(f"{folder}/{item.name}")
        if folder != payload_folder(item):
            self._times[item.name] = time.monotonic()
        target[name] = arrays  # first, so that it is there at every moment
        there.pop(key, None)
        return True

    def redate(self, items: Iterable[Item]) -> None:
        """Date files that are ahead of the store's clock as written now."""
        self._times.update((item.name, time.monotonic()) for item in items)

    def remove(self, items: Iterable[Item]) -> None:
        """Delete files for good; missing ones are skipped."""
        for item in items:
            there, key = self._place(item.path)
            there.pop(key, None)

    def _place(self, path: str) -> tuple[MutableMapping[str, Arrays], str]:
        """Return the dictionary that holds a payload, and its key there."""
        if path.startswith("payloads/"):
            return self._payloads, path.rpartition("/")[2]
        return self._aside, path


class MemoryStore(LogStore):
    """A store that behaves like the local one and ends with the process."""

    def __init__(self, location: str = "memory:") -> None:
        """Make an empty store."""
        commits = MemoryCommits()
        super().__init__(location, Log(commits, location), Claims(MemoryCommits()))
        self._payloads: dict[str, dict[str, Array]] = {}
        self._times: dict[str, float] = {}
        self._notes: defaultdict[int, list[str]] = defaultdict(list)
        self._beats: dict[int, str] = {}
        self._partials: dict[str, dict[str, Array]] = {}
        self._aside: dict[str, dict[str, Array]] = {}
        self.files = MemoryFiles(
            commits, payloads=self._payloads, aside=self._aside, times=self._times
        )

    def write_payload(self, arrays: Mapping[str, Array]) -> str:
        """Keep a copy of one tile's arrays and return their id."""
        name = payload_id(arrays)
        self._times[name] = time.monotonic()
        self._payloads[name] = {
            variable: np.array(array, dtype=str if array.dtype.kind in TEXT else None)
            for variable, array in arrays.items()
        }
        return name

    def present(self, payloads: Iterable[str]) -> set[str]:
        """Return those payloads that exist."""
        return {name for name in payloads if self._arrays(name) is not None}

    def layout(self, payload: str) -> Mapping[str, Layout]:
        """Return the variables of a payload."""
        return {
            name: Layout(array.shape[1:], _plain(array.dtype))
            for name, array in self._payload(payload, None).items()
        }

    def read_together(
        self, receipts: Sequence[Receipt], parts: Sequence[str]
    ) -> list[Found]:
        """Return copies of parts of several results of one payload, verified."""
        payload = str(receipts[0].payload)
        try:
            arrays = self._payload(payload, receipts[0].slot) if parts else {}
        except CorruptPayloadError as error:
            return [error for _ in receipts]
        return read_rows(ArrayRows(payload, arrays), receipts, parts)

    def _payload(self, payload: str, slot: int | None) -> dict[str, Array]:
        arrays = self._arrays(payload)
        if arrays is None:
            raise corrupt_payload(payload, slot, "it is missing")
        return arrays

    def _arrays(self, payload: str) -> dict[str, Array] | None:
        arrays = self._payloads.get(payload) or self._trashed(payload)
        # It may have come home while the trash was looked through.
        return arrays or self._payloads.get(payload)

    def _trashed(self, payload: str) -> dict[str, Array] | None:
        trashed = (
            arrays
            for path, arrays in list(self._aside.items())
            if path.startswith("trash/") and path.endswith(f"/{payload}")
        )
        return next(trashed, None)

    def read_payload(self, payload: str) -> dict[str, Array]:
        """Return copies of all variables of all nodes of a payload."""
        arrays = self._payload(payload, None)
        return {name: np.array(array) for name, array in arrays.items()}

    def write_heartbeat(self, run: RunRecord, sign: Mapping[str, Any] | None) -> None:
        """Replace a run's heartbeat; None removes it."""
        self._beats.pop(run.begun, None)
        if sign is not None:
            self._beats[run.begun] = json.dumps(sign)

    def heartbeats(self) -> dict[int, dict[str, Any]]:
        """Return the latest heartbeat of each run, by the number it began at."""
        return {begun: json.loads(sign) for begun, sign in self._beats.items()}

    def save_snapshot(self, name: str, arrays: Mapping[str, Array]) -> None:
        """Replace the snapshot of an unfinished tile."""
        self._partials[name] = {key: np.array(value) for key, value in arrays.items()}

    def load_snapshot(self, name: str) -> dict[str, Array] | None:
        """Return the snapshot of a tile; None if it has none."""
        kept = self._partials.get(name)
        return kept and {key: np.array(value) for key, value in kept.items()}

    def drop_snapshot(self, name: str) -> None:
        """Remove the snapshot of a tile, if it has one."""
        self._partials.pop(name, None)

    def append_event(self, run: RunRecord, event: Mapping[str, Any]) -> None:
        """Append one event to the run's journal."""
        self._notes[run.begun].append(json.dumps(event))

    def journal(self, run: RunRecord) -> list[dict[str, Any]]:
        """Return the events of a run's journal."""
        return [json.loads(line) for line in self._notes[run.begun]]


def _plain(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(object) if dtype.kind in TEXT else dtype
