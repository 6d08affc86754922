"""Compute tiles in the process of the run itself, one after another."""

from __future__ import annotations

from collections.abc import Callable

from curvflow.errors import Stopped
from curvflow.flows.compute import LostInputError, compute_tile
from curvflow.flows.jobs import TileJob
from curvflow.flows.partials import Partials
from curvflow.flows.runners.base import (
    Finished,
    Interrupted,
    LostInput,
    Needs,
    Returned,
)
from curvflow.stores.base import Store
from curvflow.tasks.registry import Machine


def carried_out(
    store: Store, job: TileJob, machine: Machine, partials: Partials
) -> Returned:
    """Compute a tile and say what became of it.

    Args:
        store: results are read from it and written to it; nothing is committed.
        job: the tile.
        machine: where to compute.
        partials: where a long computation keeps what it has so far.

    Returns:
        The tile's fate.

    Raises:
        StoreError: the payload cannot be written.
    """
    partials.turn_to(job.stage)
    try:
        reports = compute_tile(store, job, machine, partials)
    except LostInputError as error:
        return LostInput(error.receipt, str(error))
    except Stopped as stopped:
        return Interrupted(stopped.signal)
    return Finished(reports, kept=partials.taken())


class Inline:
    """The runner of a run without workers."""

    def __init__(
        self, store: Store, machine: Callable[[str], Machine], partials: Partials
    ) -> None:
        """Compute in this process.

        Args:
            store: holds the results.
            machine: from the name of a kind to where its tiles are computed.
            partials: where long computations keep what they have so far.
        """
        self._store, self._machine, self._partials = store, machine, partials
        self._job: tuple[int, TileJob] | None = None
        self._count = 0

    def room(self, needs: Needs) -> int:
        """Take one tile at a time, whatever it needs."""
        return 1 if self._job is None else 0

    def submit(self, job: TileJob, *, needs: Needs, priority: float) -> int:
        """Keep the tile until somebody waits for it."""
        self._count += 1
        self._job = self._count, job
        return self._count

    def wait(self, seconds: float) -> list[tuple[int, Returned]]:
        """Compute the tile, if there is one."""
        if self._job is None:
            return []
        (number, job), self._job = self._job, None
        machine = self._machine(job.kind)
        return [(number, carried_out(self._store, job, machine, self._partials))]

    def withdraw(self) -> list[int]:
        """Drop the tile that nobody has waited for."""
        numbers = [] if self._job is None else [self._job[0]]
        self._job = None
        return numbers
