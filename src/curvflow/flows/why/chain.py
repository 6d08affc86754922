"""From a node up through what it takes to the changes that make it run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from curvflow.flows.continued import continued, continues
from curvflow.flows.graph import Node
from curvflow.flows.names import node_name
from curvflow.flows.why.causes import Causes
from curvflow.flows.why.changes import Change
from curvflow.flows.why.replaced import replaced
from curvflow.schemas.records.receipts import Receipt

Step = tuple[Node, Receipt | None]  # a node, and what it gave before if it is done


@dataclass(frozen=True)
class Link:
    """Nodes of one stage that are not as they were, for the same causes.

    Attributes:
        node: name of the first of them.
        nodes: how many there are.
        state: `cached`, `stale` or `waiting`.
        causes: what is to be said of them.
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
        told = "; ".join([*self.causes, *map(continued, self.continues)])
        return f"{self.node}{more}: {told}{done}"


def chain(node: Node, causes: Causes) -> list[Link]:
    """Go up from a node that is not done to what makes it run.

    Args:
        node: a node of the plan.
        causes: what is known of single nodes.

    Returns:
        What it takes, at whatever distance, that is not as it was; root causes last.
    """
    return sorted(_links(node, causes), key=lambda link: link.state != "waiting")


def _links(node: Node, causes: Causes) -> Iterator[Link]:
    seen: set[int] = set()
    level: list[Step] = [(node, None)]
    while level:
        above = {
            id(step[0]): step
            for one in level
            for step in _above(*one, causes)
            if id(step[0]) not in seen
        }
        seen.update(above)
        level = list(above.values())
        alike: dict[tuple[str, str, tuple[str, ...]], list[Node]] = defaultdict(list)
        for one, before in level:
            alike[one.stage, one.state, _told(one, before, causes)].append(one)
        for (_, state, told), nodes in alike.items():
            name = node_name(nodes[0])
            yield Link(name, len(nodes), state, told, continues(nodes))


def _told(node: Node, before: Receipt | None, causes: Causes) -> tuple[str, ...]:
    if before is None:
        return tuple(causes.of(node))
    return tuple(map(str, causes.differences(node, before)))


def _above(node: Node, before: Receipt | None, causes: Causes) -> Iterator[Step]:
    if node.state == "waiting":
        for taken in (one for several in node.inputs.values() for one in several):
            if taken.node.receipt is None:
                yield taken.node, None
        return
    if before is None:
        changes = causes.changes(node)
        before = causes.earlier.nearest_at(node)
    else:
        changes = causes.differences(node, before)
    if before is not None and all(change.what == "input" for change in changes):
        yield from _changed(node, before, changes, causes)


def _changed(
    node: Node, before: Receipt, changes: tuple[Change, ...], causes: Causes
) -> Iterator[Step]:
    for change in changes:
        yield from replaced(node, before, change.name, causes.earlier)
