"""Data sets that stay on disk give the bits of those in memory, from file to result."""

import shutil
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import curvflow
from curvflow.errors import CorruptPayloadError, StudyError
from curvflow.flows.run.compute import _write_payloads
from curvflow.schemas.disk_arrays import DiskArray
from curvflow.schemas.nodes import Outcome
from curvflow.stores import zarr_payloads
from curvflow.stores.local import LocalStore
from curvflow.stores.memory import MemoryStore
from curvflow.stores.row_files import npy_rows
from curvflow.tasks.networks import problems
from curvflow.tasks.numerics.disk_tensors import DiskTensor

ROWS = 61
PROBED = {
    "trace": {"use": "probe.hessian_trace", "num_probes": 2},
    "top": {"use": "probe.eigenvalues", "k": 1, "max_iterations": 3},
    "noise": {"use": "probe.gradient_variance", "batch_size": 8, "num_samples": 20},
    "spread": {"use": "probe.hessian_variance", "batch_size": 8, "num_probes": 2},
    "slices": {"use": "probe.landscape", "directions": "random", "num_points": 3},
    "chains": {
        "use": "probe.llc",
        "num_chains": 2,
        "num_draws": 8,
        "num_burnin_steps": 2,
        "num_steps_bw_draws": 2,
        "batch_size": 8,
        "sampling_method": "sgld",
        "calibrate": "none",
        "lr": 1e-4,
        "nbeta": 2.0,
        "localization": 1.0,
    },
}


def write(folder: Path) -> None:
    draw = np.random.default_rng(0)
    inputs = draw.normal(size=(ROWS, 3, 2)).astype(np.float32)
    np.save(folder / "x.npy", inputs)
    np.save(folder / "y.npy", (inputs.sum((1, 2)) > 0).astype(int))


def study(folder: Path, above: int, **more):
    data = {
        "use": "data.array",
        "path": str(folder / "x.npy"),
        "targets_path": str(folder / "y.npy"),
        "test_fraction": 0.2,
        "rows_above": above,
        **more,
    }
    fit = {
        "use": "train",
        "data": "own",
        "model": {"kind": "mlp", "hidden": [3]},
        "rule": {"rule": "sgd", "lr": 0.1},
        "seed": "${seed}",
        "epochs": 2,
        "batch_size": 7,
        "validation_fraction": 0.1,
    }
    # Of data that differ between models of a tile, and of a network of another form.
    stages = {
        "own": {**data, "seed": "${seed}"},
        "fit": fit,
        "shared": data,
        "deep": {**fit, "data": "shared", "model": {"kind": "mlp", "hidden": [2, 2]}},
        **{name: {**probe, "weights": "fit"} for name, probe in PROBED.items()},
        "deep_chains": {**PROBED["chains"], "weights": "deep"},
    }
    return curvflow.Study(study="rows", axes={"seed": 2}, stages=stages)


def results(store) -> dict[tuple[str, str], str]:
    live = store.index().receipts.values()
    return {(receipt.stage, receipt.key): receipt.digest for receipt in live}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Stores of a run in memory and of one on disk, and what the latter loaded."""
    folder, stores = tmp_path_factory.mktemp("rows"), []
    write(folder)
    for above in (1 << 30, 0):
        seen: list[type] = []

        class Spied(DiskTensor):
            def __init__(self, sets, *rest, seen=seen):
                seen.extend(map(type, sets))
                super().__init__(sets, *rest)

        store = LocalStore(folder / f"store{above}")
        with (
            mock.patch.object(zarr_payloads, "SHARD_BYTES", 500),  # of several chunks
            mock.patch.object(problems, "DiskTensor", Spied),
        ):
            curvflow.run(study(folder, above), store=store.location, workers=1)
        stores.append(store)
    return *stores, seen


def test_every_result_has_the_bits_of_a_run_in_memory(runs):
    in_memory, on_disk, seen = runs
    assert set(seen) == {DiskArray}
    assert results(on_disk) == results(in_memory)
    assert len(results(on_disk)) == 20


def test_a_payload_with_rows_unread_is_read_whole_too(runs):
    whole, on_disk, _ = runs
    for receipt in on_disk.index().receipts.values():
        if receipt.kind == "data.array":
            array = on_disk.on_disk(receipt, "inputs")
            assert isinstance(array, DiskArray)
            expected = whole.read(receipt_of(whole, receipt), ["inputs"])["inputs"]
            assert np.array_equal(on_disk.read(receipt, ["inputs"])["inputs"], expected)
            assert np.array_equal(np.asarray(array), expected)
            on_disk.verify_payload(receipt.payload, [receipt])


def receipt_of(store, receipt):
    return store.index().receipts[receipt.key]


def test_a_chunk_that_differs_or_is_gone_is_no_result(runs, tmp_path):
    receipt = next(
        r for r in runs[1].index().receipts.values() if r.kind == "data.array"
    )
    shutil.copytree(runs[1].location, tmp_path / "store")
    store = LocalStore(tmp_path / "store")
    folder = next((tmp_path / "store" / "payloads").rglob(f"{receipt.payload}.zarr"))
    chunk = folder / "inputs" / "c" / "0" / "1" / "0" / "0"
    content = chunk.read_bytes()
    chunk.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    with pytest.raises(CorruptPayloadError, match="not what was computed"):
        store.on_disk(receipt, "inputs")
    chunk.unlink()
    for read in (store.on_disk, lambda r, name: store.read(r, [name])):
        with pytest.raises(CorruptPayloadError, match="inputs"):
            read(receipt, "inputs")


def test_a_store_that_keeps_no_rows_has_the_array_itself(tmp_path):
    write(tmp_path)
    store = MemoryStore()
    array = npy_rows(tmp_path / "x.npy")
    payload = _write_payloads(store, [Outcome({"inputs": array})])[0][0]
    assert np.array_equal(store.read_payload(payload)["inputs"][0], np.asarray(array))


def test_a_file_larger_than_memory_is_refused_while_planning(tmp_path):
    write(tmp_path)
    whole = mock.patch("numpy.load", side_effect=MemoryError)
    with whole, pytest.raises(StudyError, match=r"fit into memory, .* stay on disk"):
        curvflow.run(study(tmp_path, 1 << 30), store=str(tmp_path / "store"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (np.asfortranarray, "path: expected rows one behind another in x.npy"),
        (lambda x: x * np.nan, "inputs: expected finite numbers, got 366 NaN"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_while_planning(tmp_path, make, message):
    write(tmp_path)
    np.save(tmp_path / "x.npy", make(np.load(tmp_path / "x.npy")))
    with pytest.raises(StudyError, match=message):
        curvflow.run(study(tmp_path, 0), store=str(tmp_path / "store"))
