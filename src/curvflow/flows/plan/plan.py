"""Compare a study's nodes with what a store holds: done, to run, or waiting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from curvflow.errors import InputError, RequestError, UnknownNameError, nearest
from curvflow.flows.graph.expand import expand
from curvflow.flows.graph.files import SourceFiles, check_arrays
from curvflow.flows.graph.graph import Graph, Node, State
from curvflow.flows.graph.heartbeats import in_work
from curvflow.flows.graph.lookup import compare
from curvflow.flows.plan.code.drift import Drift, find_drifts
from curvflow.flows.plan.code.fingerprints import Fingerprints
from curvflow.flows.plan.code.missing_functions import NamedCode
from curvflow.flows.plan.resume import Earlier, continues
from curvflow.flows.plan.why.causes import Causes
from curvflow.flows.plan.why.cost import Costs
from curvflow.flows.plan.why.root_causes import forecast
from curvflow.schemas.nodes import Figure, Table
from curvflow.schemas.study.study import Study
from curvflow.stores.base import Index, Store
from curvflow.stores.log import paused_gc


@dataclass
class Plan:
    """A study's nodes, each with its state against one store.

    Attributes:
        graph: the nodes.
        index: what the store's log said.
        causes: why nodes must run.
        codes: the code that computes the nodes.
        removed: payloads that collection has removed; their results stand.
        drifts: results whose code has changed under an unchanged version.
        in_work: keys of nodes to run that a run at work has claimed.
    """

    graph: Graph
    index: Index
    causes: Causes
    codes: Fingerprints
    removed: set[str] = field(default_factory=set)
    drifts: Sequence[Drift] = ()
    in_work: Collection[str] = ()

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
                "continues": continues(nodes),
                "removed": sum(self._is_removed(node) for node in nodes),
                "in_work": sum(self._is_in_work(node) for node in nodes),
            }
            for name, nodes in self.graph.nodes.items()
        }
        return {
            "study": self.graph.study.name,
            **self.counts(),
            "stages": stages,
            **forecast(self.graph, self.index, self.causes),
            "code": [drift.as_json() for drift in self.drifts],
        }

    def _is_in_work(self, node: Node) -> bool:
        return node.state == "stale" and node.key in self.in_work

    def _is_removed(self, node: Node) -> bool:
        """Whether a node is done, but its arrays would be computed again if needed."""
        payload = node.receipt.payload if node.receipt else None
        return node.state == "cached" and payload in self.removed


def make_plan(
    study: Study, store: Store, files: SourceFiles, *, revive: Collection[str] = ()
) -> Plan:
    """Plan a study against a store; nothing is written.

    Args:
        study: the resolved study.
        store: where results are looked up.
        files: the files that parameters name.
        revive: stages whose results must be there, though collection removed them.

    Returns:
        Every node with its state; a waiting node's key depends on results that are
        not there yet.

    Raises:
        StudyError: the study asks for something that cannot be done, or a file that
            it names holds what its kind cannot use.
        UnknownNameError: there is no stage of a name in `revive`.
    """
    if unknown := sorted(set(revive) - study.stages.keys()):
        raise UnknownNameError(
            f"--revive: expected a stage of {study.name}, got '{unknown[0]}'. "
            f"{nearest(unknown[0], study.stages)}"
        )
    with paused_gc():
        return _plan(study, store, files, revive)


def _plan(
    study: Study, store: Store, files: SourceFiles, revive: Collection[str]
) -> Plan:
    graph = expand(study, files)
    index = store.index()
    plan = Plan(graph, index, Causes(graph, index), Fingerprints(files.folder))
    for nodes in graph.nodes.values():
        compare(nodes, index)
    plan.removed = strike_lost(graph, index, store)
    for node in graph:
        shown = node.stage in revive or issubclass(node.kind.returns, Table | Figure)
        if shown and node.receipt and node.receipt.payload in plan.removed:
            node.revive, node.state = True, "stale"
    demand(graph, plan.removed)
    earlier = Earlier(index, plan.codes, store)
    for nodes in graph.nodes.values():
        earlier.find(nodes)
    plan.drifts = find_drifts(graph, index, plan.codes, Costs(graph, index))
    check_files(graph, files, plan.codes)
    check_arrays(graph, files)
    if any(node.state == "stale" for node in graph):
        plan.in_work = in_work(store)
    return plan


def strike_lost(graph: Graph, index: Index, store: Store) -> set[str]:
    """Mark nodes whose payload is lost as stale; what they gave is still known.

    Args:
        graph: the nodes, compared with the log.
        index: what the log says.
        store: tells which payloads are there.

    Returns:
        Payloads that are gone since collection removed them; their nodes stay done.
    """
    named = {node.receipt.payload for node in graph if node.receipt}
    wanted = {payload for payload in named if payload}
    gone = wanted - store.present(wanted)
    evicted = index.evicted
    if not gone <= evicted:  # a collection may have gone on since the log was read
        evicted = evicted | store.index().evicted
        for node in graph:
            payload = node.receipt.payload if node.receipt else None
            if payload in gone and payload not in evicted:
                node.state = "stale"
    return gone & evicted


def demand(graph: Graph, removed: Collection[str]) -> bool:
    """Mark results that collection removed, and nodes that must run take, as stale.

    Args:
        graph: the nodes, compared with the log.
        removed: payloads that are not there any more.

    Returns:
        Whether any was marked.
    """
    found = False
    if not removed:
        return found
    for nodes in reversed(graph.nodes.values()):
        stale = [node for node in nodes if node.state == "stale"]
        for taken in (t for n in stale for some in n.inputs.values() for t in some):
            one = taken.node
            if one.state == "cached" and one.receipt and one.receipt.payload in removed:
                one.revive, one.state, found = True, "stale", True
    return found


def check_files(graph: Graph, files: SourceFiles, codes: Fingerprints) -> None:
    """Look for the files and the code that nodes which must run name.

    Kinds look at their files.

    Raises:
        StudyError: a file or a function is nowhere, or a file holds what the kind
            cannot use.
    """
    seen: set[int] = set()
    named = NamedCode(files.folder)
    for node in graph:
        if node.state == "cached" or id(node.form) in seen:
            continue
        seen.add(id(node.form))
        stage = graph.study.stages[node.stage]
        if codes.functions(node):
            named.seek(stage, node.params, node.coords)
        files.seek(stage, node.params)
        check = node.kind.check
        if check is None:
            continue
        try:
            check(node.params, files.read(node.params, node.form))
        except InputError as error:
            raise stage.error((), str(error)) from error


def is_analysis(plan: Plan) -> bool:
    """Return whether a plan makes tables and figures, and computes nothing else."""
    return not _others(plan)


def refuse_computing(plan: Plan) -> None:
    """Refuse a plan that does more than make tables and figures.

    Args:
        plan: the nodes against the store.

    Raises:
        RequestError: anything else would have to run, or might.
    """
    if missing := _others(plan):
        listed = ", ".join(f"{count} of {stage}" for stage, count in missing.items())
        raise RequestError(
            "--reanalyse: expected all results but tables and figures to be there, got "
            f"nodes to compute: {listed}. Run without --reanalyse, or undo the change: "
            "`curvflow why` names it."
        )


def _others(plan: Plan) -> Counter[str]:
    """Count the open nodes of other stages."""
    return Counter(
        node.stage
        for node in plan.graph
        if node.state != "cached" and not issubclass(node.kind.returns, Table | Figure)
    )
