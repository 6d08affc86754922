"""From a study to its nodes: one per stage and point of the stage's dimensions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from curvflow.flows.files import SourceFiles
from curvflow.flows.graph import Graph, Node, Point, Taken
from curvflow.flows.sources import Source
from curvflow.schemas.keys import Encoded, canonical, form
from curvflow.schemas.nodes import Label
from curvflow.schemas.params import Params
from curvflow.schemas.study.study import Stage, Study


def expand(study: Study, files: SourceFiles) -> Graph:
    """Enumerate the nodes of a study and what each takes; nothing is computed.

    Args:
        study: the resolved study.
        files: digests of the files that parameters name.

    Returns:
        The graph; nodes of a stage are ordered by the study's axes, the first slowest.

    Raises:
        StudyError: a parameter is wrong at some point of the axes, or `at` asks for
            an epoch that has no checkpoint.
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
        own = tuple(labels[axis] for axis in stage.own_axes)
        if own not in forms:
            params = stage.params(labels)
            plain = form(params, files.digests(stage, params))
            forms[own] = params, plain, Encoded(canonical(plain))
        for epoch in _epochs(stage, sources, labels):
            at = labels if epoch is None else {**labels, "epoch": epoch}
            taken = _taken(sources, at, forms[own][0])
            if all(taken.values()):
                full = point if epoch is None else (*point, epoch)
                yield Node(stage.name, stage.kind, stage.dims, full, *forms[own], taken)


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
        found = source.taken(labels, params)
        taken[source.name] = taken.get(source.name, ()) + found
    return taken
