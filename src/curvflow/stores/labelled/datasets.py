"""Labelled xarray datasets of results, read lazily, and their export."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import xarray as xr
from xarray.core.indexing import LazilyIndexedArray

from curvflow.errors import RequestError, StoreError
from curvflow.schemas.kind import ELLIPSIS, Variable
from curvflow.schemas.nodes import Array, Label
from curvflow.schemas.records.receipts import Receipt
from curvflow.schemas.records.records import time_of
from curvflow.stores.base import Layout, Store
from curvflow.stores.files import Disk, disk_errors
from curvflow.stores.labelled.lazy_arrays import Cell, Labels, NodesArray, align_labels

Dataset = xr.Dataset
DataTree = xr.DataTree
DataFrame = Any  # of pandas, which comes with xarray and has no types here

# What NetCDF needs: h5netcdf no longer brings the h5py that it writes with.
NETCDF = ("h5netcdf", "h5py")


def labelled(
    store: Store,
    *,
    dims: tuple[str, ...],
    coords: Mapping[str, Sequence[Label]],
    cells: Mapping[Cell, Receipt | None],
    statuses: Mapping[Cell, str],
    outputs: Sequence[Variable],
    attrs: Mapping[str, Any],
    times: Sequence[Variable] = (),
) -> Dataset:
    """Return one stage's results, `status` and `times` over its axes, read lazily."""
    # A variable named like its only dimension labels that dimension, and is read at
    # once: the coordinate is the union of all nodes' labels, numbers in order, text as
    # it first appears, and each node's values lie at its own labels. Without labels, or
    # where they differ and repeat within a node, values lie by position, and the labels
    # in a variable with the prefix `node_`.
    # What a node lacks is NaN there, or empty text; integers and booleans become floats
    # where that happens. A name that an axis or `status` bears already gets the prefix
    # `node_` too.
    shape = tuple(len(coords[dim]) for dim in dims)
    receipts = {cell: r for cell, r in cells.items() if r and r.payload}
    layouts = _layouts(store, receipts)
    fields = [_field(store, dims, receipts, layouts, variable) for variable in outputs]
    sizes = _sizes(fields)
    labels = _labels(fields, sizes)
    sizes |= {dim: len(union.values) for dim, union in labels.items()}
    coordinates = {f.name: f.as_coordinate(labels) for f in fields if f.name in labels}
    arrays = {
        f.free_name: f.over_axes(dims, shape, sizes, labels)
        for f in fields
        if f.name not in labels
    }
    status = np.full(shape, "missing", dtype=object)
    for cell, text in statuses.items():
        status[cell] = text
    arrays["status"] = xr.Variable(
        dims, status, {"description": "what became of the node"}
    )
    arrays |= {time.name: _time(time, dims, shape, cells) for time in times}
    return xr.Dataset(
        arrays,
        coords={dim: (dim, _axis(coords[dim])) for dim in dims} | coordinates,
        attrs=dict(attrs),
    )


def _time(
    variable: Variable,
    dims: tuple[str, ...],
    shape: tuple[int, ...],
    cells: Mapping[Cell, Receipt | None],
) -> xr.Variable:
    values = np.full(shape, np.nan)
    for cell, receipt in cells.items():
        if receipt is not None:
            values[cell] = time_of(receipt, variable)
    return xr.Variable(dims, values, _attrs(variable))


def _attrs(variable: Variable) -> dict[str, str]:
    return {"units": variable.units, "description": variable.description}


@dataclass(frozen=True)
class _Field:
    """One variable, and the nodes that have it.

    Attributes:
        store: holds the arrays.
        variable: its declaration.
        name: in the dataset.
        dims: within a node, in the dataset.
        receipts: of the nodes that have it.
        layouts: shape and type in each payload that has it.
    """

    store: Store
    variable: Variable
    name: str
    dims: tuple[str, ...]
    receipts: Mapping[Cell, Receipt]
    layouts: Sequence[Layout]

    def shapes(self) -> set[tuple[int, ...]]:
        """Return the shapes within a node, padded to one number of dimensions."""
        num_dims = len(self.dims)
        return {
            layout.shape + (1,) * (num_dims - len(layout.shape))
            for layout in self.layouts
        }

    @property
    def is_coordinate(self) -> bool:
        """Return whether this variable labels its only dimension."""
        return self.variable.dims == (self.variable.name,) and len(self.dims) == 1

    @property
    def free_name(self) -> str:
        """Name over the axes; a coordinate's plain name is that of its dimension."""
        return f"node_{self.name}" if self.is_coordinate else self.name

    def labels(self) -> Labels | None:
        """Return the union of the nodes' labels; equal ones are read once."""
        cells = {
            cell: receipt.parts.get(self.variable.name, receipt.key)
            for cell, receipt in self.receipts.items()
        }
        first = {digest: cell for cell, digest in reversed(cells.items())}
        arrays = self._read([first[digest] for digest in dict.fromkeys(cells.values())])
        labels = {cells[cell]: np.atleast_1d(array) for cell, array in arrays.items()}
        return align_labels(
            labels or {"": np.zeros(0, self._dtype(is_whole=True))}, cells
        )

    def over_axes(
        self,
        axes: tuple[str, ...],
        shape: tuple[int, ...],
        sizes: Mapping[str, int],
        labels: Mapping[str, Labels],
    ) -> xr.Variable:
        """Return the variable over axes and its own dimensions, not yet read."""
        inner = tuple(sizes[dim] for dim in self.dims)
        is_whole = len(self.receipts) == np.prod(shape) and self.shapes() == {inner}
        array = NodesArray(
            self._read,
            axes=shape,
            inner=inner,
            dtype=self._dtype(is_whole=is_whole),
            places=[labels[dim].places if dim in labels else {} for dim in self.dims],
        )
        return xr.Variable(
            axes + self.dims, LazilyIndexedArray(array), _attrs(self.variable)
        )

    def as_coordinate(self, labels: Mapping[str, Labels]) -> xr.Variable:
        """Return the labels of the dimension."""
        return xr.Variable(self.dims, labels[self.name].values, _attrs(self.variable))

    def _read(self, cells: Sequence[Cell]) -> dict[Cell, Array]:
        held = [cell for cell in cells if cell in self.receipts]
        arrays = self._arrays([self.receipts[cell] for cell in held])
        return dict(zip(held, arrays, strict=True))

    def _arrays(self, receipts: Sequence[Receipt]) -> list[Array]:
        arrays, name = [], self.variable.name
        for row in self.store.fetch_many(receipts, [name]):
            if isinstance(row, StoreError):
                raise row
            arrays.append(row[name])
        return arrays

    def _dtype(self, *, is_whole: bool) -> np.dtype[Any]:
        declared = object if self.variable.dtype == "str" else self.variable.dtype
        types = [layout.dtype for layout in self.layouts] or [np.dtype(declared)]
        dtype = np.result_type(*types)
        return np.dtype(float) if dtype.kind in "biu" and not is_whole else dtype


def _layouts(
    store: Store, cells: Mapping[Cell, Receipt]
) -> dict[str, Mapping[str, Layout]]:
    payloads = dict.fromkeys(str(receipt.payload) for receipt in cells.values())
    return {payload: store.layout(payload) for payload in payloads}


def _field(
    store: Store,
    axes: tuple[str, ...],
    cells: Mapping[Cell, Receipt],
    layouts: Mapping[str, Mapping[str, Layout]],
    variable: Variable,
) -> _Field:
    name = variable.name
    receipts = {cell: receipt for cell, receipt in cells.items() if _has(receipt, name)}
    payloads = dict.fromkeys(str(receipt.payload) for receipt in receipts.values())
    payload_layouts = [layouts[payload][name] for payload in payloads]
    taken = {*axes, "status"}
    dims = _node_dims(variable, max((len(p.shape) for p in payload_layouts), default=0))
    return _Field(
        store,
        variable,
        _free(name, taken),
        tuple(_free(dim, taken) for dim in dims),
        receipts,
        payload_layouts,
    )


def _has(receipt: Receipt, name: str) -> bool:
    return any(part.partition("@")[0] == name for part in receipt.parts)


def _node_dims(variable: Variable, num_dims: int) -> tuple[str, ...]:
    named = tuple(dim for dim in variable.dims if dim != ELLIPSIS)
    rest = range(1, num_dims - len(named) + 1)
    return named + tuple(f"{variable.name}_{number}" for number in rest)


def _free(name: str, taken: set[str]) -> str:
    return f"node_{name}" if name in taken else name


def _sizes(fields: Sequence[_Field]) -> dict[str, int]:
    sizes = {dim: 0 for field in fields for dim in field.dims}
    for field in fields:
        for shape in field.shapes():
            for dim, size in zip(field.dims, shape, strict=True):
                sizes[dim] = max(sizes[dim], size)
    return sizes


def _labels(fields: Sequence[_Field], sizes: Mapping[str, int]) -> dict[str, Labels]:
    unions = {field.name: field.labels() for field in fields if field.is_coordinate}
    # Arrays longer than the labels would leave positions without any.
    return {dim: u for dim, u in unions.items() if u and len(u.values) >= sizes[dim]}


def _axis(labels: Sequence[Label]) -> Array:
    types = {type(label) for label in labels}
    alike = types in ({bool}, {int}, {float}, {int, float})
    return np.array(labels, dtype=None if alike else object)


def tree(datasets: Mapping[str, Dataset]) -> DataTree:
    """Return datasets as one tree, a node per stage under the root."""
    return xr.DataTree.from_dict(dict(datasets))


def frame(columns: Mapping[str, Sequence[Any]], units: Mapping[str, str]) -> DataFrame:
    """Return columns as a DataFrame with `units` in its attributes; None is missing."""
    row = "row of the table"  # no name of a column
    objects = {
        name: xr.Variable(row, np.array([*values, None], dtype=object)[:-1])
        for name, values in columns.items()
    }
    length = max(map(len, columns.values()), default=0)
    whole = xr.Dataset(objects, coords={row: range(length)})
    table = whole.to_dataframe().reset_index(drop=True)
    table = table[[*columns]].infer_objects()
    table.attrs["units"] = dict(units)
    return table


def write(dataset: Dataset, path: Path) -> None:
    """Write a dataset as NetCDF or zarr, replacing the old file once it is complete."""
    if path.suffix not in (".nc", ".zarr"):
        raise RequestError(
            f"{path}: expected a name that ends in .nc or .zarr, got '{path.suffix}'. "
            "Rename it."
        )
    for library in NETCDF if path.suffix == ".nc" else ():
        if find_spec(library) is None:
            raise RequestError(
                f"export to .nc: expected {library} installed, got none. "
                f"Install it with: pip install {' '.join(NETCDF)}."
            )
    disk, written = Disk(), path.with_name(f".{path.name}.{uuid4().hex}")
    old = written.with_suffix(".old")
    with disk_errors(path):
        try:
            disk.make_folder(path.parent)
            _write(_portable(dataset), written, path.suffix)
            if path.is_dir():
                disk.rename(path, old)
            disk.rename(written, path)
        finally:
            disk.remove(written)
            disk.remove(old)


def _write(dataset: Dataset, path: Path, suffix: str) -> None:
    if suffix == ".nc":
        dataset.to_netcdf(path, engine="h5netcdf")
        return
    with warnings.catch_warnings():
        # zarr's readers expect what zarr's writer warns of.
        warnings.filterwarnings("ignore", "Consolidated metadata is currently not part")
        dataset.to_zarr(path, mode="w", zarr_format=3, consolidated=True)


def _portable(dataset: Dataset) -> Dataset:
    # NetCDF holds no dictionaries, and neither format labels of several types.
    attrs = {
        name: value if isinstance(value, str | int | float) else json.dumps(value)
        for name, value in dataset.attrs.items()
    }
    coords = {
        name: (coord.dims, coord.values.astype(str).astype(object), coord.attrs)
        for name, coord in dataset.coords.items()
        if coord.dtype.kind == "O"
    }
    return dataset.assign_attrs(attrs).assign_coords(coords)
