"""Results as xarray sees them: labelled, lazily read, and written for other tools."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import xarray as xr
from xarray.core.indexing import LazilyIndexedArray

from curvflow.errors import RequestError
from curvflow.schemas.nodes import Array, Label
from curvflow.schemas.receipts import Receipt
from curvflow.schemas.variables import ELLIPSIS, Variable
from curvflow.stores.base import Layout, Store
from curvflow.stores.files import Disk, explained
from curvflow.stores.lazy import Cell, NodesArray

Dataset = xr.Dataset
DataTree = xr.DataTree

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
) -> Dataset:
    """Lay one stage's results out over its axes; arrays are read when looked at.

    A variable that a node lacks is NaN there, or empty text; so are the ends of arrays
    that are shorter than others, and integers and booleans become floats where that
    happens. A variable named like its only dimension becomes that dimension's
    coordinate if all nodes agree on it. A name that an axis or `status` bears already
    gets the prefix `node_`.

    Args:
        store: holds the arrays.
        dims: the stage's axes.
        coords: labels along each axis.
        cells: position along each axis to receipt; None where there is no result.
        statuses: position to status; `missing` where none is given.
        outputs: declared variables of the kind.
        attrs: of the dataset.

    Returns:
        The declared variables and `status`, with units and descriptions.

    Raises:
        CorruptPayloadError: a payload is missing or its metadata are torn; looking at
            a variable raises the same for its content.
    """
    shape = tuple(len(coords[dim]) for dim in dims)
    found = {cell: one for cell, one in cells.items() if one and one.payload}
    layouts = _layouts(store, found)
    fields = [_field(store, dims, found, layouts, variable) for variable in outputs]
    sizes = _sizes(fields)
    shared = {f.name: f.as_coordinate() for f in fields if f.is_shared(sizes)}
    arrays = {
        f.name: f.over_axes(dims, shape, sizes) for f in fields if f.name not in shared
    }
    status = np.full(shape, "missing", dtype=object)
    for cell, text in statuses.items():
        status[cell] = text
    return xr.Dataset(
        arrays | {"status": (dims, status, {"description": "what became of the node"})},
        coords={dim: (dim, _labels(coords[dim])) for dim in dims} | shared,
        attrs=dict(attrs),
    )


@dataclass(frozen=True)
class _Field:
    """One variable, and those nodes that have it.

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
        """Return the shapes within a node, all of as many dimensions."""
        num_dims = len(self.dims)
        return {one.shape + (1,) * (num_dims - len(one.shape)) for one in self.layouts}

    def is_shared(self, sizes: Mapping[str, int]) -> bool:
        """Return whether this is a dimension's coordinate, the same for all nodes."""
        name = self.variable.name
        digests = {one.parts.get(name) for one in self.receipts.values()}
        is_coordinate = self.variable.dims == (name,) == self.dims
        return is_coordinate and len(digests) == 1 and self.shapes() == {(sizes[name],)}

    def over_axes(
        self, axes: tuple[str, ...], shape: tuple[int, ...], sizes: Mapping[str, int]
    ) -> xr.Variable:
        """Return the variable over axes and its own dimensions, not yet read."""
        inner = tuple(sizes[dim] for dim in self.dims)
        is_whole = len(self.receipts) == np.prod(shape) and self.shapes() == {inner}
        array = NodesArray(
            self._read, axes=shape, inner=inner, dtype=self._dtype(is_whole=is_whole)
        )
        return xr.Variable(axes + self.dims, LazilyIndexedArray(array), self._attrs())

    def as_coordinate(self) -> xr.Variable:
        """Return the array that all nodes share."""
        array = self._array(next(iter(self.receipts.values())))
        return xr.Variable(self.dims, _plain(array), self._attrs())

    def _read(self, cell: Cell) -> Array | None:
        receipt = self.receipts.get(cell)
        return None if receipt is None else self._array(receipt)

    def _array(self, receipt: Receipt) -> Array:
        return self.store.fetch(receipt, [self.variable.name])[self.variable.name]

    def _dtype(self, *, is_whole: bool) -> np.dtype[Any]:
        declared = object if self.variable.dtype == "str" else self.variable.dtype
        types = [one.dtype for one in self.layouts] or [np.dtype(declared)]
        found = np.result_type(*types)
        return np.dtype(float) if found.kind in "biu" and not is_whole else found

    def _attrs(self) -> dict[str, str]:
        return {
            "units": self.variable.units,
            "description": self.variable.description,
        }


def _layouts(
    store: Store, cells: Mapping[Cell, Receipt]
) -> dict[str, Mapping[str, Layout]]:
    payloads = dict.fromkeys(str(one.payload) for one in cells.values())
    return {payload: store.layout(payload) for payload in payloads}


def _field(
    store: Store,
    axes: tuple[str, ...],
    cells: Mapping[Cell, Receipt],
    layouts: Mapping[str, Mapping[str, Layout]],
    variable: Variable,
) -> _Field:
    name = variable.name
    receipts = {cell: one for cell, one in cells.items() if _has(one, name)}
    payloads = dict.fromkeys(str(one.payload) for one in receipts.values())
    mine = [layouts[payload][name] for payload in payloads]
    taken = {*axes, "status"}
    dims = _node_dims(variable, max((len(one.shape) for one in mine), default=0))
    return _Field(
        store,
        variable,
        _free(name, taken),
        tuple(_free(dim, taken) for dim in dims),
        receipts,
        mine,
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


def _labels(labels: Sequence[Label]) -> Array:
    types = {type(label) for label in labels}
    alike = types in ({bool}, {int}, {float}, {int, float})
    return np.array(labels, dtype=None if alike else object)


def _plain(array: Array) -> Array:
    # Text of fixed width has no stable form in zarr; objects are written as text.
    return array.astype(object) if array.dtype.kind == "U" else array


def tree(datasets: Mapping[str, Dataset]) -> DataTree:
    """Return datasets as one tree.

    Args:
        datasets: by name of the stage.

    Returns:
        A node per stage under the root.
    """
    return xr.DataTree.from_dict(dict(datasets))


def write(dataset: Dataset, path: Path) -> None:
    """Write a dataset as NetCDF or zarr, replacing what is there when it is complete.

    Args:
        dataset: as `labelled` returns it.
        path: ends in `.nc` or `.zarr`.

    Raises:
        RequestError: another suffix, or a library is not installed.
        StoreError: the file cannot be written.
        CorruptPayloadError: a variable cannot be read.
    """
    if path.suffix not in (".nc", ".zarr"):
        raise RequestError(f"{path}: expected a name that ends in .nc or .zarr")
    for library in NETCDF if path.suffix == ".nc" else ():
        if find_spec(library) is None:
            raise RequestError(
                f"export to .nc: expected {library} installed, got none. "
                "Install it with: pip install 'curvflow[export]'."
            )
    disk, written = Disk(), path.with_name(f".{path.name}.{uuid4().hex}")
    old = written.with_suffix(".old")
    with explained(path):
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
    else:
        dataset.to_zarr(path, mode="w", zarr_format=3, consolidated=False)


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
