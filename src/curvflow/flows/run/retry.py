"""Tiles in flight, and the retries of a tile whose worker died or lost the run.

After a death the whole tile is tried once more, then its halves, until a node whose
process always dies is alone and fails by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from curvflow.errors import StoreError
from curvflow.flows.graph.graph import Node
from curvflow.flows.graph.tiles import Computed, Failed

# Times that a tile's worker may take the run for gone: it was asleep, say.
MOST_INTERRUPTIONS = 20


@dataclass(frozen=True)
class TileInFlight:
    """A tile that was sent to the runner.

    Attributes:
        nodes: of the tile.
        deaths: times a process died over it, or over the larger one it is part of.
        is_repeat: it repeats a tile as it was once computed, to compare the results.
        interruptions: times its worker took the run for gone.
    """

    nodes: Sequence[Node]
    deaths: int = 0
    is_repeat: bool = False
    interruptions: int = 0

    def after_death(self) -> list[TileInFlight]:
        """Return the retries after a death: the tile, then its halves, then none."""
        if not self.deaths:
            return [replace(self, deaths=1)]
        middle = len(self.nodes) // 2
        halves = (self.nodes[:middle], self.nodes[middle:])
        return [replace(self, nodes=half) for half in halves] if middle else []

    def after_interruption(self, store: str) -> TileInFlight:
        """Return the retry after a worker missed the run's heartbeat.

        Raises:
            StoreError: this has happened again and again.
        """
        if self.interruptions >= MOST_INTERRUPTIONS:
            raise StoreError(
                f"{store}: workers missed this run's heartbeat {MOST_INTERRUPTIONS} "
                "times. Check file-system caching on them (NFS attribute cache); what "
                "is finished is kept."
            )
        return replace(self, interruptions=self.interruptions + 1)

    def width_that_fit(self, reports: Sequence[Computed | Failed]) -> int | None:
        """Return the number of nodes that fitted in one call, after a halving.

        None if nothing was too large, or if nodes failed, which also halves a tile.
        """
        widths = [report.width for report in reports if isinstance(report, Computed)]
        if len(widths) < len(reports) or not self.nodes[0].kind.vectorised:
            return None
        return max(widths) if self.deaths or max(widths) < len(widths) else None
