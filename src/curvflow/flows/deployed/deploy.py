"""Create a deployment of a study, or make the one that is there what is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from curvflow.errors import UnknownNameError, nearest
from curvflow.flows.deployed.quiet import SETTINGS
from curvflow.flows.deployed.server import pool_news, prefect_api
from curvflow.flows.deployed.spec import (
    ENTRYPOINT,
    FLOW,
    LIMIT,
    Change,
    Wanted,
    changes,
)

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.responses import DeploymentResponse


@dataclass(frozen=True)
class Deployed:
    """What deploying has done, or would do.

    Attributes:
        wanted: the deployment.
        is_new: whether the server did not have it.
        changes: what differed.
        news: what the user should know besides.
    """

    wanted: Wanted
    is_new: bool
    changes: list[Change]
    news: list[str]


def deploy(
    wanted: Wanted, *, create_pool: bool = False, dry_run: bool = False
) -> Deployed:
    """Create a deployment, or reconcile the one that is there.

    What is asked for is all there will be: schedules that are not, go. A schedule that
    was paused stays so.

    Args:
        wanted: the deployment.
        create_pool: make the work pool if it is missing.
        dry_run: only say what differs.

    Returns:
        What was done.

    Raises:
        RequestError: no server is named, or the work pool is missing.
        CurvflowError: the server does not answer, or refuses.
    """
    with prefect_api() as client:
        news: list[str] = []
        if wanted.pool is not None:
            how = {"create": create_pool, "dry_run": dry_run}
            news = pool_news(client, wanted.pool, **how)
        found, form = _found(client, wanted), _form()
        differing = changes(found, wanted, form)
        if differing and not dry_run:
            _put(client, wanted, found, form)
    return Deployed(wanted, found is None, differing, [*news, *_paused(found, wanted)])


def remove(name: str) -> None:
    """Take a deployment of a study off the server, with its schedules.

    Args:
        name: of the deployment.

    Raises:
        UnknownNameError: there is none of this name.
        RequestError: no server is named.
        CurvflowError: the server does not answer, or refuses.
    """
    from prefect.client.schemas.filters import FlowFilter, FlowFilterName
    from prefect.exceptions import ObjectNotFound

    with prefect_api() as client:
        try:
            found = client.read_deployment_by_name(f"{FLOW}/{name}")
        except ObjectNotFound:
            ours = FlowFilter(name=FlowFilterName(any_=[FLOW]))
            known = [one.name for one in client.read_deployments(flow_filter=ours)]
            raise UnknownNameError(
                f"--name: expected a deployment of a study, got '{name}'. "
                f"{nearest(name, known) or 'The server has none.'}"
            ) from None
        client.delete_deployment(found.id)


def _found(client: SyncPrefectClient, wanted: Wanted) -> DeploymentResponse | None:
    from prefect.exceptions import ObjectNotFound

    try:
        return client.read_deployment_by_name(wanted.full_name)
    except ObjectNotFound:
        return None


def _form() -> dict[str, Any]:
    """Return the JSON Schema by which Prefect's form checks parameters."""
    from prefect.utilities.callables import parameter_schema

    from curvflow.flows.deployed.study import run_study

    form: dict[str, Any] = parameter_schema(run_study).model_dump(
        mode="json", exclude_unset=True
    )
    return form


def _put(
    client: SyncPrefectClient,
    wanted: Wanted,
    found: DeploymentResponse | None,
    form: dict[str, Any],
) -> None:
    """Send the whole deployment: the server sets it in place of what is there."""
    from prefect.client.schemas.actions import DeploymentScheduleCreate
    from prefect.client.schemas.objects import (
        ConcurrencyLimitStrategy,
        ConcurrencyOptions,
    )

    paused = _paused_slugs(found)
    schedules = [
        DeploymentScheduleCreate(
            schedule=when.schedule(), slug=wanted.name, active=wanted.name not in paused
        )
        for when in (wanted.when,)
        if when is not None
    ]
    client.create_deployment(
        flow_id=client.create_flow_from_name(FLOW),
        name=wanted.name,
        entrypoint=ENTRYPOINT,
        parameters=dict(wanted.parameters),
        schedules=schedules,
        work_pool_name=wanted.pool,
        tags=list(wanted.tags),
        description="A study of curvflow, kept by `curvflow deploy`.",
        concurrency_limit=LIMIT,
        concurrency_options=ConcurrencyOptions(
            collision_strategy=ConcurrencyLimitStrategy.ENQUEUE
        ),
        parameter_openapi_schema=form,
        enforce_parameter_schema=True,
        pull_steps=[],
        # Prefect is loaded before curvflow there, so it is told from outside.
        job_variables={"env": SETTINGS} if found is None else found.job_variables,
    )


def _paused_slugs(found: DeploymentResponse | None) -> set[str | None]:
    schedules = [] if found is None else found.schedules
    return {one.slug for one in schedules if not one.active}


def _paused(found: DeploymentResponse | None, wanted: Wanted) -> list[str]:
    if found is not None and found.paused:
        return ["the deployment was paused on the server and stays so"]
    if wanted.when is not None and wanted.name in _paused_slugs(found):
        return ["its schedule was paused on the server and stays so"]
    return []
