"""`curvflow report`: one page that tells of a study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from curvflow.cli.arguments import (
    Overrides,
    Profile,
    RunNumber,
    StoreUrl,
    StudyPath,
)

OUTPUT = typer.Option(
    "-o",
    "--output",
    metavar="FILE.html",
    help="the page [default: results/<study>/report.html beside STUDY]",
)


def command(
    study: StudyPath,
    *,
    output: Annotated[Path | None, OUTPUT] = None,
    run: RunNumber = None,
    store: StoreUrl = None,
    profile: Profile = None,
    overrides: Overrides = None,
) -> None:
    """Write one self-contained HTML page: results, checks, provenance."""
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.flows.report.asked import Asked
    from curvflow.flows.report.write import write_report

    asked = Asked(study, store, profile, overrides or (), run)
    file, unreadable = write_report(asked, output)
    for line in unreadable:
        typer.echo(line, err=True)
    typer.echo(str(file))
    if unreadable:
        raise typer.Exit(1)
