"""Tables and figures as files next to the study, for people to open."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from curvflow.errors import CorruptPayloadError, RemovedPayloadError, StoreError
from curvflow.flows.results.convergence_counts import VERDICT, inherited
from curvflow.flows.results.node_results import View
from curvflow.schemas.keys import sha256
from curvflow.schemas.kind import Kind, Variable
from curvflow.schemas.nodes import Array, Table
from curvflow.schemas.records.receipts import Receipt
from curvflow.schemas.records.records import records, time_of
from curvflow.schemas.words import printable
from curvflow.stores.base import Store

# Which result each file shows, so that a run without news reads and writes nothing.
MANIFEST = ".written.json"
# Bytes of a file's name before its suffix; most file systems take 255 in all.
NAME_BYTES = 200


def write_outputs(views: Mapping[str, View], store: Store, folder: Path) -> list[Path]:
    """Write changed tables as CSV and figures as their files; return the present files.

    Raises:
        CorruptPayloadError: a table or figure cannot be read; the others are written.
        RemovedPayloadError: the same, since collection has removed it.
        StoreError: a file cannot be written.
    """
    manifest = folder / MANIFEST
    known = _read_manifest(manifest)
    shown: dict[str, str] = {}
    unreadable: list[StoreError] = []
    for name, digest, content in _files(views, store):
        try:
            if known.get(name) != digest or not (folder / name).exists():
                replace_file(folder / name, content())
            shown[name] = digest
        except (CorruptPayloadError, RemovedPayloadError) as error:
            unreadable.append(error)
    for name in known.keys() - shown.keys():
        # It showed results that the study no longer has.
        with _as_store_error(folder / name):
            (folder / name).unlink(missing_ok=True)
    if shown != known:
        replace_file(manifest, json.dumps(shown, indent=1).encode())
    if unreadable:
        raise unreadable[0]
    return [folder / name for name in shown]


def _read_manifest(path: Path) -> dict[str, str]:
    """Return the files written before; none if their manifest cannot be read."""
    try:
        known = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    if not isinstance(known, dict):
        return {}
    # Files in it are removed one day, so none may lie outside its folder.
    return {
        name: digest
        for name, digest in known.items()
        if isinstance(digest, str) and Path(name).name == name and name.strip(".")
    }


def _files(
    views: Mapping[str, View], store: Store
) -> Iterator[tuple[str, str, Callable[[], bytes]]]:
    for view in views.values():
        if issubclass(view.kind.returns, Table) and any(view.receipts):
            yield f"{view.stage}.csv", _digest(view), partial(_table_bytes, view, store)
        names = _node_names(view)
        for variable in view.kind.outputs:
            if variable.file is None:
                continue
            for name, receipt in zip(names, view.receipts, strict=True):
                if receipt and variable.name in receipt.parts:
                    content = partial(_file_bytes, store, receipt, variable.name)
                    digest = receipt.parts[variable.name]
                    yield f"{name}{variable.file}", digest, content


def _digest(view: View) -> str:
    # Labels stand in the file as well, and enter no digest of a result.
    results = [r.digest if r else view.status(n) for n, r in enumerate(view.receipts)]
    return sha256([list(view.dims), [list(p) for p in view.points], results])


def _node_names(view: View) -> list[str]:
    names = [_node_name(view, number) for number in range(len(view.points))]
    count = Counter(name.casefold() for name in names)
    return [
        name
        if count[name.casefold()] == 1 and len(name.encode()) <= NAME_BYTES
        else f"{_cut(name)}_{sha256(list(point))[:8]}"
        for name, point in zip(names, view.points, strict=True)
    ]


def _cut(name: str) -> str:
    return name.encode()[:NAME_BYTES].decode(errors="ignore")


def _node_name(view: View, number: int) -> str:
    labels = [f"{dim}-{label}" for dim, label in view.coords(number).items()]
    return re.sub(r"[^\w.+-]", "_", "_".join([view.stage, *labels]))


def _file_bytes(store: Store, receipt: Receipt, name: str) -> bytes:
    return bytes(store.fetch(receipt, [name])[name])


def _table_bytes(view: View, store: Store) -> bytes:
    return as_csv(view_records(view, store)).encode()


def view_records(
    view: View,
    store: Store,
    variables: Sequence[str] | None = None,
    times: Sequence[Variable] = (),
) -> list[dict[str, Any]]:
    """Return a stage's results as flat records, one per node and element.

    A diverged node gives its reason, also if it stands on chains that all failed; one
    whose arrays are removed has no values. See `schemas.records`.

    Raises:
        CorruptPayloadError: a result cannot be read.
        RemovedPayloadError: collection has removed a result meanwhile.
    """
    wanted = [variable.name for variable in view.kind.chosen(variables)]
    outputs = (*view.kind.outputs, *times)
    statuses = [view.status(n) for n in range(len(view.receipts))]
    readable = [
        receipt if status != "removed" else None
        for receipt, status in zip(view.receipts, statuses, strict=True)
    ]
    stored = _arrays(store, readable, wanted)
    rows = []
    for n, receipt in enumerate(view.receipts):
        arrays = {**stored.get(n, {}), **_times(readable[n], times)}
        node = view.coords(n), statuses[n], arrays
        node_rows = records([node], outputs, variables=variables)
        more = _diverged(view.kind, receipt, wanted) if receipt else {}
        rows += [row | more for row in node_rows]
    return rows


def _diverged(kind: Kind, receipt: Receipt, wanted: Sequence[str]) -> dict[str, str]:
    """Return why a node diverged, and the verdict that it passes on."""
    reason = {"reason": receipt.reason} if receipt.reason else {}
    word = inherited(kind, receipt) if VERDICT in wanted else ""
    return {VERDICT: word, **reason} if word else reason


def _arrays(
    store: Store, receipts: Sequence[Receipt | None], names: Sequence[str]
) -> dict[int, Mapping[str, Array]]:
    """Read what results have of some variables, by their numbers."""
    alike: dict[tuple[str, ...], dict[int, Receipt]] = defaultdict(dict)
    for number, receipt in enumerate(receipts):
        if receipt is not None and receipt.payload is not None:
            # A sliced variable has one part per slice; its bare name reads them all.
            held = {part.partition("@")[0] for part in receipt.parts}
            wanted = tuple(name for name in names if name in held)
            alike[wanted][number] = receipt
    arrays: dict[int, Mapping[str, Array]] = {}
    for wanted, several in alike.items():
        rows = store.fetch_many([*several.values()], wanted)
        for number, row in zip(several, rows, strict=True):
            if isinstance(row, StoreError):
                raise row
            arrays[number] = row
    return arrays


def _times(
    receipt: Receipt | None, variables: Sequence[Variable]
) -> Mapping[str, Array]:
    if receipt is None:
        return {}
    return {
        variable.name: np.array(time_of(receipt, variable)) for variable in variables
    }


# With one of these a spreadsheet takes a text for a formula, and computes it.
FORMULAS = ("=", "+", "-", "@")


def as_csv(rows: Sequence[Mapping[str, Any]], *, spreadsheet: bool = False) -> str:
    """Write records as CSV; the columns are all fields, in order of appearance.

    Text is escaped, see `printable`; for a `spreadsheet` it has an apostrophe in front
    where it would be taken for a formula.
    """

    def cell(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        text = printable(value)
        return f"'{text}" if spreadsheet and text.startswith(FORMULAS) else text

    text, columns = io.StringIO(), columns_of(rows)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(cell, columns))
    for row in rows:
        writer.writerow([cell(row.get(field, "")) for field in columns])
    return text.getvalue()


def columns_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return all fields of records, in order of first appearance."""
    return list(dict.fromkeys(field for row in rows for field in row))


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file at once, in a folder made for it; StoreError if it cannot be."""
    partial_path = path.with_name(f".{path.name}.{os.getpid()}")
    with _as_store_error(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial_path.write_bytes(content)
            partial_path.replace(path)
        # No part of a file stays behind, of an interruption neither.
        except BaseException:
            partial_path.unlink(missing_ok=True)
            raise


@contextmanager
def _as_store_error(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{path}: expected a file that can be written, got "
            f"{error.strerror or error}. Check the folder, the disk and your rights."
        ) from error
