"""Who watches a run; progress never decides anything."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # who watches can say at once that a plan is being made
    from curvflow.flows.plan import Plan


class Observer(Protocol):
    """Told of a run's progress as it happens."""

    def begin(self, plan: Plan) -> None:
        """The plan is made and computing may begin."""

    def tile_begins(self, stage: str) -> None:
        """A tile of a stage is about to be computed."""

    def stage_at(self, stage: str, *, done: int, failed: int) -> None:
        """So many nodes of a stage are done by now, so many have failed."""

    def tell(self, message: str) -> None:
        """Something happened that is worth a line, and no loss."""

    def warn(self, message: str) -> None:
        """Something was lost and will be computed again."""

    def end(self) -> None:
        """The run is over, well or not."""


class Unwatched:
    """An observer that looks away."""

    def begin(self, plan: Plan) -> None:
        """Ignore the plan."""

    def tile_begins(self, stage: str) -> None:
        """Ignore the tile."""

    def stage_at(self, stage: str, *, done: int, failed: int) -> None:
        """Ignore the progress."""

    def tell(self, message: str) -> None:
        """Write the line to the log of Python, where it is shown if asked for."""
        logging.getLogger("curvflow").info(message)

    def warn(self, message: str) -> None:
        """Ignore the warning; the store's log tells what was struck off."""

    def end(self) -> None:
        """Ignore the end."""
