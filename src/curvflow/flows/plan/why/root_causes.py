"""Root causes, the nodes that must run after them, and the time it will take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from curvflow.flows.graph.graph import Graph, Node, node_name
from curvflow.flows.plan.resume import continues
from curvflow.flows.plan.why.causes import Causes, Changes, replaced, takes_others
from curvflow.flows.plan.why.cost import Costs, Prediction, saved_seconds, start_seconds
from curvflow.flows.plan.why.nearest import input_changes, own_changes
from curvflow.schemas.long_lived import paused_gc
from curvflow.schemas.records.receipts import Receipt
from curvflow.stores.base import Index

Place = tuple[str, Changes]  # where, and what changed there
Places = frozenset[Place]
NOTHING: Places = frozenset()
EXAMPLES = 3


@dataclass
class RootCause:
    """One root cause and the nodes that run because of it.

    Attributes:
        where: stage or kind that changed; empty if several stages did.
        changes: what changed.
        changed: nodes that bear the change.
        runs: nodes that surely run: of `changed` those not done, and of what follows
            those that no earlier result can save.
        may_follow: nodes that run unless their inputs turn out as they were.
    """

    where: str
    changes: Changes
    changed: list[Node] = field(default_factory=list)
    runs: list[Node] = field(default_factory=list)
    may_follow: list[Node] = field(default_factory=list)

    def __str__(self) -> str:
        if self.changes[0].what == "new":
            return self._new()
        text = "; ".join(str(change) for change in self.changes)
        return f"{self.where}: {text}" if self.where else text

    def _new(self) -> str:
        dims = [dim for dim in self.changes[0].name.split(", ") if dim]
        parts = []
        for dim in dims:
            labels = list(dict.fromkeys(str(node.coords[dim]) for node in self.changed))
            more = f" and {len(labels) - EXAMPLES} more" if labels[EXAMPLES:] else ""
            parts.append(f"{dim} {', '.join(labels[:EXAMPLES])}{more}")
        return f"new {'; '.join(parts)}" if parts else "never computed"

    def as_json(self) -> dict[str, Any]:
        """Return the cause as plain data, nodes counted per stage."""
        return {
            "cause": str(self),
            "where": self.where,
            "changes": [change.as_json() for change in self.changes],
            "runs": _per_stage(self.runs),
            "may_follow": _per_stage(self.may_follow),
            "examples": [node_name(node) for node in self.changed[:EXAMPLES]],
        }


def _per_stage(nodes: Iterable[Node]) -> dict[str, int]:
    return dict(Counter(node.stage for node in nodes))


def root_causes(graph: Graph, causes: Causes) -> list[RootCause]:
    """Attribute every node that is not done to the changes that make it run.

    Causes are in the order of the stages; a node behind several is counted in each.
    """
    return _Attribution(causes).all(graph)


class _Attribution:
    """Goes through the nodes once, inputs first."""

    def __init__(self, causes: Causes) -> None:
        self._causes = causes
        self._places: dict[int, Places] = {}
        self._sure: set[int] = set()
        self._new: set[int] = set()
        self._roots: dict[Place, RootCause] = {}
        self._sources: dict[tuple[int, int], Places] = {}

    def all(self, graph: Graph) -> list[RootCause]:
        for node in graph:
            if node.state != "cached":
                self._attribute(node)
        return list(self._roots.values())

    def _attribute(self, node: Node) -> None:
        if not self._causes.results.at(node):
            self._new.add(id(node))
        if node.state == "stale":
            self._sure.add(id(node))
            places = self._of_stale(node)
        else:
            places = self._of_waiting(node)
        self._places[id(node)] = places
        sure = id(node) in self._sure
        for place in places:
            root = self._roots[place]
            (root.runs if sure else root.may_follow).append(node)

    def _own(self, node: Node, changes: Changes) -> Places:
        kinds_of_change = {change.what for change in changes}
        where = node.kind.name if kinds_of_change == {"version"} else node.stage
        place = ("" if kinds_of_change == {"new"} else where), changes
        if place not in self._roots:
            self._roots[place] = RootCause(*place)
        self._roots[place].changed.append(node)
        return frozenset([place])

    def _of_stale(self, node: Node) -> Places:
        changes = self._causes.changes(node)
        changed = tuple(change for change in changes if change.what != "input")
        if changed:
            return self._own(node, changed)
        earlier = self._causes.results.nearest_at(node)
        assert earlier is not None
        return self._inputs(node, earlier, changes) or self._own(node, changes)

    def _inputs(self, node: Node, earlier: Receipt, changes: Changes) -> Places:
        """Follow changed inputs up to the nodes that changed them and are done."""
        sources = [
            self._source(producer, receipt)
            for change in changes
            for producer, receipt in replaced(
                node, earlier, change.name, self._causes.results
            )
        ]
        return NOTHING.union(*sources)

    def _source(self, node: Node, earlier: Receipt) -> Places:
        if id(node) in self._places:
            return self._places[id(node)]
        memo = id(node), id(earlier)
        if memo not in self._sources:
            changed = own_changes(node, earlier)
            self._sources[memo] = (
                self._own(node, tuple(changed))
                if changed
                else self._inputs(node, earlier, tuple(input_changes(node, earlier)))
            )
        return self._sources[memo]

    def _of_waiting(self, node: Node) -> Places:
        changes, above = self._causes.changes(node), self._above(node)
        if not changes:
            if takes_others(node, self._causes.results):
                self._sure.add(id(node))
            return above
        if changes[0].what == "new":
            return self._of_new(node, changes, above)
        if self._causes.results.has_alike(node):
            return self._own(node, changes) | above
        self._sure.add(id(node))
        return self._own(node, changes)

    def _of_new(self, node: Node, changes: Changes, above: Places) -> Places:
        awaited = [taken.node for several in node.inputs.values() for taken in several]
        # Nothing was there that a new input could turn out to be equal to.
        new = [
            self._places[id(producer)]
            for producer in awaited
            if id(producer) in self._new
        ]
        if new or not self._causes.results.has_alike(node):
            self._sure.add(id(node))
        if new:
            return NOTHING.union(*new)
        if changes[0].name == "epoch":  # it is what it waits for that goes on longer
            return above
        causes = self._own(node, changes)
        return causes if id(node) in self._sure else causes | above

    def _above(self, node: Node) -> Places:
        above = {
            self._places.get(id(taken.node), NOTHING)
            for several in node.inputs.values()
            for taken in several
            if taken.node.receipt is None
        }
        return next(iter(above)) if len(above) == 1 else NOTHING.union(*above)


def forecast(graph: Graph, index: Index, causes: Causes) -> dict[str, Any]:
    """Predict a run, in the form of `curvflow plan --json`.

    Seconds are those of one worker that computes one tile after another:
    `predicted_seconds` of all nodes to consider, `must_run_seconds` of those that run
    in any case, `saved_seconds` of cached results, and `start_seconds` before
    computing, None if unknown. The longest of the `causes` comes first.
    """
    with paused_gc():
        return _forecast(graph, index, causes)


def _forecast(graph: Graph, index: Index, causes: Causes) -> dict[str, Any]:
    costs, roots = Costs(graph, index), root_causes(graph, causes)
    todo = [node for node in graph if node.state != "cached"]
    sure = {id(node): node for root in roots for node in root.runs}
    prediction = costs.predicted(todo)
    return {
        "causes": sorted((_as_json(root, costs) for root in roots), key=_weight),
        "predicted_seconds": prediction.seconds,
        "must_run_seconds": costs.predicted(sure.values()).seconds,
        "predicted_nodes": prediction.nodes,
        "rough_cost_nodes": prediction.rough,
        "unknown_cost_nodes": prediction.unknown,
        "start_seconds": start_seconds(index),
        "saved_seconds": saved_seconds(graph),
    }


def _as_json(root: RootCause, costs: Costs) -> dict[str, Any]:
    runs, follow = costs.predicted(root.runs), costs.predicted(root.may_follow)
    both: Prediction = runs + follow
    return root.as_json() | {
        "predicted_seconds": both.seconds,
        "must_run_seconds": runs.seconds,
        "rough_cost_nodes": both.rough,
        "unknown_cost_nodes": both.unknown,
        "continues": continues(root.runs),
    }


def _weight(cause: dict[str, Any]) -> tuple[float, int]:
    nodes = sum(cause["runs"].values()) + sum(cause["may_follow"].values())
    return -cause["predicted_seconds"], -nodes
