"""`curvflow report`: one page that tells of a study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from curvflow.cli.arguments import (
    Overrides,
    Profile,
    RunNumber,
    StoreUrl,
    StudyPath,
)
from curvflow.errors import RequestError

if TYPE_CHECKING:
    from curvflow.flows.report.request import Asked

OUTPUT = typer.Option(
    "-o",
    "--output",
    metavar="FILE.html",
    help="the page [default: results/<study>/report.html beside STUDY]",
)
SERVE = typer.Option(
    "--serve", help="serve the page on loopback, anew while a run goes on; Ctrl-C ends"
)
PORT = typer.Option(
    min=1, max=65535, help="port of --serve [default: one that is free]"
)


def command(
    study: StudyPath,
    *,
    output: Annotated[Path | None, OUTPUT] = None,
    served: Annotated[bool, SERVE] = False,
    port: Annotated[int | None, PORT] = None,
    run: RunNumber = None,
    store: StoreUrl = None,
    profile: Profile = None,
    overrides: Overrides = None,
) -> None:
    """Write one self-contained HTML page: results, checks, provenance."""
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.flows.report.request import Asked

    asked = Asked(study, store, profile, overrides or (), run)
    if served:
        _serve(asked, output, port)
        return
    if port is not None:
        raise RequestError("report: expected --serve with --port, got none. Add it.")
    from curvflow.flows.report.render import write_report

    file, unreadable = write_report(asked, output)
    for line in unreadable:
        typer.echo(line, err=True)
    typer.echo(str(file))
    if unreadable:
        raise typer.Exit(1)


def _serve(asked: Asked, output: Path | None, port: int | None) -> None:
    if asked.run is not None:
        raise RequestError(
            f"report: expected --serve without --run, got --run {asked.run}, which "
            "does not change. Leave one of them out."
        )
    from curvflow.flows.report.serve import serve_report

    serve_report(
        asked,
        output,
        port=port or 0,
        begins=lambda address, file: typer.echo(f"{address} shows {file}; Ctrl-C ends"),
        tell=lambda line: typer.echo(line, err=True),
    )
    typer.echo("curvflow: no longer served; the file is kept", err=True)
