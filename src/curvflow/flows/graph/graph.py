"""Nodes of a study: their inputs and names, their keys and receipts.

Nodes are expanded stage by stage; a node's action key follows from the results that it
takes, and its receipt from the key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import Any, Literal, Protocol

from curvflow.flows.graph.bounds import NodeCount
from curvflow.flows.graph.source_files import SourceFiles
from curvflow.flows.reads.current import CurrentReads, Outdated
from curvflow.schemas.keys import (
    Encoded,
    Forms,
    action_key,
    canonical,
    mapping_form,
    name_form,
    picker,
    sequence_form,
    texts_digest,
)
from curvflow.schemas.kind import Kind, Variable
from curvflow.schemas.nodes import FAILED, Label, Weights
from curvflow.schemas.params import Params
from curvflow.schemas.records.receipts import DIVERGED, Receipt
from curvflow.schemas.study.study import Stage, Study
from curvflow.schemas.words import node_label
from curvflow.stores.base import Index

State = Literal["cached", "stale", "waiting"]
Point = tuple[Label, ...]
Kept = range | tuple[int, ...]


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
        outdated: what its earlier result stood on that is another by now.
        replaced: the receipt of that result, which counts no more.
        absent: nodes taken that have failed, which a partial result goes without.
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
    outdated: tuple[Outdated, ...] = ()
    replaced: Receipt | None = None
    absent: tuple[Node, ...] = ()

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
    """All nodes of a study, stage by stage in topological order.

    Attributes:
        study: the study.
        nodes: of each stage, in the order of its labels.
        groups: per stage what tiles may hold together, see `tiles.groups_of`.
        signatures: by which these were distinguished.
        kept: epochs at which nodes keep their weights.
    """

    study: Study
    nodes: dict[str, list[Node]] = field(default_factory=dict)
    groups: dict[str, list[list[Node]]] = field(default_factory=dict)
    signatures: dict[tuple[object, ...], str] = field(default_factory=dict)
    kept: dict[Node, Kept] = field(default_factory=dict)

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


def compare(
    nodes: Iterable[Node], index: Index, reads: CurrentReads | None = None
) -> None:
    """Set key, receipt and state of nodes from the receipts of what they take.

    A node comes after those whose results it takes. With `reads`, results that stand
    on other files or variables do not count.
    """
    known: Digests = {}
    for node in nodes:
        node.key = key_of(node, known)
        _compare(node, index, reads)


def look_up(
    nodes: Sequence[Node],
    excerpt: Callable[[Iterable[str]], Index],
    reads: CurrentReads,
) -> None:
    """Compare nodes whose inputs are there with the log's entries on them alone."""
    known: Digests = {}
    for node in nodes:
        node.key = key_of(node, known)
    index = excerpt(node.key for node in nodes if node.key)
    for node in nodes:
        _compare(node, index, reads)


def _compare(node: Node, index: Index, reads: CurrentReads | None) -> None:
    node.receipt = index.receipts.get(node.key) if node.key else None
    node.outdated, node.replaced = (), None
    if node.receipt is not None and reads is not None:
        node.outdated = reads.outdated(node.stage, node.receipt)
        if node.outdated:
            node.receipt, node.replaced = None, node.receipt
    if node.receipt is not None:
        lacks = node.revive and node.receipt.payload in index.evicted
        node.state = "stale" if lacks else "cached"
    else:
        node.state = "stale" if node.key else "waiting"


def key_of(node: Node, known: Digests | None = None) -> str | None:
    """Return a node's action key, or None while an input is unknown.

    Args:
        node: the node.
        known: digests of what was taken before, for nodes that take the same.
    """
    inputs = _inputs_form(node, {} if known is None else known)
    if inputs is None:
        return None
    return action_key(node.kind.name, node.kind.version, node.code, inputs)


def _inputs_form(node: Node, known: Digests) -> Encoded | None:
    """Return the canonical form of `input_digests`; None if one is unknown."""
    forms = []
    for name, taken in node.inputs.items():
        if _is_unknown(node, taken):
            return None
        if node.kind.inputs[name].many:
            results = [_labelled_form(result, node.absent, known) for result in taken]
            forms.append(sequence_form(results))
        else:
            forms.append(_digest_form(taken[0], known))
    return Encoded(mapping_form(tuple(node.inputs), forms))


def _is_unknown(node: Node, taken: Iterable[Taken]) -> bool:
    for result in taken:  # at every node of a study, where a generator would show
        if result.node.receipt is None and result.node not in node.absent:
            return True
    return False


def input_digests(node: Node) -> dict[str, Any] | None:
    """Return the part of a node's key that describes its inputs; None if unknown."""
    digests: dict[str, Any] = {}
    for name, taken in node.inputs.items():
        if _is_unknown(node, taken):
            return None
        many = node.kind.inputs[name].many
        digests[name] = (
            [_labelled(result, node.absent) for result in taken]
            if many
            else _digest(taken[0])
        )
    return digests


def can_go_without(node: Node, producer: Node) -> bool:
    """Return whether a node reduces over results of which others are there.

    Of each stage that it takes through an input of many results there must be one.
    """
    absent = {*node.absent, producer}
    return all(
        node.kind.inputs[name].many
        and any(r.node.stage == producer.stage and r.node not in absent for r in taken)
        for name, taken in node.inputs.items()
        if any(result.node is producer for result in taken)
    )


def find_partial(
    graph: Graph, index: Index, failures: Iterable[str], reads: CurrentReads
) -> None:
    """Give nodes that wait for failed ones the results that were made without these.

    Args:
        graph: nodes with their states.
        index: the log.
        failures: action keys of nodes that failed when they were last tried.
        reads: results that stand on other files or variables do not count.
    """
    failed, keys = set[Node](), set(failures)
    for node in graph if keys else ():
        if node.state == "stale" and node.key in keys:
            failed.add(node)
        elif node.state == "waiting":
            absent = [producer for producer in producers(node) if producer in failed]
            for producer in dict.fromkeys(absent):
                if not can_go_without(node, producer):
                    failed.add(node)
                node.absent = (*node.absent, producer)
            node.key = None if node in failed else key_of(node)
            if node.key:
                _compare(node, index, reads)


# Canonical forms of the digests of results taken, while their receipts stay.
Digests = dict[tuple[Node, tuple[str, ...]], bytes]


def _digest(taken: Taken) -> str:
    receipt = taken.node.receipt
    assert receipt is not None
    return taken_digest(receipt, taken.parts)


def _digest_form(taken: Taken, known: Digests) -> bytes:
    """Return the canonical form of `_digest`."""
    result = taken.node, taken.parts
    form = known.get(result)
    if form is None:  # thousands of nodes take the same data set
        form = known[result] = canonical(_digest(taken))
    return form


def taken_digest(receipt: Receipt, names: tuple[str, ...]) -> str:
    """Return the digest of `taken_parts`."""
    parts = receipt.parts
    if [name for name in names if name not in parts]:
        names = _names_there(tuple(parts), names)
    return texts_digest(parts, names)


@lru_cache(maxsize=1 << 12)
def _names_there(parts: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the parts that names stand for, of all that a result has."""
    return tuple(_select(dict.fromkeys(parts, ""), names))


def _labelled(taken: Taken, absent: Collection[Node] = ()) -> list[Any]:
    if taken.node in absent:
        # A result without it is another than that of a study that never had it.
        return [taken.node.stage, taken.node.coords, FAILED, ""]
    receipt = taken.node.receipt
    assert receipt is not None
    # Where results are reduced, labels and divergence count.
    return [taken.node.stage, taken.node.coords, receipt.status, _digest(taken)]


def _labelled_form(taken: Taken, absent: Collection[Node], known: Digests) -> bytes:
    """Return the canonical form of `_labelled`."""
    node = taken.node
    receipt = None if node in absent else node.receipt
    labels = mapping_form(node.dims, [canonical(label) for label in node.point])
    status = name_form(receipt.status if receipt else FAILED)
    digest = _digest_form(taken, known) if receipt else name_form("")
    return sequence_form([name_form(node.stage), labels, status, digest])


def taken_parts(receipt: Receipt, names: Iterable[str]) -> Mapping[str, str]:
    """Return the digests of named parts, a sliced variable's bare name meaning all."""
    return _select(receipt.parts, names)


def _select(parts: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    digests: dict[str, str] = {}
    for name in names:
        if name in parts:
            digests[name] = parts[name]
        else:
            prefix = f"{name}@"
            digests |= {p: d for p, d in parts.items() if p.startswith(prefix)}
    return digests


def diverged_inputs(node: Node) -> list[Taken]:
    """Return the plain inputs that divergence left without finite content."""
    diverged = []
    for name, taken in node.inputs.items():
        if not node.kind.inputs[name].many:
            diverged += [result for result in taken if _is_diverged(result)]
    return diverged


def _is_diverged(taken: Taken) -> bool:
    receipt = taken.node.receipt
    if receipt is None or receipt.status != "diverged":
        return False
    parts = taken_parts(receipt, taken.parts)
    return len(parts) < len(taken.parts) or DIVERGED in parts.values()


class Source:
    """The nodes of one producer of one input of a stage.

    Attributes:
        name: the input.
    """

    def __init__(self, graph: Graph, stage: Stage, name: str, producer: str) -> None:
        self.name = name
        self._stage, self._producer = stage, graph.study.stages[producer]
        self._edge = stage.kind.inputs[name].edge
        self._dims = self._producer.dims
        # A checkpoint is chosen here unless the producer is itself spread over epochs.
        self.chooses_epoch = (
            issubclass(self._edge, Weights) and "epoch" not in self._dims
        )
        self._shared = [dim for dim in self._dims if dim in stage.dims]
        self._groups: dict[Point, list[Node]] = defaultdict(list)
        key_of_producer = _picker(self._dims, self._shared)
        for node in graph.nodes[producer]:
            self._groups[key_of_producer(node.point)].append(node)
        self._key = _picker(stage.dims, self._shared)
        others = [dim for dim in self._shared if dim != "epoch"]
        self._key_of_others = _picker(stage.dims, others)
        self._epochs = self._epochs_by_others()
        self._parts: dict[tuple[object, ...], tuple[str, ...]] = {}
        self._kept, self._chosen_of = graph.kept, dict[Kept, Sequence[int]]()
        self._last: tuple[object, tuple[Taken, ...]] = (None, ())

    @property
    def shared(self) -> Sequence[str]:
        """The dimensions of the producer that the stage has as well."""
        return self._shared

    def num_points(self) -> int:
        """Return the number of points of these, each epoch one; 0 without epochs."""
        if "epoch" in self._shared:
            return len(self._groups)
        if not (self.chooses_epoch and self._stage.at.adds_epoch):
            return 0
        return sum(len(self._chosen(nodes[0])) for nodes in self._groups.values())

    def _epochs_by_others(self) -> Mapping[Point, Sequence[int]]:
        epochs_by_point: dict[Point, list[int]] = defaultdict(list)
        if "epoch" in self._shared:
            slot = self._shared.index("epoch")
            for point in self._groups:
                epochs_by_point[point[:slot] + point[slot + 1 :]].append(
                    int(point[slot])
                )
        return {others: sorted(epochs) for others, epochs in epochs_by_point.items()}

    def epochs(self, point: Point) -> Sequence[int]:
        """List the epochs the producer offers at a point of the other axes."""
        if self.chooses_epoch:
            # At `final` each network brings its own last epoch and no dimension.
            brings = self._stage.at.adds_epoch
            return self._chosen(self._groups[self._key(point)][0]) if brings else []
        return self._epochs.get(self._key_of_others(point), [])

    def taken(self, point: Point, selected: tuple[str, ...]) -> tuple[Taken, ...]:
        """Return what the stage's node at this point takes.

        Args:
            point: a label for each of the stage's dimensions.
            selected: variables that its parameters name; none if all are taken.
        """
        epoch = point[-1] if self.chooses_epoch and self._stage.at.adds_epoch else None
        sought = (self._key(point), epoch, selected)
        if sought != self._last[0]:  # neighbours take one data set
            nodes = self._groups.get(sought[0], ())
            taken = [Taken(n, self._parts_of(n, epoch, selected)) for n in nodes]
            self._last = sought, tuple(taken)
        return self._last[1]

    def _chosen(self, node: Node) -> Sequence[int]:
        if node.kind.checkpoints is None:
            return []
        kept = self._kept.get(node)
        if kept is None:
            kept = self._kept[node] = _kept(node.kind.checkpoints, node)
        # Networks that differ in their seed alone keep the same.
        chosen = self._chosen_of.get(kept)
        if chosen is None:
            chosen = self._chosen_of[kept] = self._stage.epochs(kept)
        return chosen

    def _parts_of(
        self, node: Node, epoch: Label | None, selected: tuple[str, ...]
    ) -> tuple[str, ...]:
        if epoch is None and self.chooses_epoch and node.kind.checkpoints is not None:
            epoch = self._chosen(node)[-1]
        memo = (epoch, selected)
        if memo not in self._parts:
            variables = self._variables(node.kind, selected)
            self._parts[memo] = tuple(_part_name(v, epoch) for v in variables)
        return self._parts[memo]

    def _variables(self, kind: Kind, selected: Sequence[str]) -> list[Variable]:
        if takes := self._edge.takes:
            wanted = (*takes, *self._edge.takes_if_there)
            return [v for v in kind.outputs if v.name in wanted]
        chosen = kind.chosen(selected)
        if not self._stage.kind.judges:
            return chosen
        beside = {v.judged_by for v in chosen if v.judged_by}
        beside |= set(self._stage.kind.settings) if beside else set()
        return [v for v in kind.outputs if v in chosen or v.name in beside]


def _kept(checkpoints: Callable[[Params], Sequence[int] | None], node: Node) -> Kept:
    """Return the epochs at which a node keeps its weights."""
    kept = checkpoints(node.params)
    if kept is None:
        return steps_in(node.form)
    return kept if isinstance(kept, range) else tuple(kept)


def _picker(dims: Sequence[str], chosen: Sequence[str]) -> Callable[[Point], Point]:
    """Return the function from a point of some dimensions to its labels of others."""
    return picker([dims.index(dim) for dim in chosen])


def steps_in(form: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the steps by which a form has the digests of files, ascending."""
    return tuple(sorted(map(int, form["path"])))


def _part_name(variable: Variable, epoch: Label | None) -> str:
    sliced = variable.sliced and epoch is not None
    return f"{variable.name}@{epoch}" if sliced else variable.name


def expand(study: Study, files: SourceFiles) -> Graph:
    """Enumerate the nodes of a study and what each takes; nothing is computed.

    Nodes of a stage are ordered by the study's axes, the first slowest.

    Raises:
        StudyError: there are more nodes than the study's bound, a parameter is wrong at
            some point of the axes, or `at` requests an epoch that has no checkpoint.
    """
    graph, count = Graph(study), NodeCount(study)
    for stage in study.stages.values():
        graph.nodes[stage.name] = list(_nodes(graph, stage, files, count))
        count.update(stage, len(graph.nodes[stage.name]))
    return graph


def _nodes(
    graph: Graph, stage: Stage, files: SourceFiles, count: NodeCount
) -> Iterator[Node]:
    axes = [axis for axis in stage.dims if axis != "epoch"]
    sources = [
        Source(graph, stage, name, producer)
        for name, producers in stage.inputs.items()
        for producer in producers
    ]
    count.foresee(stage, sources)
    pick = _picker(axes, stage.own_axes)
    forms, written = dict[Point, tuple[Params, dict[str, object], Encoded]](), Forms()
    selected: dict[Point, tuple[str, ...]] = {}
    for point in product(*(graph.study.axes[axis].labels for axis in axes)):
        key = pick(point)
        if key not in forms:
            params = stage.params(dict(zip(axes, point, strict=True)))
            forms[key] = params, *written.write(params, files.digests(stage, params))
            selected[key] = stage.kind.selected(params)
        is_empty = True
        for epoch in _epochs(stage, sources, point):
            full = point if epoch is None else (*point, epoch)
            taken = _taken(sources, full, selected[key])
            if all(taken.values()):
                is_empty = False
                yield Node(stage.name, stage.kind, stage.dims, full, *forms[key], taken)
            else:
                _check_offered(stage, sources, point, epoch)
        if is_empty:
            _check_common(stage, sources, point)


def _epochs(
    stage: Stage, sources: Sequence[Source], point: Point
) -> Sequence[int | None]:
    if "epoch" not in stage.dims:
        return [None]
    offered = [(source, set(source.epochs(point))) for source in sources]
    # Those that the stage chooses itself, whatever else is spread over.
    chosen = [epochs for source, epochs in offered if source.chooses_epoch and epochs]
    return sorted(set().union(*(e for _, e in offered)).intersection(*chosen))


def _check_offered(
    stage: Stage, sources: Sequence[Source], point: Point, epoch: int | None
) -> None:
    """Refuse a listed epoch that an input has nothing at; StudyError."""
    if stage.at.choice != "listed" or epoch not in stage.at.epochs:
        return
    for source in sources:
        offered = source.epochs(point)
        if offered and epoch not in offered:
            listed = ", ".join(map(str, offered))
            message = f"expected a stage at epoch {epoch}, got one at {listed}"
            raise stage.error((source.name,), message, "Give both the same 'at'.")


def _check_common(stage: Stage, sources: Sequence[Source], point: Point) -> None:
    """Refuse inputs that have no epoch in common; StudyError."""
    offered = {source.name: source.epochs(point) for source in sources}
    brought = {name: set(epochs) for name, epochs in offered.items() if epochs}
    if brought and not set.intersection(*brought.values()):
        got = " and ".join(
            f"'{name}' at {', '.join(map(str, sorted(epochs)))}"
            for name, epochs in brought.items()
        )
        message = f"expected inputs with an epoch in common, got {got}"
        raise stage.error((), message, "Give them the same 'at'.")


def _taken(
    sources: Sequence[Source], point: Point, selected: tuple[str, ...]
) -> dict[str, tuple[Taken, ...]]:
    taken: dict[str, tuple[Taken, ...]] = {}
    for source in sources:
        name, results = source.name, source.taken(point, selected)
        taken[name] = taken[name] + results if name in taken else results
    return taken
