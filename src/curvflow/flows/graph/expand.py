"""The nodes of a study, stage by stage, and the results that each takes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from curvflow.flows.graph.files import SourceFiles
from curvflow.flows.graph.graph import Graph, Node, Point, Taken
from curvflow.schemas.keys import Encoded, canonical, form
from curvflow.schemas.kind import Kind, Variable
from curvflow.schemas.nodes import Label, Weights
from curvflow.schemas.params import Params
from curvflow.schemas.study.study import Stage, Study


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
        self._chooses_epoch = (
            issubclass(self._edge, Weights) and "epoch" not in self._dims
        )
        self._shared = [dim for dim in self._dims if dim in stage.dims]
        self._groups: dict[Point, list[Node]] = defaultdict(list)
        where = [self._dims.index(dim) for dim in self._shared]
        for node in graph.nodes[producer]:
            self._groups[tuple(node.point[i] for i in where)].append(node)
        self._epochs = self._epochs_by_others()
        self._parts: dict[tuple[object, ...], tuple[str, ...]] = {}

    def _epochs_by_others(self) -> Mapping[Point, Sequence[int]]:
        epochs_by_point: dict[Point, list[int]] = defaultdict(list)
        if "epoch" in self._shared:
            slot = self._shared.index("epoch")
            for point in self._groups:
                epochs_by_point[point[:slot] + point[slot + 1 :]].append(
                    int(point[slot])
                )
        return {others: sorted(epochs) for others, epochs in epochs_by_point.items()}

    def epochs(self, labels: Mapping[str, Label]) -> Sequence[int]:
        """List the epochs the producer offers at a point of the other axes."""
        if self._chooses_epoch:
            # At `final` each network brings its own last epoch and no dimension.
            brings = self._stage.at.adds_epoch
            return self._chosen(self._groups[self._key(labels)][0]) if brings else []
        others = tuple(labels[dim] for dim in self._shared if dim != "epoch")
        return self._epochs.get(others, [])

    def taken(self, labels: Mapping[str, Label], params: Params) -> tuple[Taken, ...]:
        """Return what the stage's node at this point takes."""
        return tuple(
            Taken(node, self._parts_of(node, labels, params))
            for node in self._groups.get(self._key(labels), ())
        )

    def _key(self, labels: Mapping[str, Label]) -> Point:
        return tuple(labels[dim] for dim in self._shared)

    def _chosen(self, node: Node) -> Sequence[int]:
        if node.kind.checkpoints is None:
            return []
        return self._stage.epochs(node.kind.checkpoints(node.params))

    def _parts_of(
        self, node: Node, labels: Mapping[str, Label], params: Params
    ) -> tuple[str, ...]:
        epoch: Label | None = None
        if self._chooses_epoch and node.kind.checkpoints is not None:
            is_one_of_many = self._stage.at.adds_epoch
            epoch = labels["epoch"] if is_one_of_many else self._chosen(node)[-1]
        selected = self._stage.kind.selected(params)
        memo = (epoch, *selected)
        if memo not in self._parts:
            variables = self._variables(node.kind, selected)
            self._parts[memo] = tuple(_part_name(v, epoch) for v in variables)
        return self._parts[memo]

    def _variables(self, kind: Kind, selected: Sequence[str]) -> list[Variable]:
        if takes := self._edge.takes:
            return [v for v in kind.outputs if v.name in takes]
        chosen = kind.chosen(selected)
        if not self._stage.kind.judges:
            return chosen
        beside = {v.judged_by for v in chosen if v.judged_by}
        beside |= set(self._stage.kind.settings) if beside else set()
        return [v for v in kind.outputs if v in chosen or v.name in beside]


def _part_name(variable: Variable, epoch: Label | None) -> str:
    sliced = variable.sliced and epoch is not None
    return f"{variable.name}@{epoch}" if sliced else variable.name


def expand(study: Study, files: SourceFiles) -> Graph:
    """Enumerate the nodes of a study and what each takes; nothing is computed.

    Nodes of a stage are ordered by the study's axes, the first slowest.

    Raises:
        StudyError: a parameter is wrong at some point of the axes, or `at` requests an
            epoch that has no checkpoint.
    """
    graph = Graph(study)
    for stage in study.stages.values():
        graph.nodes[stage.name] = list(_nodes(graph, stage, files))
    return graph


def _nodes(graph: Graph, stage: Stage, files: SourceFiles) -> Iterator[Node]:
    axes = [axis for axis in stage.dims if axis != "epoch"]
    sources = [
        Source(graph, stage, name, producer)
        for name, producers in stage.inputs.items()
        for producer in producers
    ]
    forms: dict[Point, tuple[Params, dict[str, object], Encoded]] = {}
    for point in product(*(graph.study.axes[axis].labels for axis in axes)):
        labels = dict(zip(axes, point, strict=True))
        key = tuple(labels[axis] for axis in stage.own_axes)
        if key not in forms:
            params = stage.params(labels)
            plain = form(params, files.digests(stage, params))
            forms[key] = params, plain, Encoded(canonical(plain))
        for epoch in _epochs(stage, sources, labels):
            at = labels if epoch is None else {**labels, "epoch": epoch}
            taken = _taken(sources, at, forms[key][0])
            if all(taken.values()):
                full = point if epoch is None else (*point, epoch)
                yield Node(stage.name, stage.kind, stage.dims, full, *forms[key], taken)


def _epochs(
    stage: Stage, sources: Sequence[Source], labels: Mapping[str, Label]
) -> Sequence[int | None]:
    if "epoch" not in stage.dims:
        return [None]
    return sorted({epoch for source in sources for epoch in source.epochs(labels)})


def _taken(
    sources: Sequence[Source], labels: Mapping[str, Label], params: Params
) -> dict[str, tuple[Taken, ...]]:
    taken: dict[str, tuple[Taken, ...]] = {}
    for source in sources:
        results = source.taken(labels, params)
        taken[source.name] = taken.get(source.name, ()) + results
    return taken
