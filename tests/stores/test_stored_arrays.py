"""Arrays in zarr folders and netCDF files are those that were saved, in any form."""

import gc
import os
import pickle
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import xarray
import zarr

import curvflow
from curvflow.errors import InputError, StudyError
from curvflow.flows.graph.source_files import SourceFiles
from curvflow.schemas.disk_arrays import DiskArray
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.data.array import ArrayParams
from curvflow.schemas.study.study import load_study
from curvflow.stores import stored_arrays
from curvflow.stores.local import LocalStore
from curvflow.stores.stored_arrays import UNWRITTEN, is_zarr
from tests.tasks.toys import compute, member

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(37, 3, 2)).astype(np.float32)
Y = (X.sum((1, 2)) > 0).astype(int)
BOTH = {"inputs": X, "targets": Y}


def as_group(path, **how):
    group = zarr.open_group(path, mode="w", zarr_format=how.pop("zarr_format", 3))
    for name, array in BOTH.items():
        own = {k: v[: array.ndim] for k, v in how.items()}
        group.create_array(name, data=array, **own)


def as_netcdf(path, engine="h5netcdf", **chunks):
    data = xarray.Dataset(
        {"inputs": (("sample", "a", "b"), X), "targets": ("sample", Y.astype("i4"))}
    )
    encoding = {"inputs": {"chunksizes": chunks["chunks"]}} if chunks else {}
    data.to_netcdf(path, engine=engine, encoding=encoding)


FORMS = {
    "zarr 3": ("x.zarr", lambda path: as_group(path, chunks=(5, 2, 2))),
    "zarr 2": ("x.zarr", lambda path: as_group(path, zarr_format=2, chunks=(4, 3, 1))),
    "sharded": (
        "x.zarr",
        lambda path: as_group(path, chunks=(2, 3, 2), shards=(8, 3, 2)),
    ),
    "xarray's zarr": (
        "x.zarr",
        lambda path: xarray.Dataset(
            {"inputs": (("n", "a", "b"), X), "targets": ("n", Y)}
        ).to_zarr(path, consolidated=False, encoding={"inputs": {"chunks": (6, 3, 2)}}),
    ),
    "netCDF 4": ("x.nc", as_netcdf),
    "netCDF 4 in chunks": ("x.nc", lambda path: as_netcdf(path, chunks=(7, 3, 2))),
    "netCDF 3": ("x.nc", lambda path: as_netcdf(path, engine="scipy")),
}


def cut(path, engine):
    as_netcdf(path, engine)
    path.write_bytes(path.read_bytes()[:-100])


def study(folder, name, above, **more):
    data = {"use": "data.array", "path": str(folder / name), "rows_above": above}
    fit = {
        "use": "train",
        "data": "own",
        "model": {"kind": "mlp", "hidden": [3]},
        "rule": {"rule": "sgd", "lr": 0.1},
        "epochs": 2,
        "batch_size": 7,
    }
    stages = {"own": {**data, "test_fraction": 0.2, **more}, "fit": fit}
    return curvflow.Study(study="stored", stages=stages)


def digests(folder, name, above, store, **more):
    curvflow.run(study(folder, name, above, **more), store=str(store), workers=1)
    opened = LocalStore(store)
    return {r.stage: r.digest for r in opened.index().receipts.values()}


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Digests of a run on the same arrays in a `.npz` file."""
    folder = tmp_path_factory.mktemp("npz")
    np.savez(folder / "x.npz", **BOTH)
    return digests(folder, "x.npz", 1 << 30, folder / "store")


@pytest.mark.parametrize("above", [0, 1 << 30])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_bits_of_an_archive(tmp_path, expected, form, above):
    name, write = FORMS[form]
    write(tmp_path / name)
    with mock.patch.object(stored_arrays, "BLOCK_BYTES", 300):
        assert digests(tmp_path, name, above, tmp_path / "store") == expected


def test_a_folder_may_be_one_array(tmp_path, expected):
    zarr.save(tmp_path / "x.zarr", X)
    zarr.save(tmp_path / "y.zarr", Y)
    more = {"targets_path": str(tmp_path / "y.zarr")}
    assert digests(tmp_path, "x.zarr", 0, tmp_path / "store", **more) == expected


@pytest.mark.parametrize("seed", range(30))
def test_rows_in_any_order_of_any_chunks(tmp_path, seed):
    draw = np.random.default_rng(seed)
    shape = tuple(draw.integers(1, (60, 5, 4)))
    array = draw.integers(-9, 9, shape).astype(draw.choice(["i2", "f4", "f8", ">f8"]))
    chunks = tuple(int(draw.integers(1, size + 1)) for size in shape)
    zarr.create_array(tmp_path / "x.zarr", data=array, chunks=chunks)
    with mock.patch.object(stored_arrays, "BLOCK_BYTES", int(draw.integers(1, 2000))):
        limit = max(0, array.nbytes - 1)
        read = stored_arrays.stored_arrays("path", tmp_path / "x.zarr", limit)["array"]
        assert isinstance(read, DiskArray)
        assert np.array_equal(np.asarray(read), array)
        rows = draw.integers(0, shape[0], draw.integers(0, 90))
        assert np.array_equal(read[rows], array[rows])
        again = pickle.loads(pickle.dumps(read))
        assert np.array_equal(again.of(rows)[:], array[rows])


def test_what_packs_numbers_is_unpacked_or_refused(tmp_path):
    steps = {"dtype": "i2", "scale_factor": 0.5, "add_offset": 3.0, "_FillValue": -99}
    packed = {"inputs": steps}
    values = xarray.Dataset({"inputs": (("n", "m"), np.arange(12.0).reshape(6, 2))})
    values.to_netcdf(tmp_path / "x.nc", engine="h5netcdf", encoding=packed)
    read = stored_arrays.stored_arrays("path", tmp_path / "x.nc", 0)["inputs"]
    assert np.array_equal(np.asarray(read), values["inputs"])
    values.to_zarr(tmp_path / "x.zarr", encoding=packed, consolidated=False)
    with pytest.raises(InputError, match="'inputs' with scale_factor and add_offset"):
        stored_arrays.stored_arrays("path", tmp_path / "x.zarr", None)


@pytest.mark.parametrize("seed", range(20))
def test_numbers_that_xarray_has_for_missing_ones_are_none_of_the_data(tmp_path, seed):
    draw = np.random.default_rng(seed)
    dtype = np.dtype(draw.choice(["i1", "i2", "i8", "u2", "f4", "f8"]))
    marker = dtype.type(draw.integers(0, 9))
    written, name = {}, str(draw.choice(["_FillValue", "missing_value"]))
    if name == "_FillValue" and draw.random() < 0.8:
        written = {"encoding": {"x": {name: marker}}}
    values = draw.integers(0, 9, draw.integers(1, 9, 2)).astype(dtype)
    attrs = {} if written else {"missing_value": marker.item()}
    xarray.Dataset({"x": (("n", "m"), values, attrs)}).to_zarr(
        tmp_path / "x.zarr",
        zarr_format=int(draw.choice([2, 3])),
        consolidated=False,
        **written,
    )
    expected = np.where(values == marker, np.nan, values.astype(float))
    read = stored_arrays.stored_arrays("path", tmp_path / "x.zarr", None)["x"]
    assert np.array_equal(read, expected, equal_nan=True)
    assert (read.dtype == dtype) == (dtype.kind == "f" or marker not in values)
    lazy = stored_arrays.stored_arrays("path", tmp_path / "x.zarr", 0)["x"]
    if dtype.kind != "f" and marker in values:
        with pytest.raises(InputError, match="everywhere in 'x' of"):
            lazy[:]
    else:
        assert np.array_equal(lazy[:], expected, equal_nan=True)


@pytest.mark.parametrize(
    "marker", [-1, 300, -9999, 44.5, float("nan"), "NaN", "-999", "none", None, "="]
)
def test_a_marker_that_an_array_cannot_hold_marks_nothing(tmp_path, marker):
    array = zarr.open_group(tmp_path / "x.zarr", mode="w").create_array(
        "x", data=np.array([0, 44, 255], np.uint8)
    )
    array.attrs["missing_value"] = marker
    read = stored_arrays.stored_arrays("path", tmp_path / "x.zarr", None)["x"]
    assert (read.tolist(), read.dtype) == ([0, 44, 255], np.uint8)


@pytest.mark.parametrize("form", ["zarr 3", "netCDF 4"])
def test_rows_of_files_that_change_are_refused(tmp_path, form):
    name, write = FORMS[form]
    write(tmp_path / name)
    read = stored_arrays.stored_arrays("path", tmp_path / name, 0)["inputs"]
    at = tmp_path / name
    changed = at / "inputs" / "c" / "1" / "0" / "0" if at.is_dir() else at
    os.utime(changed, ns=(1, 1))
    with pytest.raises(InputError, match=r"stay as they were, got one that has chang"):
        read[:]


def test_each_byte_of_a_folder_counts_its_hidden_files_too(tmp_path):
    path, seen = tmp_path / "x.zarr", set()
    FORMS["zarr 2"][1](path)

    stage = "{use: data.array, path: x.zarr}"
    text = f"study: one\naxes: {{}}\nstages:\n  own: {stage}\n"
    loaded = load_study(text, file="one")
    params = ArrayParams(path="x.zarr")

    def note():
        found = SourceFiles(tmp_path).digests(loaded.stages["own"], params)
        seen.add(found["path"])

    note()
    note()
    assert len(seen) == 1
    (path / "inputs" / ".zattrs").write_text('{"of": "weights"}')
    note()
    chunk = path / "inputs" / "3.0.1"
    chunk.write_bytes(chunk.read_bytes()[:-1] + b" ")
    note()
    (path / "targets" / "0").rename(path / "targets" / "10")
    note()
    assert len(seen) == 4


def test_a_chunk_too_large_to_be_unpacked_is_refused_while_planning(tmp_path):
    FORMS["zarr 3"][1](tmp_path / "x.zarr")
    small = mock.patch.object(stored_arrays, "BLOCK_BYTES", 10)
    message = r"path: expected chunks of no more than rows_above, 50 bytes, got 5 rows"
    with small, pytest.raises(StudyError, match=message):
        curvflow.run(study(tmp_path, "x.zarr", 50), store=str(tmp_path / "store"))


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("x.nc", lambda path: path.write_bytes(b"no"), r"a netCDF file, .* got x\.nc"),
        (
            "x.nc",
            lambda path: cut(path, "h5netcdf"),
            r"x\.nc to be readable, got OSError",
        ),
        ("x.zarr", lambda path: path.mkdir(), r"a readable file, got .*x\.zarr"),
        (
            "x.zarr",
            lambda path: (path.mkdir(), (path / "zarr.json").write_text("{")),
            r"the arrays of x\.zarr to be readable, got JSONDecodeError",
        ),
    ],
)
def test_what_holds_no_arrays_is_refused_while_planning(tmp_path, name, write, message):
    write(tmp_path / name)
    with pytest.raises(StudyError, match=message):
        curvflow.run(study(tmp_path, name, 0), store=str(tmp_path / "store"))


def test_what_version_4_needs_is_said_where_it_is_not_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(stored_arrays, "find_spec", lambda name: None)
    (tmp_path / "x.nc").write_bytes(b"no")
    with pytest.raises(InputError, match=r"needs h5netcdf, got x\.nc. Run pip install"):
        stored_arrays.stored_arrays("path", tmp_path / "x.nc", None)


# Packages leave a file that they cannot read to the collector of garbage.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("has_h5netcdf", [True, False])
def test_a_netcdf_file_that_is_cut_short_is_said_to_be(
    tmp_path, monkeypatch, has_h5netcdf
):
    monkeypatch.setattr(stored_arrays, "find_spec", lambda name: has_h5netcdf or None)
    says = {"scipy": r"which is none, or is cut short", "h5netcdf": "got OSError"}
    for engine, message in says.items():
        cut(tmp_path / "x.nc", engine)
        with pytest.raises(InputError, match=message):
            stored_arrays.stored_arrays("path", tmp_path / "x.nc", None)
    gc.collect()


def test_a_folder_without_metadata_is_none_of_zarr(tmp_path):
    assert not is_zarr(tmp_path)
    assert not is_zarr(tmp_path / "none")


@pytest.mark.parametrize("engine", ["h5netcdf", "scipy"])
@pytest.mark.parametrize(
    ("units", "calendar"),
    [
        ("days since 2000-01-01", "noleap"),
        ("days since 2000-01-01", "360_day"),
        ("hours since 1850-01-01", "julian"),
        ("hours since 0000-01-01", "standard"),
        ("days since 2000-01-01", "standard"),
    ],
)
def test_times_of_any_calendar_are_in_order(tmp_path, engine, units, calendar):
    places = np.random.default_rng(1).permutation(37)
    told = {"units": units, "calendar": calendar}
    days = {"day": ("n", places.astype("i4"), told), "x": (("n", "a", "b"), X)}
    xarray.Dataset(days).to_netcdf(tmp_path / "x.nc", engine=engine)
    read = stored_arrays.stored_arrays("path", tmp_path / "x.nc", 0)
    assert np.array_equal(np.argsort(read["day"]), np.argsort(places))
    are_dates = (units, calendar) == ("days since 2000-01-01", "standard")
    assert (read["day"].dtype.kind == "M") == are_dates
    np.testing.assert_array_equal(np.asarray(read["x"]), X)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("above", [1 << 20, 0])
def test_what_was_never_written_to_netcdf_is_none_of_the_data(tmp_path, dtype, above):
    values = X.astype(dtype)
    values[3, 1] = UNWRITTEN
    data = xarray.Dataset({"x": (("n", "a", "b"), values)})
    for fill in (None, -1.0):
        path = tmp_path / f"{fill}.nc"
        data.to_netcdf(path, engine="h5netcdf", encoding={"x": {"_FillValue": fill}})
        read = stored_arrays.stored_arrays("path", path, above)["x"]
        assert read.dtype == dtype
        expected = (
            values if fill else np.where(values == values[3, 1, 0], np.nan, values)
        )
        np.testing.assert_array_equal(np.asarray(read), expected)


def random_settings(draw, form):
    """Return arrays, and parameters that take several of them in some way."""
    count = 23
    arrays = {
        "ids": draw.integers(0, 9, (count, 4)),
        "x": draw.normal(size=(count, 2, 3)).astype("f4"),
        "mask": draw.random((count, 4)) < 0.5,
        "one": draw.integers(0, 2, count),
        "tokens": draw.integers(0, 3, (count, 4)).astype(draw.choice(["i4", "f8"])),
        "values": draw.normal(size=(count, 2)).astype("f4"),
    }
    if form == "x.nc":
        arrays["mask"] = arrays["mask"].astype("u1")
    names = [str(n) for n in draw.permutation(["ids", "x", "mask", "one"])]
    few = names[: draw.integers(2, 5)]
    params = {
        "inputs": few if draw.random() < 0.5 else {f"to_{name}": name for name in few},
        "targets": str(draw.choice(["one", "tokens", "values"])),
        "test_fraction": float(draw.choice([0.0, 0.3])),
    }
    if params["targets"] == "tokens":
        params["targets_as"] = str(draw.choice(["labels", "values"]))
    return arrays, params


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("form", ["x.zarr", "x.nc"])
def test_several_inputs_and_wide_targets_may_be_on_disk(tmp_path, seed, form):
    arrays, params = random_settings(np.random.default_rng(seed), form)
    dims = {n: [n, *(f"{n}{d}" for d in range(1, a.ndim))] for n, a in arrays.items()}
    data = xarray.Dataset({n: (dims[n], a) for n, a in arrays.items()})
    if form == "x.nc":
        data.to_netcdf(tmp_path / form, engine="h5netcdf")
    else:
        data.to_zarr(tmp_path / form, consolidated=False)
    made = []
    for above in (1 << 20, 0):
        read = stored_arrays.stored_arrays("path", tmp_path / form, above)
        planned = member("data.array", {"path": form, "rows_above": above, **params})
        planned = replace(planned, files={"path": read})
        find_kind("data.array").check(planned.params, planned.files)
        made.append(compute("data.array", [planned])[0].arrays)
    whole, rows = made
    assert isinstance(rows["inputs"], DiskArray)
    for name, array in whole.items():
        read = np.asarray(rows[name])
        assert read.dtype == array.dtype
        np.testing.assert_array_equal(read, array)


def test_floats_that_look_like_labels_of_tokens_are_asked_about_on_disk(tmp_path):
    ids = np.random.default_rng(0).integers(0, 3, (20, 4))
    data = {"inputs": (("n", "t"), ids), "targets": (("n", "t"), ids.astype(float))}
    xarray.Dataset(data).to_zarr(tmp_path / "x.zarr", consolidated=False)
    with pytest.raises(StudyError, match=r"whole numbers 0\.\.2 as floats"):
        curvflow.run(study(tmp_path, "x.zarr", 0), store=str(tmp_path / "store"))


@pytest.mark.parametrize("form", ["zarr 3", "zarr 2", "netCDF 4 in chunks"])
@pytest.mark.parametrize("above", [1 << 20, 0])
def test_content_that_cannot_be_unpacked_is_refused_in_a_line(tmp_path, form, above):
    name, write = FORMS[form]
    path = tmp_path / name
    write(path)
    if path.is_dir():
        chunks = [p for p in (path / "inputs").rglob("*") if p.name[0].isdigit()]
        for chunk in filter(Path.is_file, chunks):
            chunk.write_bytes(chunk.read_bytes()[:9])
    else:
        packed = {"inputs": {"chunksizes": (7, 3, 2), "zlib": True}}
        data = xarray.Dataset({"inputs": (("n", "a", "b"), X), "targets": ("n", Y)})
        data.to_netcdf(path, engine="h5netcdf", encoding=packed)
        content = bytearray(path.read_bytes())
        for place in range(len(content) // 2, len(content)):
            content[place] = 0
        path.write_bytes(content)
    with pytest.raises((InputError, OSError)) as caught:
        np.asarray(stored_arrays.stored_arrays("path", path, above)["inputs"])
    assert above or isinstance(caught.value, InputError)
    assert "\n" not in str(caught.value)
