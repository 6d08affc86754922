"""Tiles that were sent to a runner, and what their fate says of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from curvflow.flows.graph import Node
from curvflow.flows.jobs import Computed, Failed


@dataclass(frozen=True)
class Sent:
    """A tile that is out.

    Attributes:
        nodes: of the tile.
        losses: how often a process died over it, or over the larger one it is part of.
        in_company: it repeats a tile, with all that was once computed beside it.
        interruptions: how often its worker took the run for gone.
    """

    nodes: Sequence[Node]
    losses: int = 0
    in_company: bool = False
    interruptions: int = 0

    def again(self) -> list[Sent]:
        """Return what to try after its process died: all of it, then its halves.

        Returns:
            Nothing if it is one node whose process died before.
        """
        if not self.losses:
            return [replace(self, losses=1)]
        middle = len(self.nodes) // 2
        halves = (self.nodes[:middle], self.nodes[middle:])
        return [replace(self, nodes=half) for half in halves] if middle else []

    def fits(self, reports: Sequence[Computed | Failed]) -> int | None:
        """Return how many nodes did fit in one call; None if nothing was too large.

        Args:
            reports: what became of the nodes.

        Returns:
            Their number; None as well if some failed, for that may be why the tile was
            halved.
        """
        widths = [one.width for one in reports if isinstance(one, Computed)]
        if len(widths) < len(reports) or not self.nodes[0].kind.vectorised:
            return None
        return max(widths) if self.losses or max(widths) < len(widths) else None


class Outgoing:
    """The tiles that are out, by the runner's numbers."""

    def __init__(self) -> None:
        self._tiles: dict[int, Sent] = {}
        self._keys: Counter[str | None] = Counter()

    def __bool__(self) -> bool:
        """Return whether any is out."""
        return bool(self._tiles)

    def __contains__(self, key: str) -> bool:
        """Return whether a tile with the node of an action key is out."""
        return self._keys[key] > 0

    def add(self, number: int, tile: Sent) -> None:
        """Take note that a tile is out."""
        self._tiles[number] = tile
        self._keys.update(node.key for node in tile.nodes)

    def back(self, number: int) -> Sent:
        """Take note that a tile is out no more; return it."""
        tile = self._tiles.pop(number)
        self._keys.subtract(node.key for node in tile.nodes)
        return tile
