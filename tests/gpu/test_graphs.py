"""Matrices of graphs on a GPU: what probes of them find, with and without atoms."""

import networkx as nx
import pytest

from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.shared.deflation import OF_COMPONENTS
from curvflow.tasks.registry import find
from tests.gpu.cards import GPU, assert_variables_alike, on_a_gpu
from tests.tasks.numerics.operators.test_graphs import NAMES
from tests.tasks.probes.graphs.test_deflated_probes import member
from tests.tasks.toys import CPU

pytestmark = on_a_gpu

SETTINGS = {
    "probe.spectrum": {"num_runs": 3, "num_steps": 6},
    "probe.moments": {"num_probes": 3, "num_moments": 6},
    "probe.logdet": {"num_runs": 3, "num_steps": 6, "damping": 20.0},
}


@pytest.mark.parametrize("deflate", [(), ("twins",), ("components", "twins")])
@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("name", NAMES)
def test_probes_of_a_graph_find_what_they_find_on_the_cpu(name, kind, deflate):
    if "components" in deflate and name not in OF_COMPONENTS:
        pytest.skip("components have no eigenvector of this operator")
    settings = {"operator": name, **SETTINGS[kind]}
    if deflate:
        if kind == "probe.logdet":
            pytest.skip("a log-determinant is of the whole matrix")
        settings["deflate"] = deflate
    forest = nx.disjoint_union(
        nx.barabasi_albert_graph(60, 1, seed=1), nx.gnp_random_graph(40, 0.2, seed=2)
    )
    given = member(kind, nx.to_numpy_array(forest), **settings)
    (there,), (here,) = (find(kind).compute([given], at) for at in (GPU, CPU))
    outputs = find_kind(kind).outputs
    assert_variables_alike(there.arrays, here.arrays, outputs, rtol=1e-8, name=name)
