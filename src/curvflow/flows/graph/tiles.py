"""Tiles: the nodes of a stage that one vectorised call computes; jobs and inputs.

Composition is canonical: all nodes of the stage in their order, apart by static
signature, cut at a width that depends on the signature alone. Nodes that happen to
be missing change neither a tile's bounds nor any key.

A tile travels to its runner as a job. Store references go in, small reports come out;
arrays pass through the store alone, so the runner reads the inputs there.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from curvflow.errors import CorruptPayloadError, StoreError
from curvflow.flows.graph.graph import Graph, Node, Taken, taken_digest, taken_parts
from curvflow.flows.reads.windows import Observed
from curvflow.schemas.disk_arrays import as_array
from curvflow.schemas.keys import sha256, without
from curvflow.schemas.kind import Kind
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.nodes import Absent, Array, Label, Member, NodeData, Status
from curvflow.schemas.params import Params
from curvflow.schemas.records.receipts import Receipt
from curvflow.stores.base import Store

MAX_WIDTH = 512
NODE_BY_NODE_WIDTH = 16

T = TypeVar("T")
R = TypeVar("R")
Signatures = dict[tuple[object, ...], str]


def groups_of(graph: Graph, stage: str) -> list[list[Node]]:
    """Return the `groups` of a stage, which are the same from plan to end."""
    if stage not in graph.groups:
        graph.groups[stage] = groups(graph.nodes[stage], graph.signatures)
    return graph.groups[stage]


def groups(nodes: Sequence[Node], known: Signatures) -> list[list[Node]]:
    """Group nodes by what must be equal within a tile, in order of first members.

    Args:
        nodes: of one stage.
        known: signatures of nodes of the same graph.
    """
    if nodes and not nodes[0].kind.vectorised:
        return [list(nodes)]
    by_signature: dict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        by_signature[_signature(node, known)].append(node)
    return list(by_signature.values())


def _signature(node: Node, known: Signatures) -> str:
    """Hash all but the varying parameters; equal signatures mean equal shapes."""
    inner = {}
    for name, taken in sorted(node.inputs.items()):
        producer = taken[0].node
        if not node.kind.inputs[name].many:
            if (producer,) not in known:  # thousands take the same data set
                known[producer,] = _signature(producer, known)
            inner[name] = known[producer,]
    label = (id(node.form), *inner.values())
    if label not in known:
        # What cannot be vectorised promises nothing about shapes.
        varying = node.kind.varying if node.kind.vectorised else ()
        static = without(node.form, varying)
        known[label] = sha256([node.kind.name, static, inner])
    return known[label]


# In the receipt of a node that was computed alone, as decision 27 has it.
PLAIN = "one network alone, without a copy of it"


def was_plain(node: Node) -> bool:
    """Return whether a node has a result that was computed alone."""
    return node.receipt is not None and PLAIN in node.receipt.how


class Singles:
    """Nodes that share a tile with no other of their stage, whatever is cached.

    One that has a result is computed again as it was, whatever the study is now.
    """

    def __init__(self, graph: Graph) -> None:
        """Take the graph; stages are grouped when first requested."""
        self._graph = graph
        self._of_stage: dict[str, set[Node]] = {}

    def __contains__(self, node: Node) -> bool:
        """Return whether a node is computed alone."""
        if node.receipt is not None:
            return was_plain(node)
        if node.stage not in self._of_stage:
            whole = groups_of(self._graph, node.stage)
            self._of_stage[node.stage] = {g[0] for g in whole if len(g) == 1}
        return node in self._of_stage[node.stage]


def count_tiles(groups: Iterable[Sequence[Node]]) -> int:
    """Return the least number of tiles that the open nodes of groups make up."""
    return sum(
        math.ceil(sum(node.state != "cached" for node in group) / _most(group[0]))
        for group in groups
    )


def _most(node: Node) -> int:
    return MAX_WIDTH if node.kind.vectorised else NODE_BY_NODE_WIDTH


def width_for(node_bytes: int, budget: int) -> int:
    """Return the largest power of two of nodes that fits, from 2 to MAX_WIDTH."""
    fits = max(2, min(MAX_WIDTH, budget // max(1, node_bytes)))
    return 1 << (fits.bit_length() - 1)


def padded(members: Sequence[T]) -> list[T]:
    """Return a single member twice: the last bits of a batch of one differ."""
    return [*members, *members] if len(members) == 1 else list(members)


def bisect(
    members: Sequence[T], compute: Callable[[Sequence[T]], Sequence[R]]
) -> list[tuple[R | BaseException, int]]:
    """Compute members together; on an error halve down to the culprits.

    Returned per member: its result, or the error that it raises alone, and the number
    computed together.
    """
    try:
        return [(result, len(members)) for result in compute(members)]
    # Whatever a stage raises, user code included, is that node's failure; so is an
    # exit, which must not end the run.
    except (Exception, SystemExit) as error:
        if len(members) == 1:
            return [(error, 1)]
    half = len(members) // 2
    return bisect(members[:half], compute) + bisect(members[half:], compute)


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
        modules: of a user's that its code reaches, to be looked at while it runs.
        absent: what it takes that failed, and is not among the inputs.
    """

    key: str
    params: Params
    inputs: Mapping[str, Sequence[TakenResult]]
    files: Mapping[str, Mapping[str, Array]]
    shorter: TakenResult | None = None
    modules: tuple[str, ...] = ()
    absent: Mapping[str, Sequence[Absent]] = field(default_factory=dict)


@dataclass(frozen=True)
class TileJob:
    """Sibling nodes to be computed in one call.

    Attributes:
        kind: name of their kind.
        members: the nodes.
        code: fingerprints of the code that computes them.
        stage: their stage, to be named in messages.
        alone: the node may be computed without a copy of itself.
    """

    kind: str
    members: Sequence[MemberJob]
    code: Sequence[str] = ()
    stage: str = ""
    alone: bool = False

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
    reads: Observed | None = None


@dataclass(frozen=True)
class Failed:
    """A node that raised an error."""

    error: str
    traceback: str


def tile_job(
    graph: Graph,
    nodes: Sequence[Node],
    files: Mapping[int, Mapping[str, Mapping[str, Array]]],
    *,
    code: Sequence[str] = (),
    modules: Mapping[Node, tuple[str, ...]] | None = None,
    singles: Singles | None = None,
) -> TileJob:
    """Describe a tile's nodes without the graph around them."""
    members = [
        MemberJob(
            key=node.key or "",
            params=node.params,
            inputs={
                name: [_taken(graph, r) for r in taken if r.node not in node.absent]
                for name, taken in node.inputs.items()
            },
            files=files.get(id(node.form), {}),
            shorter=_shorter(node),
            modules=(modules or {}).get(node, ()),
            absent=_absent(node),
        )
        for node in nodes
    ]
    alone = len(nodes) == 1 and singles is not None and nodes[0] in singles
    return TileJob(nodes[0].kind.name, members, code, nodes[0].stage, alone)


def _absent(node: Node) -> dict[str, list[Absent]]:
    absent = {
        name: [
            Absent(result.node.stage, result.node.coords)
            for result in taken
            if result.node in node.absent
        ]
        for name, taken in node.inputs.items()
    }
    return {name: several for name, several in absent.items() if several}


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


Memo = tuple[str, tuple[str, ...]]
Loaded = dict[Memo, Mapping[str, Array]]


class LostInputError(StoreError):
    """Results that a tile takes turned out to be unreadable.

    Attributes:
        lost: the fault of each of their payloads.
    """

    def __init__(self, lost: Mapping[str, str]) -> None:
        """Name the payloads and their faults."""
        super().__init__(next(iter(lost.values())))
        self.lost = lost


def load(store: Store, kind: Kind, jobs: Sequence[MemberJob]) -> list[Member]:
    """Read the inputs of a tile's members; a shared result is read once.

    Raises:
        LostInputError: a result taken cannot be read.
    """
    taken = [
        result for job in jobs for several in job.inputs.values() for result in several
    ]
    taken += [job.shorter for job in jobs if job.shorter]
    by_rows = {
        result.memo
        for job in jobs
        for name, several in job.inputs.items()
        if kind.inputs[name].by_rows
        for result in several
    }
    loaded = _read(store, {result.memo: result for result in taken}, by_rows)
    return [
        Member(
            job.params,
            {
                name: [_node_data(kind, name, result, loaded) for result in taken]
                for name, taken in job.inputs.items()
            },
            job.files,
            _resumed(job, loaded),
            job.absent,
        )
        for job in jobs
    ]


def _resumed(job: MemberJob, loaded: Loaded) -> NodeData | None:
    if job.shorter is None:
        return None
    return _as_edge(NodeData, job.shorter, loaded[job.shorter.memo])


def _node_data(kind: Kind, name: str, taken: TakenResult, loaded: Loaded) -> NodeData:
    arrays = loaded[taken.memo]
    if not kind.vectorised:  # code of the user's own may write into what it is given
        arrays = {variable: array.copy() for variable, array in arrays.items()}
    return _as_edge(kind.inputs[name].edge, taken, arrays)


def _as_edge(
    edge: type[NodeData], taken: TakenResult, arrays: Mapping[str, Array]
) -> NodeData:
    # One result may stand at several nodes, each with its coordinates.
    return edge(
        stage=taken.stage,
        kind=taken.receipt.kind,
        coords=taken.coords,
        arrays=arrays,
        digest=taken_digest(taken.receipt, taken.parts),
        status=taken.receipt.status,
        reason=taken.receipt.reason,
    )


def _read(
    store: Store, taken: Mapping[Memo, TakenResult], by_rows: Collection[Memo] = ()
) -> Loaded:
    """Read results, those of which the same parts are there together.

    Arrays on disk of those that are taken by rows stay there.

    Raises:
        LostInputError: some cannot be read.
    """
    alike: dict[tuple[str, ...], list[TakenResult]] = defaultdict(list)
    loaded: Loaded = {}
    on_disk: Loaded = {}
    lost: dict[str, str] = {}
    for memo, result in taken.items():
        parts = taken_parts(result.receipt, result.parts)
        there = {_bare(part) for part in parts}
        present = tuple(name for name in result.parts if _bare(name) in there)
        try:
            on_disk[memo] = _on_disk(store, result, present) if memo in by_rows else {}
        except CorruptPayloadError as error:
            lost.setdefault(str(result.receipt.payload), str(error))
            continue
        present = tuple(name for name in present if name not in on_disk[memo])
        alike[present if result.receipt.payload else ()].append(result)
    for wanted, results in alike.items():
        rows = store.read_many([result.receipt for result in results], wanted)
        for result, row in zip(results, rows, strict=True):
            if isinstance(row, CorruptPayloadError):
                lost.setdefault(str(result.receipt.payload), str(row))
            else:
                arrays = {_bare(part): array for part, array in row.items()}
                loaded[result.memo] = {**arrays, **on_disk[result.memo]}
    if lost:
        raise LostInputError(lost)
    return loaded


def _on_disk(
    store: Store, result: TakenResult, names: Sequence[str]
) -> dict[str, Array]:
    """Return the arrays of a result whose rows stay on disk.

    Raises:
        CorruptPayloadError: one cannot be read.
    """
    if not (store.keeps_rows and result.receipt.payload):
        return {}
    places = {name: store.on_disk(result.receipt, name) for name in names}
    return {name: as_array(array) for name, array in places.items() if array}


def _bare(part: str) -> str:
    """Return the variable of a part, without the label of a slice."""
    return part.partition("@")[0]
