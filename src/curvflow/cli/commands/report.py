"""`curvflow report`: one HTML page about a study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from curvflow.cli.arguments import (
    MaxNodes,
    Overrides,
    Profile,
    RunNumber,
    StoreUrl,
    StudyPath,
    echo,
)
from curvflow.errors import RequestError

if TYPE_CHECKING:
    from curvflow.flows.report.request import ReportRequest

OUTPUT = typer.Option(
    "-o",
    "--output",
    metavar="FILE.html",
    help="the page [default: results/<study>/report.html next to STUDY]",
)
SERVE = typer.Option(
    "--serve", help="serve the page on loopback, updated during a run; Ctrl-C ends"
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
    max_nodes: MaxNodes = None,
) -> None:
    """Write one self-contained HTML page: results, checks, provenance."""
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.flows.report.request import ReportRequest

    request = ReportRequest(study, store, profile, overrides or (), run, max_nodes)
    if served:
        _serve(request, output, port)
        return
    if port is not None:
        raise RequestError("report: expected --serve with --port, got none. Add it.")
    from curvflow.flows.report.render import write_report

    file, unreadable = write_report(request, output)
    for line in unreadable:
        echo(line, err=True)
    echo(str(file))
    if unreadable:
        raise typer.Exit(1)


def _serve(request: ReportRequest, output: Path | None, port: int | None) -> None:
    if request.run is not None:
        raise RequestError(
            f"report: --serve cannot be combined with --run {request.run}, which does "
            "not change. Leave one of them out."
        )
    from curvflow.flows.report.serve import serve_report

    serve_report(
        request,
        output,
        port=port or 0,
        on_start=lambda address, file: echo(f"{address} shows {file}; Ctrl-C ends"),
        on_trouble=lambda line: echo(line, err=True),
    )
    echo("curvflow: no longer served; the file is kept", err=True)
