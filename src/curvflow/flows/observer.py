"""Who watches a run; progress never decides anything."""

from __future__ import annotations

from typing import Protocol

from curvflow.flows.plan import Plan


class Observer(Protocol):
    """Told of a run's progress as it happens."""

    def begin(self, plan: Plan) -> None:
        """The plan is made and computing may begin."""

    def tile_begins(self, stage: str, nodes: int) -> None:
        """A tile of a stage is about to be computed."""

    def tile_ends(self, stage: str, *, done: int, failed: int) -> None:
        """A tile's results are committed."""

    def warn(self, message: str) -> None:
        """Something was lost and will be computed again."""

    def end(self) -> None:
        """The run is over, well or not."""


class Unwatched:
    """An observer that looks away."""

    def begin(self, plan: Plan) -> None:
        """Ignore the plan."""

    def tile_begins(self, stage: str, nodes: int) -> None:
        """Ignore the tile."""

    def tile_ends(self, stage: str, *, done: int, failed: int) -> None:
        """Ignore the tile."""

    def warn(self, message: str) -> None:
        """Ignore the warning; it stands in the run's journal."""

    def end(self) -> None:
        """Ignore the end."""
