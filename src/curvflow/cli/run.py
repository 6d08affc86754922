"""`curvflow run`: compute what a study asks for and the store does not hold."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from curvflow.cli.arguments import (
    AsJson,
    Overrides,
    Profile,
    StoreUrl,
    StudyPath,
    print_json,
)
from curvflow.errors import RequestError

if TYPE_CHECKING:
    from curvflow.flows.code.settle import Answer

INTERRUPTED = "curvflow: interrupted; finished tiles are kept, run again to go on"


Device = Annotated[
    Literal["auto", "cpu", "cuda"], typer.Option(help="where to compute")
]
Threads = Annotated[
    int, typer.Option(min=1, help="CPU threads of one tile; 1 unless nets are large")
]
Revive = Annotated[
    list[str] | None,
    typer.Option(
        metavar="STAGE",
        help="compute again what `gc` removed of this stage; repeatable",
    ),
]
Accept = Annotated[
    list[str] | None,
    typer.Option(
        "--accept-code",
        metavar="KIND",
        help="its changed code means the same; needs --reason; repeatable",
    ),
]
Reason = Annotated[str, typer.Option(help="why the code means the same")]
Verify = Annotated[
    str | None,
    typer.Option(
        metavar="2%",
        help="before accepting code, compute this share again and compare",
    ),
]
Rerun = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KIND",
        help="compute again its results whose code changed, or all; repeatable",
    ),
]


def command(
    study: StudyPath,
    *,
    store: StoreUrl = None,
    profile: Profile = None,
    overrides: Overrides = None,
    device: Device = "auto",
    threads: Threads = 1,
    revive: Revive = None,
    accept: Accept = None,
    reason: Reason = "",
    verify: Verify = None,
    rerun: Rerun = None,
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
            answer=_answer(accept or (), rerun or (), reason, verify),
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
        told = run_summary(results.run, results.files, totals, results.revived)
        typer.echo(told)
    if results.run.failures:
        raise typer.Exit(1)


def _answer(
    accept: Sequence[str], rerun: Sequence[str], reason: str, verify: str | None
) -> Answer | None:
    from curvflow.flows.code.settle import Answer

    if not accept and (verify is not None or (reason and not rerun)):
        option = "--reason" if verify is None else "--verify"
        raise RequestError(
            f"{option}: expected --accept-code KIND beside it, got none. Name the kind."
        )
    if not accept and not rerun:
        return None
    return Answer(accept, rerun, reason, None if verify is None else _share(verify))


def _share(text: str) -> float:
    """Read a share such as `2%` or `0.02`."""
    number = text.removesuffix("%")
    with suppress(ValueError):
        share = float(number) / (1 if number == text else 100)
        if 0 < share <= 1:
            return share
    raise RequestError(
        f"--verify: expected a share above 0% and at most 100%, got '{text}'."
    )
