"""The deployments of curvflow that a server has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curvflow.flows.deployed.api import prefect_api
from curvflow.flows.deployed.wanted import FLOW
from curvflow.flows.deployed.when import shown_schedule

if TYPE_CHECKING:
    from prefect.client.schemas.responses import DeploymentResponse

COLLECTION = "curvflow-gc"


@dataclass(frozen=True)
class Listed:
    """A deployment on the server.

    Attributes:
        name: of its flow and its own.
        study: path of the study or store that it is of.
        pool: whose workers run it; None if it is served.
        schedules: when it fires.
        complaint: why it cannot run here; empty if nothing speaks against it.
    """

    name: str
    study: str
    pool: str | None
    schedules: Sequence[str]
    complaint: str

    def as_json(self) -> dict[str, Any]:
        """Return it in the form of `curvflow deploy --list --json`."""
        return asdict(self)


def listed() -> list[Listed]:
    """Return the deployments of curvflow that the server has, by name.

    Returns:
        Those of studies and of collections.

    Raises:
        RequestError: no server is named.
        CurvflowError: it does not answer, or refuses.
    """
    from prefect.client.schemas.filters import FlowFilter, FlowFilterName

    found = []
    with prefect_api() as client:
        for flow in (COLLECTION, FLOW):
            ours = FlowFilter(name=FlowFilterName(any_=[flow]))
            some = client.read_deployments(flow_filter=ours)
            found += [_listed(flow, one) for one in some]
    return sorted(found, key=lambda one: one.name)


def _listed(flow: str, found: DeploymentResponse) -> Listed:
    given = found.parameters
    project = Path(given.get("project") or ".")
    study = given.get("study")
    place = str(project / study) if study else str(given.get("store"))
    schedules = [
        shown_schedule(one.schedule) + ("" if one.active else ", paused")
        for one in found.schedules
    ]
    is_gone = bool(study) and project.is_absolute() and not Path(place).exists()
    return Listed(
        f"{flow}/{found.name}",
        place,
        found.work_pool_name,
        schedules,
        "its study file is not on this machine" if is_gone else "",
    )
