"""Results for other tools, and draws from other tools."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curvflow.errors import RequestError
from curvflow.flows.results.outputs import as_csv, columns_of, replace_file
from curvflow.flows.results.results import Results
from curvflow.stores.labelled.datasets import write

if TYPE_CHECKING:
    from curvflow.stores.labelled.datasets import Dataset


SUFFIXES = (".nc", ".zarr", ".csv", ".parquet")


def export(
    results: Results,
    stage: str,
    path: Path,
    variables: Sequence[str] | None = None,
    *,
    spreadsheet: bool = False,
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
        spreadsheet: of `.csv`, put an apostrophe in front of text that a spreadsheet
            would take for a formula.

    Returns:
        Names of the variables that the file leaves out and that can be requested.

    Raises:
        RequestError: the suffix is unknown, a library for it is missing, or
            `spreadsheet` is requested of another form than `.csv`.
        UnknownNameError: there is no such stage or variable.
        StoreError: the file cannot be written.
        CorruptPayloadError: a result cannot be read.
        RemovedPayloadError: collection has removed a result.
    """
    if path.suffix not in SUFFIXES:
        raise RequestError(
            f"{path}: expected a name that ends in {', '.join(SUFFIXES)}, got "
            f"'{path.suffix}'. Rename it."
        )
    if spreadsheet and path.suffix != ".csv":
        raise RequestError(
            f"{path}: --spreadsheet cannot be combined with {path.suffix}. Leave it "
            "out, or write .csv."
        )
    if path.suffix in (".nc", ".zarr"):
        dataset = results[stage]
        results.check_variables(stage, variables)
        write(dataset[list(variables)] if variables else dataset, path)
        return []
    rows = results.records(stage, variables=variables)
    content = as_csv(rows, spreadsheet=True).encode() if spreadsheet else None
    replace_file(path, content or FLAT[path.suffix](rows))
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
            "Install it with: pip install pyarrow."
        ) from error
    columns = {name: [row.get(name) for row in rows] for name in columns_of(rows)}
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), buffer)
    return buffer.getvalue()


FLAT: dict[str, Callable[[Sequence[Mapping[str, Any]]], bytes]] = {
    ".csv": _csv,
    ".parquet": _parquet,
}


def read_devinterp(path: str | Path) -> Dataset:
    """Read samples that devinterp 2 has stored, and diagnose their chains.

    Args:
        path: the store that `devinterp.slt.sampling.sample` has written.

    Returns:
        Named as of `probe.llc`: `loss_trace` (chain, draw), a draw being a step after
        the burn-in; `init_loss`, `nbeta`, `localization`, `lr`; `llc_mean`, `llc_std`,
        `llc_sem`, by the draws alone, `llc_per_chain`, `r_hat`, `ess_bulk`, `ess_tail`,
        `num_failed` and `failed_at`, a draw. `llc_all_steps` is what devinterp itself
        tells, which takes the burn-in in. `num_left_out` counts tokens that never have
        a loss, such as padding; any other NaN among the tokens' losses fails its chain
        at that draw: `num_nan` (chain,), of all steps, and `num_nan_init` count them.
        Attributes are the sampler's settings.

    Raises:
        RequestError: this is no completed store of devinterp 2, or fewer than 8 steps
            follow the burn-in.

    Examples:
        >>> draws = curvflow.read_devinterp("samples.zarr")  # doctest: +SKIP
        >>> float(draws["llc_mean"])  # doctest: +SKIP
    """
    # Loaded here because the import of the package is to be cheap.
    from curvflow.stores.labelled.foreign_draws import read_samples
    from curvflow.tasks.llc.outcomes import summary_arrays

    samples = read_samples(path)
    settings = samples.attrs
    kept = samples["step_losses"].isel(
        step=slice(int(settings["num_burnin_steps"]), None)
    )
    if kept.sizes["step"] < 8:
        raise RequestError(
            f"{path}: expected 8 steps or more after the burn-in, got "
            f"{kept.sizes['step']}. Sample more."
        )
    init_loss, nbeta = float(samples["init_loss"]), float(settings["n_beta"])
    summary = summary_arrays(kept.values, init_loss, nbeta)
    every = summary_arrays(samples["step_losses"].values, init_loss, nbeta)
    variables: dict[str, Any] = {
        name: (("chain",)[: value.ndim], value) for name, value in summary.items()
    }
    return samples.drop_vars("step_losses").assign(
        loss_trace=(("chain", "draw"), kept.values),
        nbeta=nbeta,
        localization=float(settings.get("localization", 0.0)),
        lr=float(settings.get("lr", "nan")),
        llc_all_steps=float(every["llc_mean"]),
        **variables,
    )
