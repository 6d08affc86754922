"""`curvflow serve`: run a study on a schedule, on this machine, while it lasts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from curvflow.cli.arguments import Overrides, Profile, StoreUrl, StudyPath
from curvflow.cli.commands.deploy import REANALYSE, Cron, Every, Name, Timezone
from curvflow.cli.run_options import Device, Scheduler, Threads, Workers
from curvflow.errors import RequestError

if TYPE_CHECKING:
    from curvflow.flows.deployed.deploy import DeployOutcome
    from curvflow.flows.deployed.schedules import DueTimes


def command(
    study: StudyPath,
    *,
    cron: Cron = None,
    every: Every = None,
    timezone: Timezone = "UTC",
    name: Name = None,
    store: StoreUrl = None,
    profile: Profile = None,
    overrides: Overrides = None,
    device: Device = "auto",
    threads: Threads = 1,
    workers: Workers = None,
    scheduler: Scheduler = None,
    reanalyse: Annotated[bool, REANALYSE] = False,
) -> None:
    """Run a study on a schedule, on this machine.

    No work pool is needed.

    Ends on Ctrl-C or SIGTERM, and the run at work with it; its finished results are
    kept. PREFECT_API_URL names the server.
    """
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.flows.deployed.schedules import read_due_times
    from curvflow.flows.deployed.serve import serve
    from curvflow.flows.deployed.spec import default_name, deployment_spec

    place = {"workers": workers, "scheduler": scheduler}
    due = _require_schedule(read_due_times(cron, every, timezone))
    spec = deployment_spec(
        study,
        # Its own name, so that it does not replace a deployment of `curvflow deploy`.
        name=name or f"{default_name(study, profile)}-served",
        pool=None,
        due=due,
        store=store,
        profile=profile,
        overrides=overrides or (),
        reanalyse=reanalyse,
        options={"device": device, "num_threads": threads, **place},
    )
    ended = serve(spec, on_start=_echo_start)
    typer.echo(
        f"curvflow: {ended.name}; no longer served, its schedule is kept", err=True
    )


def _require_schedule(due: DueTimes | None) -> DueTimes:
    if due is None:
        raise RequestError("expected --every or --cron, got neither. Try --every 6h.")
    return due


def _echo_start(done: DeployOutcome, missed: int) -> None:
    when = done.spec.due
    assert when is not None
    due = f"one now for {missed} missed, then " if missed else "next run "
    typer.echo(
        f"serving {done.spec.full_name}, {when}; "
        f"{due}{when.upcoming():%Y-%m-%d %H:%M:%S %Z}; Ctrl-C ends"
    )
