"""Nodes of a study, their inputs, and their names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from curvflow.schemas.keys import Encoded
from curvflow.schemas.kind import Kind
from curvflow.schemas.nodes import Label
from curvflow.schemas.params import Params
from curvflow.schemas.records.receipts import Receipt
from curvflow.schemas.study.study import Study
from curvflow.schemas.words import node_label

State = Literal["cached", "stale", "waiting"]
Point = tuple[Label, ...]


@dataclass(slots=True, eq=False)
class Node:
    """One stage at one point of its dimensions.

    Attributes:
        stage: name of the stage.
        kind: declaration of its kind.
        dims: dimensions of the stage.
        point: one label per dimension.
        params: validated parameters.
        form: plain parameters as in the key; shared by nodes that have the same.
        code: their canonical form.
        inputs: per input the results taken.
        state: whether it is done, must run, or waits for others.
        key: action key, once all inputs are known.
        receipt: of the result, if there is one.
        revive: the result's arrays were removed by collection, and are needed again.
        shorter: receipt of a shorter computation that this one resumes.
        once: share of its time that resuming does not spend again, such as burn-in.
    """

    stage: str
    kind: Kind
    dims: tuple[str, ...]
    point: Point
    params: Params
    form: dict[str, object]
    code: Encoded
    inputs: dict[str, tuple[Taken, ...]]
    state: State = "waiting"
    key: str | None = None
    receipt: Receipt | None = None
    revive: bool = False
    shorter: Receipt | None = None
    once: float = 0.0

    @property
    def coords(self) -> dict[str, Label]:
        """Labels by dimension."""
        return dict(zip(self.dims, self.point, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """The parts of one node's result that another node takes.

    Attributes:
        node: the node computed before.
        parts: part names, see `Store.read`.
    """

    node: Node
    parts: tuple[str, ...]


@dataclass
class Graph:
    """All nodes of a study, stage by stage in topological order."""

    study: Study
    nodes: dict[str, list[Node]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Node]:
        for nodes in self.nodes.values():
            yield from nodes


def producers(node: Node) -> Iterator[Node]:
    """Yield the nodes whose results a node takes."""
    for several in node.inputs.values():
        for taken in several:
            yield taken.node


class Named(Protocol):
    """Anything with a stage and labels: a node, a receipt, an answer."""

    @property
    def stage(self) -> str:
        """Name of the stage."""

    @property
    def coords(self) -> Mapping[str, Label]:
        """Labels by dimension."""


def node_name(node: Named) -> str:
    """Return `stage[axis=value,...]`, or the stage alone if it has no dimensions."""
    return node_label(node.stage, node.coords)
