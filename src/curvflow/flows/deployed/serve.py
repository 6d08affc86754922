"""Serve a study on this machine: run what is due, until asked to end."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Callable
from contextlib import redirect_stdout
from datetime import UTC, datetime
from functools import partial
from io import StringIO
from typing import TYPE_CHECKING, Any
from uuid import UUID

from curvflow.errors import CurvflowError
from curvflow.flows.deployed.deploy import Deployed, deploy
from curvflow.flows.deployed.server import prefect_api
from curvflow.flows.deployed.spec import Wanted

if TYPE_CHECKING:
    from prefect.deployments.runner import RunnerDeployment
    from prefect.runner import Runner


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


# Seconds that a run at work may take to keep its state, that ending may take besides,
# and between two looks at the runner.
PATIENCE, GRACE, LOOK_EVERY = 60.0, 5.0, 0.2


def serve(wanted: Wanted, *, begins: Callable[[Deployed, int], Any]) -> signal.Signals:
    """Run what is due of a deployment, one run at a time, until a signal comes.

    The schedule stays on the server; however much falls due until the study is served
    again, it is made up for by one run.

    Args:
        wanted: the deployment, which has no work pool.
        begins: called once with what deploying has done and how many runs were missed.

    Returns:
        The signal that has ended it.

    Raises:
        RequestError: no server is named.
        CurvflowError: the server does not answer, or has gone for long.
    """
    from prefect.runner import Runner

    # Blocked in this thread and so in every run that it starts: a terminal's Ctrl-C is
    # for all, and a run that is then ended by us would take it for the second wish.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # what Prefect leaves open
    began = datetime.now(UTC)
    done = deploy(wanted)
    runner = Runner(name=wanted.name, limit=1, pause_on_shutdown=False)
    identity = asyncio.run(runner.aadd_deployment(_deployment(wanted)))
    missed = drop_missed(identity, before=began)
    asked = asyncio.run(_until_asked(runner, begins=partial(begins, done, missed)))
    if asked is None:
        raise CurvflowError(
            f"{wanted.full_name}: expected the Prefect server to answer, got no answer "
            "for a while. Its schedule is kept: see to the server and serve again."
        )
    return asked


async def _until_asked(
    runner: Runner, *, begins: Callable[[], Any]
) -> signal.Signals | None:
    """Serve; None means that the server was lost."""
    loop, asked = asyncio.get_running_loop(), asyncio.Queue[signal.Signals]()
    serving = asyncio.create_task(runner.start())
    await asyncio.sleep(0)  # it begins by taking SIGTERM for itself
    loop.add_signal_handler(signal.SIGTERM, asked.put_nowait, signal.SIGTERM)

    loop.add_signal_handler(signal.SIGINT, asked.put_nowait, signal.SIGINT)
    threading.Thread(target=_hear, name="curvflow-ctrl-c", daemon=True).start()
    await asyncio.to_thread(begins)
    hearing = asyncio.create_task(asked.get())
    losing = asyncio.create_task(_lost(runner, serving))
    with redirect_stdout(StringIO()):  # there Prefect prints why it gives up
        done, _ = await asyncio.wait(
            {losing, hearing}, return_when=asyncio.FIRST_COMPLETED
        )
        await _stop(runner, serving)
    return hearing.result() if hearing in done else None


def _hear() -> None:
    """Let Ctrl-C reach this process, which it does through any thread that hears it."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Event().wait()


async def _lost(runner: Runner, serving: asyncio.Task[None]) -> None:
    """Return once the runner has given up on the server."""
    while not (runner.started or serving.done()):
        await asyncio.sleep(LOOK_EVERY)
    while runner.started and not serving.done():
        await asyncio.sleep(LOOK_EVERY)


async def _stop(runner: Runner, serving: asyncio.Task[None]) -> None:
    """End what is at work, which keeps what it has, and then the runner."""
    if runner.started:
        stop = asyncio.create_task(runner.astop())
        await asyncio.wait({stop}, timeout=PATIENCE)
    serving.cancel()
    _, pending = await asyncio.wait({serving}, timeout=GRACE)
    if pending:
        # Without its server a run that has done its work may wait to tell of it.
        for identity in runner._process_manager.flow_run_ids():
            if handle := runner._process_manager.get(identity):
                handle.hard_kill()
        await asyncio.wait({serving}, timeout=GRACE)


def _deployment(wanted: Wanted) -> RunnerDeployment:
    from prefect.deployments.runner import RunnerDeployment
    from prefect.types.entrypoint import EntrypointType

    from curvflow.flows.deployed.study import run_study

    deployment = RunnerDeployment.from_flow(
        run_study,
        wanted.name,
        parameters=dict(wanted.parameters),
        tags=list(wanted.tags),
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
    # Said on purpose, for what is not said stays as it is on the server.
    deployment.work_pool_name = deployment.work_queue_name = None
    return deployment
