"""`curvflow run`: compute what a study asks for and the store does not hold."""

from __future__ import annotations

import signal
from typing import Annotated, Literal

import typer

from curvflow.cli.arguments import (
    AsJson,
    Overrides,
    Profile,
    StoreUrl,
    StudyPath,
    print_json,
)

INTERRUPTED = "curvflow: interrupted; finished tiles are kept, run again to go on"


def command(
    study: StudyPath,
    *,
    store: StoreUrl = None,
    profile: Profile = None,
    overrides: Overrides = None,
    device: Annotated[
        Literal["auto", "cpu", "cuda"], typer.Option(help="where to compute")
    ] = "auto",
    threads: Annotated[
        int,
        typer.Option(min=1, help="CPU threads of one tile; 1 unless nets are large"),
    ] = 1,
    revive: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STAGE",
            help="compute again what `gc` removed of this stage; repeatable",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compute what the study asks for and the store does not hold."""
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.cli.progress import watch
    from curvflow.cli.summary import run_summary
    from curvflow.flows.api import run
    from curvflow.flows.run import run_json
    from curvflow.schemas.options import RunOptions

    try:
        results = run(
            study,
            store=store,
            profile=profile,
            overrides=overrides or (),
            options=RunOptions(device=device, num_threads=threads),
            revive=revive or (),
            observer=watch(),
        )
    except KeyboardInterrupt as stopped:
        # Caught here, since typer would end the command without a word.
        typer.echo(INTERRUPTED, err=True)
        raise typer.Exit(128 + getattr(stopped, "signal", signal.SIGINT)) from None
    assert results.run is not None
    if as_json:
        print_json(run_json(results.run))
    else:
        totals = {stage: len(results.view(stage).points) for stage in results}
        typer.echo(run_summary(results.run, results.files, totals))
    if results.run.failures:
        raise typer.Exit(1)
