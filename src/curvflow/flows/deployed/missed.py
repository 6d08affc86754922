"""Runs that fell due while nobody served a study."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from curvflow.flows.deployed.api import prefect_api


def drop_missed(deployment: UUID, *, before: datetime) -> int:
    """Drop all late runs of a deployment but the last, which makes up for them.

    Args:
        deployment: on the server.
        before: runs that were due by then are late.

    Returns:
        How many are late, the one that stays included.

    Raises:
        RequestError: no server is named.
        CurvflowError: it does not answer, or refuses.
    """
    from prefect.client.schemas.filters import (
        FlowRunFilter,
        FlowRunFilterDeploymentId,
        FlowRunFilterExpectedStartTime,
        FlowRunFilterState,
        FlowRunFilterStateType,
    )
    from prefect.client.schemas.objects import StateType
    from prefect.client.schemas.sorting import FlowRunSort

    scheduled = FlowRunFilterStateType(any_=[StateType.SCHEDULED])
    late = FlowRunFilter(
        deployment_id=FlowRunFilterDeploymentId(any_=[deployment]),
        state=FlowRunFilterState(type=scheduled),
        expected_start_time=FlowRunFilterExpectedStartTime(before_=before),
    )
    with prefect_api() as client:
        order = FlowRunSort.EXPECTED_START_TIME_DESC
        runs = client.read_flow_runs(flow_run_filter=late, sort=order)
        for run in runs[1:]:
            client.delete_flow_run(run.id)
    return len(runs)
