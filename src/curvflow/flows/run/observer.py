"""Observers of a run, and the counts of what it has done so far."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from curvflow.flows.graph.graph import Graph, Node
from curvflow.flows.graph.jobs import Failed

if TYPE_CHECKING:
    from curvflow.flows.plan.plan import Plan


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


class Tally:
    """Counts of one run.

    Attributes:
        executed: nodes computed, per stage.
        revived: of these, results that collection had removed, the same again.
        done: nodes with a result, per stage.
        failures: error and traceback by action key.
    """

    def __init__(self, graph: Graph) -> None:
        """Begin with what is done already.

        Args:
            graph: the nodes, compared with the store.
        """
        self._graph = graph
        self.executed: Counter[str] = Counter()
        self.revived: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self.failures: dict[str, Failed] = {}
        self._failed: Counter[str] = Counter()
        self.recount()

    def recount(self) -> None:
        """Count again what is done, and what has failed."""
        nodes = (node for node in self._graph if node.state == "cached")
        self.done = Counter(node.stage for node in nodes)
        nodes = (node for node in self._graph if self._has_failed(node))
        self._failed = Counter(node.stage for node in nodes)

    def fail(self, nodes: Iterable[Node], report: Failed) -> None:
        """Take note that nodes of one key have failed."""
        for node in nodes:
            assert node.key is not None
            self.failures[node.key] = report
            self._failed[node.stage] += self._has_failed(node)

    def failed(self, stage: str) -> int:
        """Return how many nodes of a stage failed."""
        return self._failed[stage]

    def _has_failed(self, node: Node) -> bool:
        return node.state == "stale" and node.key in self.failures

    def failure_records(self) -> list[dict[str, Any]]:
        """Return key, stage, coords, error and traceback of each failed node."""
        if not self.failures:
            return []
        return [
            {
                "key": node.key,
                "stage": node.stage,
                "coords": node.coords,
                **vars(self.failures[node.key]),
            }
            for node in self._graph
            if node.key is not None and self._has_failed(node)
        ]
