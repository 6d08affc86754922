"""Create a deployment of a study, or update the existing one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from curvflow.errors import UnknownNameError, nearest
from curvflow.flows.deployed.quiet import SETTINGS
from curvflow.flows.deployed.server import check_pool, prefect_api
from curvflow.flows.deployed.spec import (
    ENTRYPOINT,
    FLOW,
    LIMIT,
    Change,
    DeploymentSpec,
    changes,
)

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.responses import DeploymentResponse


@dataclass(frozen=True)
class DeployOutcome:
    """The outcome of deploying, or of a dry run.

    Attributes:
        spec: of the deployment.
        is_new: whether it did not exist.
        changes: differences.
        notes: for the user.
    """

    spec: DeploymentSpec
    is_new: bool
    changes: list[Change]
    notes: list[str]


def deploy(
    spec: DeploymentSpec, *, create_pool: bool = False, dry_run: bool = False
) -> DeployOutcome:
    """Create a deployment, or update the existing one; paused schedules stay paused.

    Schedules that the specification lacks are removed.

    Args:
        spec: of the deployment.
        create_pool: make the work pool if it is missing.
        dry_run: only compare.

    Returns:
        The changes.

    Raises:
        RequestError: no server is named, or the work pool is missing.
        CurvflowError: the server does not answer, or refuses.
    """
    with prefect_api() as client:
        notes: list[str] = []
        if spec.pool is not None:
            options = {"create": create_pool, "dry_run": dry_run}
            notes = check_pool(client, spec.pool, **options)
        current, form = _current(client, spec), _form()
        differing = changes(current, spec, form)
        if differing and not dry_run:
            _put(client, spec, current, form)
    return DeployOutcome(
        spec, current is None, differing, [*notes, *_paused(current, spec)]
    )


def remove(name: str) -> None:
    """Delete a study's deployment and its schedules from the server."""
    from prefect.client.schemas.filters import FlowFilter, FlowFilterName
    from prefect.exceptions import ObjectNotFound

    with prefect_api() as client:
        try:
            deployment = client.read_deployment_by_name(f"{FLOW}/{name}")
        except ObjectNotFound:
            ours = FlowFilter(name=FlowFilterName(any_=[FLOW]))
            known = [other.name for other in client.read_deployments(flow_filter=ours)]
            raise UnknownNameError(
                f"--name: expected a deployment of a study, got '{name}'. "
                f"{nearest(name, known) or 'The server has none.'}"
            ) from None
        client.delete_deployment(deployment.id)


def _current(
    client: SyncPrefectClient, spec: DeploymentSpec
) -> DeploymentResponse | None:
    from prefect.exceptions import ObjectNotFound

    try:
        return client.read_deployment_by_name(spec.full_name)
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
    spec: DeploymentSpec,
    current: DeploymentResponse | None,
    form: dict[str, Any],
) -> None:
    """Send the whole deployment, which replaces the existing one."""
    from prefect.client.schemas.actions import DeploymentScheduleCreate
    from prefect.client.schemas.objects import (
        ConcurrencyLimitStrategy,
        ConcurrencyOptions,
    )

    paused = _paused_slugs(current)
    schedules = [
        DeploymentScheduleCreate(
            schedule=due.schedule(), slug=spec.name, active=spec.name not in paused
        )
        for due in (spec.due,)
        if due is not None
    ]
    client.create_deployment(
        flow_id=client.create_flow_from_name(FLOW),
        name=spec.name,
        entrypoint=ENTRYPOINT,
        parameters=dict(spec.parameters),
        schedules=schedules,
        work_pool_name=spec.pool,
        tags=list(spec.tags),
        description="A study of curvflow, kept by `curvflow deploy`.",
        concurrency_limit=LIMIT,
        concurrency_options=ConcurrencyOptions(
            collision_strategy=ConcurrencyLimitStrategy.ENQUEUE
        ),
        parameter_openapi_schema=form,
        enforce_parameter_schema=True,
        pull_steps=[],
        # Workers import Prefect before curvflow, so its settings come from outside.
        job_variables={"env": SETTINGS} if current is None else current.job_variables,
    )


def _paused_slugs(current: DeploymentResponse | None) -> set[str | None]:
    schedules = [] if current is None else current.schedules
    return {schedule.slug for schedule in schedules if not schedule.active}


def _paused(current: DeploymentResponse | None, spec: DeploymentSpec) -> list[str]:
    if current is not None and current.paused:
        return ["the deployment was paused on the server and stays so"]
    if spec.due is not None and spec.name in _paused_slugs(current):
        return ["its schedule was paused on the server and stays so"]
    return []
