"""Every kind that computes on a GPU: its own example there, and on the CPU."""

import numpy as np
import pytest

from curvflow.flows.graph.open_study import open_study
from curvflow.flows.run.run import run_study
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.options import RunOptions
from curvflow.stores.memory import MemoryStore
from tests.gpu.cards import GPU, assert_alike, on_a_gpu
from tests.pictures import place_only
from tests.test_registry import KINDS, folder, numeric

__all__ = ["folder"]
pytestmark = on_a_gpu

ACCELERATED = [name for name in KINDS if find_kind(name).accelerated]


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
        names = numeric(node.kind.outputs)
        found, expected = (
            store.read(one.receipt, names)
            for store, one in ((there, node), (here, other))
        )
        for variable, value in expected.items():
            told = f"{node.stage}.{variable}"
            if value.dtype.kind == "f":
                assert_alike(found[variable], value, rtol=1e-6, name=told)
            else:
                np.testing.assert_array_equal(found[variable], value, err_msg=told)
