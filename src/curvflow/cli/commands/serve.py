"""`curvflow serve`: run a study on a schedule, on this machine, while it lasts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from curvflow.cli.arguments import (
    MaxNodes,
    Overrides,
    Profile,
    StoreUrl,
    StudyPath,
    echo,
)
from curvflow.cli.commands.deploy import (
    REANALYSE,
    Cron,
    Every,
    Name,
    Timezone,
    place_options,
    read_spec,
)
from curvflow.cli.run_options import Device, Scheduler, Threads, Workers
from curvflow.errors import RequestError

if TYPE_CHECKING:
    from curvflow.flows.deployed.deploy import DeployOutcome


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
    max_nodes: MaxNodes = None,
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
    from curvflow.flows.deployed.serve import serve
    from curvflow.flows.deployed.spec import default_name

    _require_schedule(cron, every)
    spec = read_spec(
        study,
        (cron, every, timezone),
        # Its own name, so that it does not replace a deployment of `curvflow deploy`.
        name=name or f"{default_name(study, profile)}-served",
        pool=None,
        store=store,
        profile=profile,
        overrides=overrides or (),
        max_nodes=max_nodes,
        reanalyse=reanalyse,
        options=place_options(device, threads, workers, scheduler),
    )
    ended = serve(spec, on_start=_echo_start)
    echo(f"curvflow: {ended.name}; no longer served, its schedule is kept", err=True)


def _require_schedule(cron: str | None, every: str | None) -> None:
    if cron is None and every is None:
        raise RequestError("expected --every or --cron, got neither. Try --every 6h.")


def _echo_start(done: DeployOutcome, missed: int) -> None:
    when = done.spec.due
    assert when is not None
    due = f"one now for {missed} missed, then " if missed else "next run "
    echo(
        f"serving {done.spec.full_name}, {when}; "
        f"{due}{when.upcoming():%Y-%m-%d %H:%M:%S %Z}; Ctrl-C ends"
    )
