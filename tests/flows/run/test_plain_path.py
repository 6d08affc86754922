"""Modules of the user's own that are alone in their tile, without vmap and copy."""

from unittest import mock

import numpy as np
import pytest
import torch

import curvflow
from curvflow.stores.local import LocalStore
from curvflow.tasks.networks import modules
from tests.tasks.toys import blobs

PROBES = {
    "trace": {"use": "probe.trace", "num_probes": 4},
    "top": {"use": "probe.eigenvalues", "k": 2, "method": "lanczos"},
    "bars": {"use": "probe.spectrum", "num_runs": 1, "num_steps": 5},
    "sketch": {"use": "probe.trace", "num_probes": 12, "method": "hutch++"},
}
FOUND = {
    "fit": "final_train_loss",
    "trace": "trace",
    "top": "eigenvalues",
    "bars": "largest",
    "sketch": "trace",
}


def study(folder, seeds, **probes):
    data = blobs()
    labels = data["targets"].astype(int)
    np.savez(folder / "data.npz", inputs=data["inputs"], targets=labels)
    fit = {
        "use": "train",
        "data": "data",
        "model": {"factory": "tests.tasks.toys:make_batch_norm"},
        "rule": {"rule": "sgd", "lr": 0.1},
        "epochs": 2,
        "dtype": "float64",
        "seed": "${seed}",
    }
    stages = {
        "data": {"use": "data.array", "path": str(folder / "data.npz")},
        "fit": fit,
        **{name: {**probe, "weights": "fit"} for name, probe in probes.items()},
    }
    return curvflow.Study(study="plain", axes={"seed": seeds}, stages=stages)


@pytest.fixture
def widths():
    """Numbers of models of calls in double precision: trials are in single."""
    seen, stacked = set(), modules._stacked

    def spied(forward_pass):
        models, tensors = stacked(forward_pass)
        first = next(iter(tensors.values()))
        if first.dtype == torch.float64 and first.device.type == "cpu":
            seen.add(models)
        return models, tensors

    with mock.patch.object(modules, "_stacked", side_effect=spied):
        yield seen


def test_one_network_is_computed_alone_and_has_the_results_of_several(tmp_path, widths):
    alone = curvflow.run(study(tmp_path, [1], **PROBES), store="memory:")
    assert widths == {1}
    several = curvflow.run(study(tmp_path, [0, 1, 2], **PROBES), store="memory:")
    assert 3 in widths
    for stage, name in FOUND.items():
        here = alone[stage][name].sel(seed=1).values
        there = several[stage][name].sel(seed=1).values
        np.testing.assert_allclose(here, there, rtol=1e-8)


def test_one_that_is_left_over_is_computed_with_a_copy(tmp_path, widths):
    store = str(tmp_path / "store")
    curvflow.run(study(tmp_path, [0, 1]), store=store)
    widths.clear()
    curvflow.run(study(tmp_path, [0, 1, 2]), store=store)
    assert widths == {2}


@pytest.mark.parametrize(("first", "then"), [([0, 1], [1]), ([1], [0, 1])])
def test_what_was_collected_comes_back_as_it_was_computed(
    tmp_path, widths, first, then
):
    where = tmp_path / "store"
    curvflow.run(study(tmp_path, first), store=str(where))
    store = LocalStore(where)
    trained = [r for r in store.index().receipts.values() if r.stage == "fit"]
    store.evict(sorted({r.payload for r in trained}), "collected")
    for payload in {r.payload for r in trained}:
        for path in where.rglob(f"{payload}*"):
            path.unlink()
    probe = {"norms": {"use": "probe.norms"}}
    curvflow.run(study(tmp_path, then, **probe), store=str(where))
    there = LocalStore(where).index().receipts
    assert [there[r.key].digest for r in trained] == [r.digest for r in trained]
