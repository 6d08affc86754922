"""`curvflow deploy`: have a study run on a schedule by a Prefect server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from curvflow.cli.arguments import (
    AsJson,
    MaxNodes,
    Overrides,
    Profile,
    StoreUrl,
    echo,
    print_json,
)
from curvflow.cli.run_options import Device, Scheduler, Threads, Workers
from curvflow.errors import RequestError

if TYPE_CHECKING:
    from curvflow.flows.deployed.deploy import DeployOutcome
    from curvflow.flows.deployed.server import ListedDeployment
    from curvflow.flows.deployed.spec import Change, DeploymentSpec

STUDY = typer.Argument(help="the study file", metavar="STUDY")
REANALYSE = typer.Option(
    "--reanalyse", help="compute tables and figures alone, from results that are there"
)
# Changes of a new deployment that are always there and not worth a line.
PLAIN = ("entry point", "form of parameters")
DRY_RUN = typer.Option("--dry-run", help="only say what differs")
REMOVE = typer.Option("--remove", help="take the deployment away")
CREATE_POOL = typer.Option("--create-pool", help="make the work pool if it is missing")
Cron = Annotated[
    str | None,
    typer.Option(metavar="'0 2 * * *'", help="minute hour day month weekday"),
]
Every = Annotated[
    str | None,
    typer.Option(metavar="6h", help="span of time; 6h is at 0, 6, 12, 18 UTC"),
]
Timezone = Annotated[str, typer.Option(help="in which --cron is meant")]
Name = Annotated[
    str | None, typer.Option(help="of the deployment [default: the study's]")
]


def command(
    study: Annotated[Path | None, STUDY] = None,
    *,
    cron: Cron = None,
    every: Every = None,
    timezone: Timezone = "UTC",
    name: Name = None,
    pool: Annotated[str, typer.Option(help="work pool that runs it")] = "curvflow",
    create_pool: Annotated[bool, CREATE_POOL] = False,
    store: StoreUrl = None,
    profile: Profile = None,
    overrides: Overrides = None,
    max_nodes: MaxNodes = None,
    device: Device = "auto",
    threads: Threads = 1,
    workers: Workers = None,
    scheduler: Scheduler = None,
    reanalyse: Annotated[bool, REANALYSE] = False,
    dry_run: Annotated[bool, DRY_RUN] = False,
    remove: Annotated[bool, REMOVE] = False,
    listing: Annotated[bool, typer.Option("--list", help="say what there is")] = False,
    as_json: AsJson = False,
) -> None:
    """Have a Prefect server run a study, on a schedule if one is given.

    Creates the deployment, or updates an existing one, and prints the differences.
    PREFECT_API_URL names the server.
    """
    if listing:
        return _list(as_json=as_json)
    if remove:
        return _remove(_require_study(study), name, profile)
    spec = read_spec(
        _require_study(study),
        (cron, every, timezone),
        name=name,
        pool=pool,
        store=store,
        profile=profile,
        overrides=overrides or (),
        max_nodes=max_nodes,
        reanalyse=reanalyse,
        options=place_options(device, threads, workers, scheduler),
    )
    return _deploy(spec, create_pool=create_pool, dry_run=dry_run, as_json=as_json)


def read_spec(
    study: Path, schedule: tuple[str | None, str | None, str], **settings: Any
) -> DeploymentSpec:
    """Return the deployment of a study; `schedule`: --cron, --every, --timezone."""
    # Loaded here so that `curvflow --help` starts at once.
    from curvflow.flows.deployed.schedules import read_due_times
    from curvflow.flows.deployed.spec import deployment_spec

    return deployment_spec(study, due=read_due_times(*schedule), **settings)


def place_options(
    device: str, threads: int, workers: int | None, scheduler: str | None
) -> dict[str, Any]:
    """Return the run options that a deployment keeps, by name."""
    return {
        "device": device,
        "num_threads": threads,
        "workers": workers,
        "scheduler": scheduler,
    }


def _require_study(study: Path | None) -> Path:
    if study is None:
        raise RequestError("expected STUDY or --list, got neither. Name a study file.")
    return study


def _list(*, as_json: bool) -> None:
    from curvflow.flows.deployed.server import list_deployments

    deployments = list_deployments()
    if as_json:
        print_json([deployment.as_json() for deployment in deployments])
    else:
        lines = [line for deployment in deployments for line in _entry(deployment)]
        echo("\n".join(lines) or "the server has no deployment of curvflow")


def _entry(deployment: ListedDeployment) -> Iterator[str]:
    yield f"{deployment.name}: {', '.join(deployment.schedules) or 'no schedule'}"
    yield f"  {deployment.study}, by {deployment.pool or 'curvflow serve'}"
    if deployment.complaint:
        yield f"  {deployment.complaint}"


def _remove(study: Path, name: str | None, profile: str | None) -> None:
    from curvflow.flows.deployed.deploy import remove
    from curvflow.flows.deployed.spec import FLOW, default_name

    name = name or default_name(study, profile)
    remove(name)
    echo(f"{FLOW}/{name}: removed, with its schedules; results stay")


def _as_json(done: DeployOutcome, *, acted: bool) -> dict[str, Any]:
    due = done.spec.due
    return {
        "deployment": done.spec.full_name,
        "new": done.is_new,
        "acted": acted,
        "changes": [change.as_json() for change in done.changes],
        "next": due.upcoming().isoformat() if due else None,
        "news": done.notes,
    }


def _deploy(
    spec: DeploymentSpec, *, create_pool: bool, dry_run: bool, as_json: bool
) -> None:
    from curvflow.flows.deployed.deploy import deploy

    done = deploy(spec, create_pool=create_pool, dry_run=dry_run)
    if as_json:
        print_json(_as_json(done, acted=bool(done.changes) and not dry_run))
    else:
        echo("\n".join(_text_lines(done, dry_run=dry_run)))


def _text_lines(done: DeployOutcome, *, dry_run: bool) -> Iterator[str]:
    name = done.spec.full_name
    if not done.changes:
        yield f"{name}: nothing to do"
    elif done.is_new:
        yield f"{name}: {'would be created' if dry_run else 'created'}"
    else:
        yield f"{name}: {'would change' if dry_run else 'changed'}"
    changes = [c for c in done.changes if not (done.is_new and c.what in PLAIN)]
    yield from map(_line, changes)
    yield from (f"note: {note}" for note in done.notes)
    if done.spec.due:
        yield f"next run: {done.spec.due.upcoming():%Y-%m-%d %H:%M:%S %Z}"
    elif not dry_run:
        yield f"no schedule; run it with `prefect deployment run {name}`"


def _line(change: Change) -> str:
    if change.old is None:
        return f"  + {change.what}: {_text(change.new)}"
    if change.new is None:
        return f"  - {change.what}: {_text(change.old)}"
    return f"  ~ {change.what}: {_text(change.old)} -> {_text(change.new)}"


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return str(value)
