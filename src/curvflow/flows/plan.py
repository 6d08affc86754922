"""Compare a study's nodes with what a store holds: done, to run, or waiting."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from curvflow.errors import InputError
from curvflow.flows.causes import Causes
from curvflow.flows.expand import expand
from curvflow.flows.files import SourceFiles
from curvflow.flows.graph import Graph, State
from curvflow.flows.lookup import compare
from curvflow.schemas.study import Study
from curvflow.stores.base import Index, Store
from curvflow.stores.log import without_collection


@dataclass
class Plan:
    """A study's nodes, each with its state against one store.

    Attributes:
        graph: the nodes.
        index: what the store's log said.
        causes: why nodes must run.
    """

    graph: Graph
    index: Index
    causes: Causes

    def counts(self, stage: str | None = None) -> dict[str, int]:
        """Count nodes by state, of one stage or of all."""
        nodes = self.graph.nodes[stage] if stage else list(self.graph)
        found = Counter(node.state for node in nodes)
        states: tuple[State, ...] = ("cached", "stale", "waiting")
        return {"total": len(nodes), **{state: found[state] for state in states}}

    def as_json(self) -> dict[str, Any]:
        """Return the plan in the form of `curvflow plan --json`."""
        stages = {
            name: {
                "kind": self.graph.study.stages[name].kind.name,
                **self.counts(name),
                "reasons": self.causes.grouped(nodes),
            }
            for name, nodes in self.graph.nodes.items()
        }
        return {"study": self.graph.study.name, **self.counts(), "stages": stages}


def make_plan(study: Study, store: Store, files: SourceFiles) -> Plan:
    """Plan a study against a store; nothing is written.

    Args:
        study: the resolved study.
        store: where results are looked up.
        files: the files that parameters name.

    Returns:
        Every node with its state; a waiting node's key depends on results that are
        not there yet.

    Raises:
        StudyError: the study asks for something that cannot be done, or a file that
            it names holds what its kind cannot use.
    """
    with without_collection():
        graph = expand(study, files)
        index = store.index()
        plan = Plan(graph, index, Causes(graph, index))
        for nodes in graph.nodes.values():
            compare(nodes, index)
    strike_lost(graph, store)
    check_files(graph, files)
    return plan


def strike_lost(graph: Graph, store: Store) -> None:
    """Mark nodes whose payload is gone as stale; what they gave is still known."""
    named = {node.receipt.payload for node in graph if node.receipt}
    present = store.present(payload for payload in named if payload)
    for node in graph:
        payload = node.receipt.payload if node.receipt else None
        if payload and payload not in present:
            node.state = "stale"


def check_files(graph: Graph, files: SourceFiles) -> None:
    """Let kinds look at the files of nodes that must run.

    Raises:
        StudyError: a file holds what the kind cannot use.
    """
    seen: set[int] = set()
    for node in graph:
        check = node.kind.check
        if check is None or node.state == "cached" or id(node.form) in seen:
            continue
        seen.add(id(node.form))
        try:
            check(node.params, files.read(node.params, node.form))
        except InputError as error:
            stage = graph.study.stages[node.stage]
            raise stage.complain((), str(error)) from error
