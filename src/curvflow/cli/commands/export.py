"""`curvflow export`: one stage's results as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from curvflow.cli.arguments import (
    MaxNodes,
    Overrides,
    Profile,
    RunNumber,
    StoreUrl,
    StudyPath,
    Variables,
    echo,
    open_study_results,
    study_options,
)
from curvflow.cli.text.tables import echo_missing

SPREADSHEET = typer.Option(
    "--spreadsheet",
    help="of CSV: put ' before text that a spreadsheet would compute as a formula",
)


def command(
    study: StudyPath,
    stage: Annotated[str, typer.Argument(help="name of the stage")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="FILE.nc, .zarr, .csv or .parquet")
    ],
    *,
    variables: Variables = None,
    run: RunNumber = None,
    store: StoreUrl = None,
    profile: Profile = None,
    overrides: Overrides = None,
    max_nodes: MaxNodes = None,
    spreadsheet: Annotated[bool, SPREADSHEET] = False,
) -> None:
    """Write one stage's results as netCDF, zarr, CSV or Parquet."""
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.flows.results.exchange import export

    chosen = study_options(store, profile, overrides, max_nodes)
    results = open_study_results(study, run, chosen)
    left_out = export(results, stage, output, variables, spreadsheet=spreadsheet)
    echo_missing(results, stage)
    if left_out:
        names = ", ".join(left_out)
        echo(f"left out: {names}; name them with --variable", err=True)
    echo(str(output))
