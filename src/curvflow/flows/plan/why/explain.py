"""Explanations of a node: done, or not, up to the root causes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from curvflow.errors import UnknownNameError, nearest
from curvflow.flows.graph.graph import Node, node_name
from curvflow.flows.plan.plan import Plan
from curvflow.flows.plan.resume import continued, continues
from curvflow.flows.plan.why.causes import Causes, replaced
from curvflow.flows.plan.why.nearest import Change
from curvflow.flows.reads.current import in_words
from curvflow.flows.results.node_results import plan_views
from curvflow.schemas.nodes import Label
from curvflow.schemas.records.receipts import Receipt

Step = tuple[Node, Receipt | None]  # a node, and what it gave before if it is done


@dataclass(frozen=True)
class Link:
    """Nodes of one stage that have changed for the same causes.

    Attributes:
        node: name of the first of them.
        nodes: how many there are.
        state: `cached`, `stale` or `waiting`.
        causes: their explanations.
        continues: which of them go on from a shorter computation.
    """

    node: str
    nodes: int
    state: str
    causes: tuple[str, ...]
    continues: Sequence[Mapping[str, Any]]

    def __str__(self) -> str:
        more = f" and {self.nodes - 1} more" if self.nodes > 1 else ""
        done = " (done since)" if self.state == "cached" else ""
        reasons = "; ".join([*self.causes, *map(continued, self.continues)])
        return f"{self.node}{more}: {reasons}{done}"


def chain(node: Node, causes: Causes) -> list[Link]:
    """Return the changed nodes above one that is not done, root causes last."""
    return sorted(_links(node, causes), key=lambda link: link.state != "waiting")


def _links(node: Node, causes: Causes) -> Iterator[Link]:
    seen: set[int] = set()
    level: list[Step] = [(node, None)]
    while level:
        above = {
            id(step[0]): step
            for step_below in level
            for step in _above(*step_below, causes)
            if id(step[0]) not in seen
        }
        seen.update(above)
        level = list(above.values())
        alike: dict[tuple[str, str, tuple[str, ...]], list[Node]] = defaultdict(list)
        for node, before in level:
            alike[node.stage, node.state, _reasons(node, before, causes)].append(node)
        for (_, state, reasons), nodes in alike.items():
            name = node_name(nodes[0])
            yield Link(name, len(nodes), state, reasons, continues(nodes))


def _reasons(node: Node, before: Receipt | None, causes: Causes) -> tuple[str, ...]:
    if before is None:
        return tuple(causes.of(node))
    return tuple(map(str, causes.differences(node, before)))


def _above(node: Node, before: Receipt | None, causes: Causes) -> Iterator[Step]:
    if node.state == "waiting":
        for taken in (result for several in node.inputs.values() for result in several):
            if taken.node.receipt is None:
                yield taken.node, None
        return
    if before is None:
        changes = causes.changes(node)
        before = causes.results.nearest_at(node)
    else:
        changes = causes.differences(node, before)
    if before is not None and all(change.what == "input" for change in changes):
        yield from _changed(node, before, changes, causes)


def _changed(
    node: Node, before: Receipt, changes: tuple[Change, ...], causes: Causes
) -> Iterator[Step]:
    for change in changes:
        yield from replaced(node, before, change.name, causes.results)


@dataclass(frozen=True)
class Answer:
    """The explanation of one node.

    Attributes:
        stage: its stage.
        coords: its labels.
        state: `cached`, `stale` or `waiting`.
        causes: why it is not done; empty if it is.
        key: its action key, if its inputs are known.
        nearest: the earlier result it was compared with.
        elsewhere: the study that the earlier result is of, if it is another.
        differs: what differs from that result.
        reason: why a done node diverged.
        traceback: of the error that the node raised before.
        chain: what it takes that is not as it was, level by level.
        code: what has moved in its code, under an unchanged version, since it was done.
        continues: the shorter computation that it goes on from, if any.
        reads: what code of yours used for a done node, in words.
    """

    stage: str
    coords: Mapping[str, Label]
    state: str
    causes: tuple[str, ...]
    key: str | None
    nearest: Receipt | None
    elsewhere: str
    differs: tuple[str, ...]
    reason: str = ""
    traceback: str = ""
    chain: tuple[Link, ...] = ()
    code: tuple[str, ...] = ()
    continues: Sequence[Mapping[str, Any]] = ()
    reads: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the answer as plain data."""
        earlier = self.nearest
        return {
            "stage": self.stage,
            "coords": dict(self.coords),
            "state": self.state,
            "causes": list(self.causes),
            "key": self.key,
            "nearest": {"key": earlier.key, "coords": dict(earlier.coords)}
            if earlier
            else None,
            "differs": list(self.differs),
            "reason": self.reason,
            "traceback": self.traceback,
            "chain": [
                vars(link) | {"causes": list(link.causes)} for link in self.chain
            ],
            "code": list(self.code),
            "continues": list(self.continues),
            "reads": list(self.reads),
        }

    def __str__(self) -> str:
        name = node_name(self)
        if self.state == "cached":
            diverged = f", diverged: {self.reason}" if self.reason else ""
            done = f"{name}: done, key {(self.key or '')[:12]}{diverged}"
            if self.code:
                moved = "; ".join(self.code)
                done = f"{name}: done, but its code has changed: {moved}"
            return "\n".join([done, *(f"  {line}" for line in self.reads)])
        lines = [f"{name}: {self.state}: {'; '.join(self.causes)}"]
        if self.nearest and self.causes == ("new",):
            of = f" of {self.elsewhere}" if self.elsewhere else ""
            lines.append(f"  nearest earlier result: {node_name(self.nearest)}{of}")
            lines += [f"    {difference}" for difference in self.differs]
        lines += [f"  {continued(span)}" for span in self.continues]
        lines += [f"  since {link}" for link in self.chain]
        return "\n".join([*lines, *self.traceback.splitlines()])


def explain(plan: Plan, stage: str, where: Mapping[str, str]) -> list[Answer]:
    """Explain the nodes of a stage at given labels, one answer each.

    Raises:
        UnknownNameError: there is no such stage, axis or label.
    """
    if stage not in plan.graph.nodes:
        hint = nearest(stage, plan.graph.nodes)
        raise UnknownNameError(f"expected a stage of the study, got '{stage}'. {hint}")
    points = set(plan_views(plan)[stage].where(where).points)
    chosen = [node for node in plan.graph.nodes[stage] if node.point in points]
    return [_answer(plan, node) for node in chosen]


def _answer(plan: Plan, node: Node) -> Answer:
    earlier = None if node.state == "cached" else plan.causes.results.nearest(node)
    return Answer(
        stage=node.stage,
        coords=node.coords,
        state=node.state,
        causes=(*plan.causes.of(node), *_own(plan, node)),
        key=node.key,
        nearest=earlier,
        elsewhere=_elsewhere(plan, earlier) if earlier else "",
        differs=tuple(map(str, plan.causes.differences(node, earlier)))
        if earlier
        else (),
        reason=node.receipt.reason if node.receipt else "",
        traceback=plan.causes.traceback(node),
        chain=tuple(chain(node, plan.causes)),
        code=tuple(_moved(plan, node)),
        continues=continues([node]),
        reads=tuple(in_words(node.receipt.reads)) if node.receipt else (),
    )


def _elsewhere(plan: Plan, earlier: Receipt) -> str:
    place = plan.index.places.get(earlier.run)
    study = "" if place is None else plan.index.runs[place].study
    return "" if study == plan.graph.study.name else study


def _moved(plan: Plan, node: Node) -> Iterator[str]:
    """Return the drift of a node's code, apart from other nodes of its kind."""
    reached = plan.codes.of_result(node, node.receipt).definitions
    for drift in plan.drifts:
        if any(drifted is node for drifted in drift.nodes):
            for move in drift.moves:
                if move.name in reached or move.change == "removed":
                    yield str(move)


def _own(plan: Plan, node: Node) -> list[str]:
    """Return the changes of a waiting node itself, for which it runs in any case."""
    if node.state != "waiting":
        return []
    return [str(change) for change in plan.causes.changes(node) if change.what != "new"]
