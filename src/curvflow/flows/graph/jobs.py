"""Jobs: a tile as it travels to its runner, and the reports that come back.

Store references go in, small reports come out; arrays pass through the store alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from curvflow.flows.graph.graph import Graph, Node, Taken
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.nodes import Array, Label, Status
from curvflow.schemas.params import Params
from curvflow.schemas.records.receipts import Receipt


@dataclass(frozen=True)
class TakenResult:
    """One result to be read: where it is, and which parts of it."""

    coords: Mapping[str, Label]
    receipt: Receipt
    parts: tuple[str, ...]
    stage: str

    @property
    def memo(self) -> tuple[str, tuple[str, ...]]:
        """The identity of a reading."""
        return self.receipt.key, self.parts


@dataclass(frozen=True)
class MemberJob:
    """One node to be computed.

    Attributes:
        key: action key.
        params: validated parameters.
        inputs: what it takes.
        files: content of the files that parameters name.
        shorter: a shorter computation's result to resume.
    """

    key: str
    params: Params
    inputs: Mapping[str, Sequence[TakenResult]]
    files: Mapping[str, Mapping[str, Array]]
    shorter: TakenResult | None = None


@dataclass(frozen=True)
class TileJob:
    """Sibling nodes to be computed in one call.

    Attributes:
        kind: name of their kind.
        members: the nodes.
        code: fingerprints of the code that computes them.
        stage: their stage, to be named in messages.
    """

    kind: str
    members: Sequence[MemberJob]
    code: Sequence[str] = ()
    stage: str = ""

    @property
    def covered(self) -> int | None:
        """The amount that each member adds to what its kind continues, such as epochs.

        None if the members differ, though their shares of the time are equal, or if the
        kind continues nothing.
        """
        continues = find_kind(self.kind).continues
        if continues is None:
            return None
        name = continues.param
        counts = {
            getattr(member.params, name)
            - (member.shorter.receipt.params[name] if member.shorter else 0)
            for member in self.members
        }
        return counts.pop() if len(counts) == 1 else None


@dataclass(frozen=True)
class Computed:
    """A node that was computed; its result is in the store, uncommitted."""

    digest: str
    parts: Mapping[str, str]
    status: Status
    reason: str
    payload: str | None
    slot: int
    seconds: float
    width: int
    device: str
    covered: int | None = None
    how: str = ""


@dataclass(frozen=True)
class Failed:
    """A node that raised an error."""

    error: str
    traceback: str


def tile_job(
    graph: Graph,
    nodes: Sequence[Node],
    files: Mapping[int, Mapping[str, Mapping[str, Array]]],
    code: Sequence[str] = (),
) -> TileJob:
    """Describe a tile's nodes without the graph around them."""
    members = [
        MemberJob(
            key=node.key or "",
            params=node.params,
            inputs={
                name: [_taken(graph, result) for result in taken]
                for name, taken in node.inputs.items()
            },
            files=files.get(id(node.form), {}),
            shorter=_shorter(node),
        )
        for node in nodes
    ]
    return TileJob(nodes[0].kind.name, members, code, nodes[0].stage)


def _shorter(node: Node) -> TakenResult | None:
    if node.shorter is None or node.kind.continues is None:
        return None
    parts = node.kind.continues.parts
    if parts is None:
        parts = tuple(variable.name for variable in node.kind.outputs)
    return TakenResult(node.coords, node.shorter, parts, node.stage)


def _taken(graph: Graph, taken: Taken) -> TakenResult:
    assert taken.node.receipt is not None
    coords = taken.node.coords
    return TakenResult(coords, taken.node.receipt, taken.parts, taken.node.stage)
