"""Deployments and work pools on the Prefect server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curvflow.errors import CurvflowError, RequestError
from curvflow.flows.deployed.schedules import shown_schedule
from curvflow.flows.deployed.spec import FLOW
from curvflow.schemas.words import error_line, one_line

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.responses import DeploymentResponse


START = "Start one with `prefect server start`"
POINT = "`export PREFECT_API_URL=http://127.0.0.1:4200/api`"


def patience(seconds: float) -> float:
    """Return for how long a server may be silent, in seconds.

    So long as PREFECT_API_REQUEST_TIMEOUT, or a profile, says; else as given.
    """
    from prefect.settings import get_current_settings

    api = get_current_settings().api
    is_set = "request_timeout" in api.model_fields_set
    return api.request_timeout if is_set else seconds


@contextmanager
def prefect_api() -> Iterator[SyncPrefectClient]:
    """Open a client of the server that PREFECT_API_URL names.

    Yields:
        The client of a server that answers.

    Raises:
        RequestError: no server is named.
        CurvflowError: it does not answer, or refuses a request.
    """
    from prefect.client.orchestration import get_client
    from prefect.exceptions import PrefectHTTPStatusError
    from prefect.settings import get_current_settings

    url = get_current_settings().api.url
    if not url:
        raise RequestError(
            "PREFECT_API_URL: expected the address of a Prefect server, got none. "
            f"{START} and name it with {POINT}."
        )
    with get_client(sync_client=True) as client:
        if (failure := client.api_healthcheck()) is not None:
            reason = error_line(failure)
            raise CurvflowError(
                f"{url}: expected a Prefect server, got no answer: "
                f"{reason.rstrip('.')}. {START}, or name another with {POINT}; "
                "its address ends in /api."
            )
        try:
            yield client
        except PrefectHTTPStatusError as error:
            detail = one_line(error)
            raise CurvflowError(
                f"{url}: expected the server to take the request, got {detail}. "
                "Check the server's log."
            ) from error


def check_pool(
    client: SyncPrefectClient, name: str, *, create: bool, dry_run: bool
) -> list[str]:
    """Return notes on a work pool, which is made with `create` if it is missing."""
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.client.schemas.objects import WorkPoolStatus
    from prefect.exceptions import ObjectNotFound

    start = f"start one with `prefect worker start --pool {name}`"
    try:
        pool = client.read_work_pool(name)
    except ObjectNotFound:
        if not create:
            raise RequestError(
                f"--pool: expected a work pool of the server, got '{name}', which "
                f"does not exist. Make it with `prefect work-pool create {name} --type "
                "process`, or add --create-pool."
            ) from None
        if not dry_run:
            client.create_work_pool(WorkPoolCreate(name=name, type="process"))
        made = "would be made" if dry_run else "made"
        return [f"work pool {name} {made}; it has no worker, {start}"]
    if pool.is_paused:
        return [f"work pool {name} is paused; `prefect work-pool resume {name}`"]
    if pool.status is WorkPoolStatus.NOT_READY:
        return [f"work pool {name} has no worker; {start}"]
    return []


COLLECTION = "curvflow-gc"


@dataclass(frozen=True)
class ListedDeployment:
    """A deployment on the server.

    Attributes:
        name: of flow and deployment.
        study: path of its study, or its store.
        pool: whose workers run it; None if it is served.
        schedules: in words.
        complaint: the reason why it cannot run here; empty without one.
    """

    name: str
    study: str
    pool: str | None
    schedules: Sequence[str]
    complaint: str

    def as_json(self) -> dict[str, Any]:
        """Return it in the form of `curvflow deploy --list --json`."""
        return asdict(self)


def list_deployments() -> list[ListedDeployment]:
    """Return the deployments of studies and collections on the server, by name."""
    from prefect.client.schemas.filters import FlowFilter, FlowFilterName

    deployments = []
    with prefect_api() as client:
        for flow in (COLLECTION, FLOW):
            ours = FlowFilter(name=FlowFilterName(any_=[flow]))
            responses = client.read_deployments(flow_filter=ours)
            deployments += [_listed(flow, deployment) for deployment in responses]
    return sorted(deployments, key=lambda deployment: deployment.name)


def _listed(flow: str, deployment: DeploymentResponse) -> ListedDeployment:
    parameters = deployment.parameters
    project = Path(parameters.get("project") or ".")
    study = parameters.get("study")
    place = str(project / study) if study else str(parameters.get("store"))
    schedules = [
        shown_schedule(schedule.schedule) + ("" if schedule.active else ", paused")
        for schedule in deployment.schedules
    ]
    is_gone = bool(study) and project.is_absolute() and not Path(place).exists()
    return ListedDeployment(
        f"{flow}/{deployment.name}",
        place,
        deployment.work_pool_name,
        schedules,
        "its study file is not on this machine" if is_gone else "",
    )
