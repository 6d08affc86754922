"""What a plan foretells: root causes, how long they take, and what is saved."""

from __future__ import annotations

from typing import Any

from curvflow.flows.continued import continues
from curvflow.flows.graph import Graph
from curvflow.flows.why.causes import Causes
from curvflow.flows.why.cost import Costs, Prediction, saved_seconds, start_seconds
from curvflow.flows.why.root_causes import RootCause, root_causes
from curvflow.stores.base import Index
from curvflow.stores.log import without_collection


def forecast(graph: Graph, index: Index, causes: Causes) -> dict[str, Any]:
    """Foretell what a run would do, in the form of `curvflow plan --json`.

    Args:
        graph: the nodes, compared with the store.
        index: what the log says.
        causes: why nodes must run.

    Returns:
        `causes`, those that take longest first. Seconds are those of one worker that
        computes one tile after another: `predicted_seconds` of all nodes to consider,
        `must_run_seconds` of those that run whatever their inputs turn out to be, and
        `saved_seconds` of results at hand. `start_seconds` are what a run takes beside
        computing, None if that is not known.
    """
    with without_collection():
        return _forecast(graph, index, causes)


def _forecast(graph: Graph, index: Index, causes: Causes) -> dict[str, Any]:
    costs, roots = Costs(graph, index), root_causes(graph, causes)
    todo = [node for node in graph if node.state != "cached"]
    sure = {id(node): node for root in roots for node in root.runs}
    told = costs.predicted(todo)
    return {
        "causes": sorted((_told(root, costs) for root in roots), key=_weight),
        "predicted_seconds": told.seconds,
        "must_run_seconds": costs.predicted(sure.values()).seconds,
        "predicted_nodes": told.nodes,
        "rough_cost_nodes": told.rough,
        "unknown_cost_nodes": told.unknown,
        "start_seconds": start_seconds(index),
        "saved_seconds": saved_seconds(graph),
    }


def _told(root: RootCause, costs: Costs) -> dict[str, Any]:
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
