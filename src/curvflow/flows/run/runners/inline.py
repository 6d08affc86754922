"""Compute tiles in the process of the run itself, one after another."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType

from curvflow.flows.graph.tiles import TileJob
from curvflow.flows.run.compute import Snapshots, carried_out, main_memory
from curvflow.flows.run.runners.base import (
    Needs,
    Returned,
)
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.nodes import Figure, Table
from curvflow.schemas.options import RunOptions
from curvflow.stores.base import Store
from curvflow.tasks.registry import Machine


class Inline:
    """The runner of a run without workers."""

    def __init__(
        self, store: Store, machine: Callable[[str], Machine], snapshots: Snapshots
    ) -> None:
        self._store, self._machine, self._snapshots = store, machine, snapshots
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
        return [(number, carried_out(self._store, job, machine, self._snapshots))]

    def withdraw(self) -> list[int]:
        """Drop the tile that nobody has waited for."""
        numbers = [] if self._job is None else [self._job[0]]
        self._job = None
        return numbers


class ThisProcess:
    """The machine that tiles of this process run on.

    Tables and figures need neither PyTorch nor the GPU that a run requests, so a run
    that makes nothing else has neither.
    """

    def __init__(self, options: RunOptions) -> None:
        self._options, self._stack = options, ExitStack()
        self._machine: Machine | None = None

    def __enter__(self) -> ThisProcess:
        """Begin; `__exit__` restores the number of threads."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Set back the number of threads."""
        self._stack.close()

    def machine(self, kind: str) -> Machine:
        """Return the machine for the tiles of a kind."""
        if issubclass(find_kind(kind).returns, Table | Figure):
            return Machine()
        return self.ready()

    def ready(self) -> Machine:
        """Return the machine, with this process made ready to compute on it.

        Raises:
            RequestError: a GPU was requested and there is none.
        """
        if self._machine is None:
            # Loaded here because a run that needs none saves the second PyTorch takes.
            from curvflow.tasks.machine import machine_for, threads

            options = self._options
            self._machine = machine_for(
                options.device, options.num_threads, options.compiler, main_memory()
            )
            self._stack.enter_context(threads(options.num_threads))
        return self._machine
