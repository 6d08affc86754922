"""Why a node is done or not, from the node up to the changes at the root of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from curvflow.errors import UnknownNameError, nearest
from curvflow.flows.continued import continued, continues
from curvflow.flows.graph import Node
from curvflow.flows.names import node_name
from curvflow.flows.plan import Plan
from curvflow.flows.views import plan_views
from curvflow.flows.why.chain import Link, chain
from curvflow.schemas.nodes import Label
from curvflow.schemas.records.receipts import Receipt


@dataclass(frozen=True)
class Answer:
    """What is known of one node.

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
        }

    def __str__(self) -> str:
        name = node_name(self)
        if self.state == "cached":
            diverged = f", diverged: {self.reason}" if self.reason else ""
            if self.code:
                return f"{name}: done, but its code has changed: {'; '.join(self.code)}"
            return f"{name}: done, key {(self.key or '')[:12]}{diverged}"
        lines = [f"{name}: {self.state}: {'; '.join(self.causes)}"]
        if self.nearest and self.causes == ("new",):
            of = f" of {self.elsewhere}" if self.elsewhere else ""
            lines.append(f"  nearest earlier result: {node_name(self.nearest)}{of}")
            lines += [f"    {difference}" for difference in self.differs]
        lines += [f"  {continued(one)}" for one in self.continues]
        lines += [f"  since {link}" for link in self.chain]
        return "\n".join([*lines, *self.traceback.splitlines()])


def explain(plan: Plan, stage: str, where: Mapping[str, str]) -> list[Answer]:
    """Explain the nodes of a stage at some labels.

    Args:
        plan: the study against its store.
        stage: name of the stage.
        where: axis to label, as text; all nodes that match.

    Returns:
        One answer per node.

    Raises:
        UnknownNameError: there is no such stage, axis or label.
    """
    if stage not in plan.graph.nodes:
        hint = nearest(stage, plan.graph.nodes)
        raise UnknownNameError(f"no stage '{stage}' in the study. {hint}")
    points = set(plan_views(plan)[stage].where(where).points)
    chosen = [node for node in plan.graph.nodes[stage] if node.point in points]
    return [_answer(plan, node) for node in chosen]


def _answer(plan: Plan, node: Node) -> Answer:
    earlier = None if node.state == "cached" else plan.causes.earlier.nearest(node)
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
    )


def _elsewhere(plan: Plan, earlier: Receipt) -> str:
    place = plan.index.places.get(earlier.run)
    study = "" if place is None else plan.index.runs[place].study
    return "" if study == plan.graph.study.name else study


def _moved(plan: Plan, node: Node) -> Iterator[str]:
    """Tell what has moved in the code of a node, not in that of others of its kind."""
    reached = plan.codes.of(node).definitions
    for drift in plan.drifts:
        if any(one is node for one in drift.nodes):
            for move in drift.moves:
                if move.name in reached or move.change == "removed":
                    yield str(move)


def _own(plan: Plan, node: Node) -> list[str]:
    """Tell what changed in a node that waits, and so runs whatever it waits for."""
    if node.state != "waiting":
        return []
    return [str(one) for one in plan.causes.changes(node) if one.what != "new"]
