"""Snapshots of long tiles, so that a kill costs a minute."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from curvflow.errors import StoreError
from curvflow.flows.graph.heartbeats import Stopping
from curvflow.schemas.nodes import Array
from curvflow.schemas.words import counted
from curvflow.stores.base import Store

KEEP_EVERY = 60.0


def _unheard(_: str) -> None:
    """Drop the line."""


class Snapshots:
    """The snapshots of one run's tiles."""

    def __init__(
        self,
        store: Store,
        stop: Stopping,
        *,
        every: float = KEEP_EVERY,
        clock: Callable[[], float] = time.monotonic,
        tell: Callable[[str], None] = _unheard,
    ) -> None:
        self.store, self.stop, self.every, self.clock = store, stop, every, clock
        self.tell, self.stage = tell, ""
        # Choices of the tile in work, such as its differentiation mode.
        self.recorded: list[str] = []
        self._used: set[str] = set()
        # Whether a tile since the last call of `taken` went on from a state, so that
        # its time is that of the rest alone.
        self.were_found = False

    def turn_to(self, stage: str) -> None:
        """Name the stage whose tiles come next."""
        self.stage = stage

    def of(self, name: str, nodes: int) -> TileSnapshot:
        """Return the snapshot of one tile of so many nodes."""
        return TileSnapshot(self, name, nodes)

    def used(self, name: str) -> None:
        """Remember that there is a state of this name."""
        self._used.add(name)

    def taken(self) -> tuple[str, ...]:
        """Return the names of all states since the last call.

        Whoever publishes what they led to removes them from the store.
        """
        names, self._used = tuple(self._used), set()
        self.were_found = False
        return names


class TileSnapshot:
    """The snapshot of one tile; see `tasks.registry.Partial`."""

    def __init__(self, snapshots: Snapshots, name: str, nodes: int) -> None:
        self._snapshots, self._name = snapshots, name
        self._counted = counted(nodes, "node")
        self._last = snapshots.clock()

    def load(self) -> Mapping[str, Array] | None:
        """Return the arrays that an earlier attempt at the same tile saved."""
        self._snapshots.used(self._name)  # to be cleared even if it cannot be read
        arrays = self._snapshots.store.load_snapshot(self._name)
        if arrays:
            self._snapshots.were_found = True
            go = "goes" if self._counted == "1 node" else "go"
            self.tell(f"{self._counted} {go} on from a kept state")
        return arrays

    def is_due(self) -> bool:
        """Return whether the snapshot is too old, or the run is asked to end."""
        if self._snapshots.stop.signal is not None:
            return True
        return self._snapshots.clock() - self._last >= self._snapshots.every

    def keep(self, arrays: Mapping[str, Array]) -> None:
        """Replace the snapshot; raises Stopped if the run is asked to end."""
        with suppress(StoreError):  # a full disk is met by what publishes
            self._snapshots.store.save_snapshot(self._name, arrays)
            if self._snapshots.stop.signal is not None:
                self.tell(f"the state of {self._counted} in work is kept")
        self._snapshots.used(self._name)
        self._last = self._snapshots.clock()
        self._snapshots.stop.check()

    def tell(self, message: str) -> None:
        """Show a line to the observer, after the name of the stage."""
        self._snapshots.tell(f"{self._snapshots.stage}: {message}")

    def record(self, message: str) -> None:
        """Show a line, and keep it for the receipts of the tile."""
        self._snapshots.recorded.append(message)
        self.tell(message)
