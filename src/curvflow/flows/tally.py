"""What a run has done so far, counted as it happens."""

from __future__ import annotations

from collections import Counter
from typing import Any

from curvflow.flows.graph import Graph, Node
from curvflow.flows.jobs import Failed


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
        self.recount()

    def recount(self) -> None:
        """Count again what is done."""
        nodes = (node for node in self._graph if node.state == "cached")
        self.done = Counter(node.stage for node in nodes)

    def failed(self, stage: str) -> int:
        """Return how many nodes of a stage failed."""
        return sum(1 for node in self._graph.nodes[stage] if self._has_failed(node))

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
