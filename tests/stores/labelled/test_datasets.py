import math
import warnings
from unittest import mock

import numpy as np
import pytest
import xarray as xr

from curvflow.errors import CorruptPayloadError, RequestError, StoreError
from curvflow.schemas.kind import Variable
from curvflow.stores.labelled import datasets as module
from curvflow.stores.labelled.datasets import labelled, tree, write
from curvflow.stores.local import LocalStore
from curvflow.stores.memory import MemoryStore
from curvflow.testing.stores import publish, receipt_of

OUTPUTS = (
    Variable("trace", "trace of the Hessian", units="loss / parameter^2"),
    Variable("step", "optimiser step", ("step",), dtype="int64"),
    Variable("loss", "training loss", ("step",)),
    Variable("weights", "parameters", ("step", "parameter"), sliced="step"),
    Variable("inputs", "images", ("sample", "..."), dtype="float32"),
    Variable("flag", "converged", dtype="bool"),
    Variable("name", "network", dtype="str"),
)


def tile(seed=0, nodes=2, steps=3, **changes):
    rng = np.random.default_rng(seed)
    arrays = {
        "trace": rng.normal(size=nodes),
        "step": np.tile(np.arange(steps) * 5, (nodes, 1)),
        "loss": rng.normal(size=(nodes, steps)),
        "weights": rng.normal(size=(nodes, steps, 4)),
        "inputs": rng.normal(size=(nodes, 6, 2, 2)).astype(np.float32),
        "flag": np.ones(nodes, bool),
        "name": np.array([f"net {n}" for n in range(nodes)]),
    }
    return arrays | changes


@pytest.fixture(params=["memory", "folder"])
def store(request, tmp_path):
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "s")


def grid(store, first, second, **changes):
    """Two rules by two seeds; each rule is a tile."""
    cells = {}
    for row, arrays in enumerate((first, second)):
        receipts = publish(store, arrays, [f"{row}0", f"{row}1"], outputs=OUTPUTS)
        cells.update(
            {(row, column): receipt for column, receipt in enumerate(receipts)}
        )
    return show(store, cells, **changes)


def show(store, cells, **changes):
    given = {
        "dims": ("rule", "seed"),
        "coords": {"rule": ["sgd", "adam"], "seed": [0, 1]},
        "cells": cells,
        "statuses": {
            cell: receipt.status for cell, receipt in cells.items() if receipt
        },
        "outputs": OUTPUTS,
        "attrs": {"study": "xor", "stage": "fit"},
    }
    return labelled(store, **(given | changes))


def test_every_variable_lies_over_the_axes_with_its_labels_and_units(store):
    first, second = tile(0), tile(1)
    dataset = grid(store, first, second)
    assert dataset.trace.dims == ("rule", "seed")
    assert dataset.rule.values.tolist() == ["sgd", "adam"]
    assert dataset.trace.attrs == {
        "units": "loss / parameter^2",
        "description": "trace of the Hessian",
    }
    assert dataset.attrs == {"study": "xor", "stage": "fit"}
    assert dataset.weights.dims == ("rule", "seed", "step", "parameter")
    for name in first:
        if name != "step":
            expected = np.stack([first[name], second[name]])
            np.testing.assert_array_equal(dataset[name].values, expected)
    assert dataset.inputs.dtype == np.float32
    assert dataset.flag.dtype == bool
    assert dataset.name.values[1, 1] == "net 1"
    assert set(dataset.status.values.flat) == {"ok"}


def test_the_time_of_each_node_lies_over_the_axes_without_reading(store):
    took = Variable("seconds", "time", units="s")
    receipts = publish(store, tile(0), ["a", "b"], outputs=OUTPUTS)
    cells = {(0, seed): receipt for seed, receipt in enumerate(receipts)} | {
        (1, 0): None
    }
    with mock.patch.object(store, "fetch", side_effect=AssertionError):
        dataset = show(store, cells, outputs=OUTPUTS[:1], times=[took])
        np.testing.assert_array_equal(
            dataset.seconds.values, [[0.25, 0.25], [math.nan, math.nan]]
        )
    assert dataset.seconds.dims == dataset.status.dims
    assert dataset.seconds.attrs == {"units": "s", "description": "time"}


def test_a_coordinate_that_all_nodes_share_labels_the_dimension(store):
    dataset = grid(store, tile(0), tile(1))
    assert dataset.step.dims == ("step",)
    assert dataset.step.values.tolist() == [0, 5, 10]
    assert dataset.step.attrs["description"] == "optimiser step"
    picked = dataset.loss.sel(rule="adam", seed=1, step=5)
    assert picked.item() == tile(1)["loss"][1, 1]


def test_coordinates_that_differ_are_aligned_by_their_numbers(store):
    first, later = tile(0), tile(1, step=np.array([[0, 6, 12], [12, 5, 0]]))
    dataset = grid(store, first, later)
    assert dataset.step.dims == ("step",)
    assert dataset.step.values.tolist() == [0, 5, 6, 10, 12]
    assert dataset.step.dtype == np.int64
    assert dataset.step.attrs["description"] == "optimiser step"
    for seed, steps in enumerate(later["step"]):
        seed_losses = dataset.loss.isel(rule=1, seed=seed)
        np.testing.assert_array_equal(seed_losses.sel(step=steps), later["loss"][seed])
        assert np.isfinite(seed_losses.values).sum() == 3
    weights = dataset.weights.sel(rule="adam", seed=1, step=5)
    np.testing.assert_array_equal(weights, later["weights"][1, 1])
    assert np.isnan(dataset.loss.sel(rule="sgd", step=12)).all()
    assert dataset.isel(seed=0).copy().step.dims == ("step",)


TABLE = (
    Variable("quantity", "what was measured", ("quantity",), dtype="str"),
    Variable("mean", "mean", ("quantity",)),
    Variable("count", "values", ("quantity",), dtype="int64"),
    Variable("known", "whether known", ("quantity",), dtype="bool"),
    Variable("units", "units", ("quantity",), dtype="str"),
)


def rows(store, key, *names):
    size = len(names)
    arrays = {
        "quantity": np.array([names]),
        "mean": np.arange(size, dtype=float)[None] + 1,
        "count": np.arange(size)[None] + 5,
        "known": np.ones((1, size), bool),
        "units": np.array([[f"{name} unit" for name in names]]),
    }
    return publish(store, arrays, [key], outputs=TABLE)[0]


def tables(store, *each):
    cells = {(n,): rows(store, f"k{n}", *names) for n, names in enumerate(each)}
    given = {"dims": ("rule",), "coords": {"rule": list(range(len(each)))}}
    return show(store, cells, outputs=TABLE, **given)


def test_text_is_aligned_in_the_order_of_first_appearance(store):
    dataset = tables(store, ["trace", "loss"], ["accuracy", "loss", "norm"])
    assert dataset.quantity.dims == ("quantity",)
    assert dataset.quantity.values.tolist() == ["trace", "loss", "accuracy", "norm"]
    nan = math.nan
    np.testing.assert_array_equal(
        dataset["mean"].values, [[1, 2, nan, nan], [nan, 2, 1, 3]]
    )
    units = dataset.units.sel(rule=0).values.tolist()
    assert units == ["trace unit", "loss unit", "", ""]
    assert (dataset["count"].dtype, dataset.known.dtype) == (float, float)
    assert dataset["mean"].sel(rule=1, quantity=["norm", "loss"]).values.tolist() == [
        3,
        2,
    ]


def test_the_same_labels_in_another_order_leave_nothing_missing(store):
    dataset = tables(store, ["trace", "loss"], ["loss", "trace"])
    assert dataset["count"].dtype == np.int64
    assert dataset.known.dtype == bool
    assert dataset["count"].values.tolist() == [[5, 6], [6, 5]]
    assert dataset["mean"].sel(quantity="loss").values.tolist() == [2, 1]


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_aligned_results_are_written_and_read_back(store, tmp_path, suffix):
    dataset = tables(store, ["trace", "loss"], ["loss", "norm"])
    write(dataset, tmp_path / f"t{suffix}")
    engine = {".nc": "h5netcdf", ".zarr": "zarr"}[suffix]
    with xr.open_dataset(tmp_path / f"t{suffix}", engine=engine) as back:
        assert back["mean"].sel(rule=1, quantity="loss").item() == 1


def test_labels_that_all_nodes_share_keep_their_order_and_may_repeat(store):
    dataset = tables(store, ["b", "a", "b"], ["b", "a", "b"])
    assert dataset.quantity.values.tolist() == ["b", "a", "b"]
    assert dataset["count"].values.tolist() == [[5, 6, 7]] * 2


def test_labels_that_repeat_within_a_node_leave_it_to_position(store):
    dataset = tables(store, ["a", "a", "b"], ["b", "c"])
    assert "quantity" not in dataset.coords
    assert dataset.node_quantity.dims == ("rule", "quantity")
    assert dataset.node_quantity.values.tolist() == [["a", "a", "b"], ["b", "c", ""]]
    np.testing.assert_array_equal(dataset["mean"].values, [[1, 2, 3], [1, 2, math.nan]])


def test_nan_is_no_label(store):
    outputs = (Variable("x", "place", ("x",)), Variable("y", "value", ("x",)))
    cells = {}
    for n, x in enumerate(([0.0, math.nan], [0.0, 1.0])):
        arrays = {"x": np.array([x]), "y": np.array([[1.0, 2.0]])}
        (cells[n,],) = publish(store, arrays, [f"k{n}"], outputs=outputs)
    given = {"dims": ("seed",), "coords": {"seed": [0, 1]}}
    dataset = show(store, cells, outputs=outputs, **given)
    assert dataset.y.values.tolist() == [[1, 2], [1, 2]]
    np.testing.assert_array_equal(dataset.node_x.values, [[0, math.nan], [0, 1]])


def test_a_node_without_labels_is_laid_out_by_position(store):
    bare = publish(store, {"loss": np.ones((1, 2))}, ["x"], outputs=OUTPUTS)
    (full,) = publish(store, tile(0, nodes=1), ["a"], outputs=OUTPUTS)
    dataset = show(store, {(0, 0): full, (1, 0): bare[0]})
    assert dataset.step.values.tolist() == [0, 5, 10]
    np.testing.assert_array_equal(dataset.loss[1, 0].values, [1, 1, math.nan])


def test_arrays_longer_than_their_labels_are_laid_out_by_position(store):
    arrays = {"step": np.array([[0, 5]]), "loss": np.ones((1, 4))}
    (receipt,) = publish(store, arrays, ["x"], outputs=OUTPUTS)
    dataset = show(store, {(0, 0): receipt})
    assert dataset.loss.shape == (2, 2, 4)
    assert "step" not in dataset.coords
    np.testing.assert_array_equal(
        dataset.node_step[0, 0].values, [0, 5, math.nan, math.nan]
    )


def test_further_dimensions_are_named_after_the_variable(store):
    dataset = grid(store, tile(0), tile(1))
    dims = ("rule", "seed", "sample", "inputs_1", "inputs_2")
    assert dataset.inputs.dims == dims


def test_shorter_arrays_are_nan_at_the_labels_they_lack(store):
    dataset = grid(store, tile(0, steps=3), tile(1, steps=2))
    assert dataset.step.values.tolist() == [0, 5, 10]
    assert np.isnan(dataset.loss.values[1, :, 2]).all()
    assert np.isfinite(dataset.loss.values[1, :, :2]).all()
    assert dataset.step.dtype == np.int64


def test_shorter_arrays_without_labels_are_padded_with_nan(store):
    few = tile(1, inputs=np.ones((2, 4, 2, 2), np.float32))
    dataset = grid(store, tile(0), few)
    assert (dataset.inputs.values[1, :, :4] == 1).all()
    assert np.isnan(dataset.inputs.values[1, :, 4:]).all()


def test_arrays_of_fewer_dimensions_are_padded_too(store):
    flat = tile(1, inputs=np.ones((2, 6, 2), np.float32))
    dataset = grid(store, tile(0), flat)
    assert dataset.inputs.shape == (2, 2, 6, 2, 2)
    assert (dataset.inputs.values[1, ..., 0] == 1).all()
    assert np.isnan(dataset.inputs.values[1, ..., 1]).all()


def test_missing_cells_are_nan_or_empty_and_say_so(store):
    receipts = publish(store, tile(0), ["a", "b"], outputs=OUTPUTS)
    cells = {(0, 0): receipts[0], (0, 1): receipts[1], (1, 0): None}
    dataset = show(store, cells, statuses={(0, 0): "ok", (1, 0): "failed"})
    assert dataset.status.values.tolist() == [["ok", "missing"], ["failed", "missing"]]
    np.testing.assert_array_equal(dataset.trace.values[0], tile(0)["trace"])
    assert np.isnan(dataset.trace.values[1]).all()
    assert dataset.flag.dtype == float
    assert dataset.name.values.tolist() == [["net 0", "net 1"], ["", ""]]
    assert dataset.step.values.tolist() == [0, 5, 10]


def test_a_diverged_node_lacks_what_it_did_not_compute(store):
    two_variables = {name: tile(0)[name] for name in ("step", "loss")}
    broken = publish(
        store, two_variables, ["a", "b"], outputs=OUTPUTS, status="diverged"
    )
    bare = receipt_of(two_variables, 0, status="diverged", payload=None)
    sound = publish(store, tile(1), ["c"], outputs=OUTPUTS)
    cells = {(0, 0): broken[0], (0, 1): bare, (1, 0): sound[0], (1, 1): broken[1]}
    dataset = show(store, cells)
    assert np.isnan(dataset.trace.values[0, 0])
    assert np.isfinite(dataset.trace.values[1, 0])
    assert np.isnan(dataset.loss.values[0, 1]).all()
    assert dataset.status.values[0, 1] == "diverged"


def test_a_stage_without_results_is_all_missing(store):
    dataset = show(store, {})
    assert np.isnan(dataset.trace.values).all()
    assert dataset.loss.shape == (2, 2, 0)
    assert dataset.step.dims == ("step",)
    assert dataset.step.dtype == np.int64
    assert (dataset.status == "missing").all()


def test_a_stage_without_axes_is_laid_out_as_one_node(store):
    (receipt,) = publish(store, tile(0, nodes=1), ["a"], outputs=OUTPUTS)
    dataset = show(store, {(): receipt}, dims=(), coords={})
    assert dataset.trace.item() == tile(0, nodes=1)["trace"][0]
    assert dataset.loss.dims == ("step",)
    assert dataset.status.item() == "ok"


def test_names_that_an_axis_bears_already_get_a_prefix(store):
    (receipt,) = publish(store, tile(0, nodes=1), ["a"], outputs=OUTPUTS)
    dims, coords = ("step", "trace"), {"step": [1], "trace": ["x"]}
    dataset = show(store, {(0, 0): receipt}, dims=dims, coords=coords)
    assert dataset.loss.dims == ("step", "trace", "node_step")
    assert dataset.node_trace.dims == ("step", "trace")
    assert dataset.node_step.dims == ("node_step",)
    assert dataset.node_step.values.tolist() == [0, 5, 10]
    assert dataset.step.values.tolist() == [1]


@pytest.mark.parametrize(
    ("labels", "kind"),
    [([1, 2], "i"), ([1, 2.5], "f"), (["a", "b"], "O"), ([True, 1], "O")],
)
def test_labels_keep_their_type(store, labels, kind):
    dataset = show(store, {}, coords={"rule": labels, "seed": [0, 1]})
    assert dataset.rule.dtype.kind == kind
    assert dataset.rule.values.tolist() == labels


class Counting(MemoryStore):
    def __init__(self):
        super().__init__()
        self.asked = []

    def read_together(self, receipts, parts):
        self.asked += [(receipt.key, part) for receipt in receipts for part in parts]
        return super().read_together(receipts, parts)


def test_only_what_is_looked_at_is_read():
    store = Counting()
    dataset = grid(store, tile(0), tile(1))
    assert store.asked == [("00", "step")]
    store.asked.clear()
    dataset.loss.sel(rule="adam", seed=[1], step=slice(0, 5)).load()
    assert store.asked == [("11", "loss")]


def test_of_results_to_be_aligned_only_the_labels_are_read_at_once():
    store = Counting()
    dataset = grid(store, tile(0), tile(1, steps=2))
    assert store.asked == [("00", "step"), ("10", "step")]
    store.asked.clear()
    dataset.loss.sel(rule="adam", seed=[1], step=slice(0, 5)).load()
    assert store.asked == [("11", "loss")]


@pytest.mark.parametrize(
    "index",
    [
        (0, slice(None), [2, 0]),
        (slice(None, None, -1), 1, 1),
        ([1, 0], [1, 0, 0], slice(1, None)),
        (slice(0, 0), 0, 0),
        (-1, -1, -1),
        (np.array([True, False]), slice(None), slice(None, None, 2)),
    ],
)
def test_any_index_gives_what_numpy_gives(store, index):
    expected = np.stack([tile(0)["loss"], tile(1)["loss"]])
    for axis, part in enumerate(reversed(index)):
        expected = expected[(slice(None),) * (2 - axis) + (part,)]
    lazy = grid(store, tile(0), tile(1)).loss
    np.testing.assert_array_equal(lazy[index].values, expected)


def test_a_lost_payload_is_an_error_and_never_nan(store):
    receipt = receipt_of(tile(0), 0, payload="f" * 64, outputs=OUTPUTS)
    with pytest.raises(CorruptPayloadError, match="ffffffffffff"):
        show(store, {(0, 0): receipt})


def test_stages_hang_under_one_root(store):
    both = tree({"fit": grid(store, tile(0), tile(1)), "probe": xr.Dataset()})
    assert set(both.children) == {"fit", "probe"}
    assert both["fit/trace"].shape == (2, 2)


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_what_is_written_reads_back(store, tmp_path, suffix):
    dataset = grid(store, tile(0), tile(1, steps=2), attrs={"run": 3, "of": {"a": 1}})
    path = tmp_path / "out" / f"fit{suffix}"
    for _ in range(2):  # the second replaces the first
        write(dataset, path)
    engine = "zarr" if suffix == ".zarr" else "h5netcdf"
    with xr.open_dataset(path, engine=engine) as back:
        back.load()
    for name in dataset.variables:
        np.testing.assert_array_equal(back[name].values, dataset[name].values)
    assert back.trace.attrs["units"] == "loss / parameter^2"
    assert back.attrs["of"] == '{"a": 1}'
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_zarr_that_was_written_opens_without_a_warning(store, tmp_path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        write(grid(store, tile(0), tile(1)), tmp_path / "fit.zarr")
        with xr.open_zarr(tmp_path / "fit.zarr") as back:
            assert back.loss.sel(step=5).shape == (2, 2)
    assert [str(warning.message) for warning in caught] == []


def test_mixed_labels_are_written_as_text(store, tmp_path):
    dataset = show(store, {}, coords={"rule": [True, "b"], "seed": [0, 1]})
    for suffix in (".nc", ".zarr"):
        write(dataset, tmp_path / f"x{suffix}")
    with xr.open_dataset(tmp_path / "x.nc", engine="h5netcdf") as back:
        assert back.rule.values.tolist() == ["True", "b"]


def test_a_dataset_that_cannot_be_read_leaves_no_file(tmp_path):
    store = MemoryStore()
    dataset = grid(store, tile(0), tile(1))
    store._payloads.clear()
    for suffix in (".nc", ".zarr"):
        with pytest.raises(CorruptPayloadError):
            write(dataset, tmp_path / f"x{suffix}")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_library_is_named_with_the_remedy(store, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(RequestError, match="pip install h5netcdf h5py"):
        write(xr.Dataset(), tmp_path / "x.nc")


def test_another_suffix_or_a_forbidden_place_is_refused(tmp_path):
    with pytest.raises(RequestError, match=r"ends in \.nc or \.zarr"):
        write(xr.Dataset(), tmp_path / "x.csv")
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="file"):
        write(xr.Dataset(), tmp_path / "file" / "x.nc")
