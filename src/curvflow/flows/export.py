"""Results as files that other tools read."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from curvflow.errors import RequestError
from curvflow.flows.outputs import as_csv, columns_of, replace_file
from curvflow.flows.results import Results
from curvflow.stores.labelled.datasets import write

SUFFIXES = (".nc", ".zarr", ".csv", ".parquet")


def export(
    results: Results, stage: str, path: Path, variables: Sequence[str] | None = None
) -> list[str]:
    """Write one stage's results; the suffix says in which form.

    `.nc` and `.zarr` hold all variables with their dimensions; `.csv` and `.parquet`
    hold the flat records of `curvflow show`.

    Args:
        results: the study's results.
        stage: name of the stage.
        path: the file; replaced if it is there.
        variables: which variables; all for `.nc` and `.zarr`, else those that tables
            hold.

    Returns:
        Names of the variables that the file leaves out and that can be asked for.

    Raises:
        RequestError: the suffix is unknown, or a library for it is missing.
        UnknownNameError: there is no such stage or variable.
        StoreError: the file cannot be written.
        CorruptPayloadError: a result cannot be read.
        RemovedPayloadError: collection has removed a result.
    """
    if path.suffix not in SUFFIXES:
        raise RequestError(
            f"{path}: expected a name that ends in {', '.join(SUFFIXES)}, "
            f"got '{path.suffix}'"
        )
    if path.suffix in (".nc", ".zarr"):
        dataset = results[stage]
        results.check_variables(stage, variables)
        write(dataset[list(variables)] if variables else dataset, path)
        return []
    rows = results.records(stage, variables=variables)
    replace_file(path, FLAT[path.suffix](rows))
    kind = results.view(stage).kind
    held = {variable.name for variable in kind.chosen(variables)}
    untold = [v.name for v in kind.outputs if v.name not in held and not v.file]
    return [] if variables else untold


def _csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    return as_csv(rows).encode()


def _parquet(rows: Sequence[Mapping[str, Any]]) -> bytes:
    try:
        import pyarrow  # an extra, and slow to load
        from pyarrow import parquet
    except ImportError as error:
        raise RequestError(
            "export to .parquet: expected pyarrow installed, got none. "
            "Install it with: pip install 'curvflow[export]'."
        ) from error
    columns = {name: [row.get(name) for row in rows] for name in columns_of(rows)}
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), buffer)
    return buffer.getvalue()


FLAT: dict[str, Callable[[Sequence[Mapping[str, Any]]], bytes]] = {
    ".csv": _csv,
    ".parquet": _parquet,
}
