"""Prefect with what it needs beside it, its server, and who works for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING

from curvflow.errors import CurvflowError, RequestError
from curvflow.flows.doctor.finding import Finding
from curvflow.flows.doctor.versions import installed, is_below

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import WorkPool

# Package, the version it must be below, and what happens if it is not.
BOUNDS = (
    ("fastapi", "0.151", "the server of Prefect 3.8 cannot start with it"),
    ("sqlalchemy", "2.1", "with it Prefect 3.8 never creates a scheduled run"),
)
SERVER = "prefect server start"
POINT = "export PREFECT_API_URL=http://127.0.0.1:4200/api"


def prefect_findings(
    version_of: Callable[[str], str | None] = installed,
) -> Iterator[Finding]:
    """Look at the versions of Prefect and of what breaks it.

    Args:
        version_of: tells the version of a package.

    Yields:
        What was found.
    """
    prefect = version_of("prefect")
    if prefect is None:
        remedy = "Run `pip install 'prefect>=3.8,<4'`."
        yield Finding("prefect", "FAIL", "not installed", remedy)
        return
    yield Finding("prefect", "ok", prefect)
    for package, bound, symptom in BOUNDS:
        version, remedy = version_of(package), f"Run `pip install '{package}<{bound}'`."
        if version is None:
            yield Finding(f"prefect.{package}", "FAIL", "not installed", remedy)
        elif is_below(version, bound):
            yield Finding(f"prefect.{package}", "ok", f"{version}, below {bound}")
        else:
            told = f"{version}; {symptom}"
            yield Finding(f"prefect.{package}", "FAIL", told, remedy)


def import_findings() -> Iterator[Finding]:
    """Import Prefect, quietly; what is wrong is raised.

    Yields:
        Nothing.
    """
    import_module("curvflow.flows.deployed")  # which hushes Prefect
    import_module("prefect.client.orchestration")
    yield from ()


def server_findings() -> Iterator[Finding]:
    """Look whether Prefect's server answers, and whether somebody works for it.

    Yields:
        What was found.
    """
    from curvflow.flows.deployed.api import prefect_api  # slow to import

    try:
        with prefect_api() as client:
            told = f"{client.api_url} answers, version {client.api_version()}"
            yield Finding("prefect.server", "ok", told)
            yield from _pools(client)
    except RequestError:
        told = "none configured; runs are not observed"
        remedy = f"For schedules: `{SERVER}`, then `{POINT}`."
        yield Finding("prefect.server", "ok", told, remedy)
    except CurvflowError as error:
        found, _, remedy = str(error).partition(". ")
        yield Finding("prefect.server", "FAIL", found, remedy)


def _pools(client: SyncPrefectClient) -> Iterator[Finding]:
    pools = client.read_work_pools()
    if not pools:
        remedy = "For deployments: `prefect work-pool create curvflow --type process`."
        yield Finding("prefect.pool", "warn", "no work pool", remedy)
    for pool in sorted(pools, key=lambda one: one.name):
        yield _pool(client, pool)


def _pool(client: SyncPrefectClient, pool: WorkPool) -> Finding:
    workers = client.read_workers_for_work_pool(pool.name)
    online = sum(worker.status == "ONLINE" for worker in workers)
    told = f"{pool.name} has {online} online workers"
    if pool.is_paused:
        remedy = f"Run `prefect work-pool resume {pool.name}`."
        return Finding("prefect.pool", "warn", f"{pool.name} is paused", remedy)
    if not online:
        remedy = f"Run `prefect worker start --pool {pool.name}`."
        return Finding("prefect.pool", "warn", told, remedy)
    return Finding("prefect.pool", "ok", told.removesuffix("s" * (online == 1)))
