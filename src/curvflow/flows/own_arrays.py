"""Whether the user's arrays fit the networks and losses that they are given to."""

from __future__ import annotations

from curvflow.flows.files import SourceFiles
from curvflow.flows.graph import Graph
from curvflow.schemas.checks.problem_checks import check_problems
from curvflow.schemas.checks.samples import Samples, known_samples
from curvflow.schemas.kinds.data.array import ArrayParams, samples_of
from curvflow.schemas.params import Params


def check_arrays(graph: Graph, files: SourceFiles) -> None:
    """Check stages that must run against what the files of their data hold.

    A file is read only where parameters do not settle it: by data given beside weights,
    a loss or a model for some data only, or a number of eigenvalues.

    Args:
        graph: the nodes, compared with the log; their files are in order.
        files: the files that parameters name.

    Raises:
        StudyError: data do not fit.
    """
    stages = graph.study.stages
    forms = {
        node.params: node.form
        for nodes in graph.nodes.values()
        for node in nodes
        if isinstance(node.params, ArrayParams)
    }
    known: dict[Params, Samples] = {}

    def tell(params: Params, taken: Samples) -> Samples:
        if not isinstance(params, ArrayParams):
            return known_samples(params, taken)
        if params not in known:
            read = files.read(params, forms[params])
            known[params] = samples_of(params, read)
        return known[params]

    for name, nodes in graph.nodes.items() if forms else ():
        if any(node.state != "cached" for node in nodes):
            check_problems(stages[name], stages, tell)
