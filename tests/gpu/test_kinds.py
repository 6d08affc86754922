"""Every kind that computes on a GPU: its own example there, and on the CPU."""

import pytest
import torch

from curvflow.flows.graph.open_study import open_study
from curvflow.flows.run.run import run_study
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.nodes import Factors, NodeData
from curvflow.schemas.options import RunOptions
from curvflow.stores.memory import MemoryStore
from curvflow.tasks.curvature.stored_factors import block_operator
from tests.gpu.cards import GPU, assert_alike, assert_variables_alike, on_a_gpu
from tests.pictures import place_only
from tests.test_registry import KINDS, folder, numeric

__all__ = ["folder"]
pytestmark = on_a_gpu

ACCELERATED = [name for name in KINDS if find_kind(name).accelerated]


VECTORS = "left_vectors", "right_vectors"
SOLVED = "residual", "num_products", "num_matvecs"


def whole(node):
    """Return the matrix that stored factors are."""
    operator = block_operator([node])
    return operator @ torch.eye(operator.shape[1], dtype=torch.float64)[None]


def run_on(device, path):
    store = MemoryStore()
    opened = open_study(path, store="memory:")
    options = RunOptions(device=device, workers=1)
    report = run_study(opened.study, store, opened.files, options=options)
    assert report.record.failures == []
    return store, list(report.plan.graph)


@pytest.mark.parametrize("name", ACCELERATED)
def test_the_example_of_a_kind_gives_the_same_numbers(name, folder, monkeypatch):
    place_only(monkeypatch)
    path = folder / f"{name}.yaml"
    (there, nodes), (here, others) = (
        run_on(device, path) for device in ("cuda", "cpu")
    )
    for node, other in zip(nodes, others, strict=True):
        if not node.kind.accelerated:
            continue
        assert node.receipt.device == GPU.device
        is_factors = node.kind.returns is Factors
        names = [*numeric(node.kind.outputs), *(["block"] if is_factors else [])]
        found, expected = (
            store.read(one.receipt, names)
            for store, one in ((there, node), (here, other))
        )
        if is_factors:
            # Signs of eigenvectors, and a basis of those of one value, are free.
            blocks, sure = (
                whole(NodeData("", "", {}, of, "")) for of in (found, expected)
            )
            assert_alike(blocks, sure, rtol=1e-6, name=node.stage)
            expected = {n: v for n, v in expected.items() if n not in VECTORS}
        outputs = node.kind.outputs
        rtol = 1e-6
        if node.kind.name == "probe.alignment":
            # Solved to a residual of tol, which the ends of intervals are off by, in
            # as many steps as rounding makes of it.
            rtol = 10 * node.params.tol
            assert (found["residual"] <= node.params.tol).all()
            expected = {n: v for n, v in expected.items() if n not in SOLVED}
        assert_variables_alike(found, expected, outputs, rtol=rtol, name=node.stage)
