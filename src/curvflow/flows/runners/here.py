"""This process as a place to compute in, made ready when something needs it."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType

from curvflow.flows.memory import main_memory
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.nodes import Figure, Table
from curvflow.schemas.options import RunOptions
from curvflow.tasks.registry import Machine


class Here:
    """The machine that tiles of this process run on.

    Tables and figures need neither PyTorch nor the GPU that a run asks for, so a run
    that makes nothing else has neither.
    """

    def __init__(self, options: RunOptions) -> None:
        """Remember what is asked for.

        Args:
            options: how to compute.
        """
        self._options, self._stack = options, ExitStack()
        self._machine: Machine | None = None

    def __enter__(self) -> Here:
        """Take care of what was set; `__exit__` sets it back."""
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
        """Return what the tiles of a kind are to be computed on."""
        if issubclass(find_kind(kind).returns, Table | Figure):
            return Machine()
        return self.ready()

    def ready(self) -> Machine:
        """Make this process ready to compute.

        Returns:
            The machine.

        Raises:
            RequestError: a GPU was asked for and there is none.
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
