"""Serve a study on this machine: run it when due, until stopped."""

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
from curvflow.flows.deployed.deploy import DeployOutcome, deploy
from curvflow.flows.deployed.server import prefect_api
from curvflow.flows.deployed.spec import DeploymentSpec

if TYPE_CHECKING:
    from prefect.deployments.runner import RunnerDeployment
    from prefect.runner import Runner


def drop_missed(deployment: UUID, *, before: datetime) -> int:
    """Delete all late runs of a deployment but the last; return their number."""
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


# Seconds that a run may take to keep its state, that the end may take in addition, and
# between two checks of the runner.
PATIENCE, GRACE, LOOK_EVERY = 60.0, 5.0, 0.2


def serve(
    spec: DeploymentSpec, *, on_start: Callable[[DeployOutcome, int], Any]
) -> signal.Signals:
    """Run a deployment when it is due, one run at a time, until a signal comes.

    The schedule stays on the server; all runs missed until the study is served again
    are made up for by one.

    Args:
        spec: of the deployment, which has no work pool.
        on_start: called once with the outcome of deploying and the number of missed
            runs.

    Returns:
        The signal.

    Raises:
        RequestError: no server is named.
        CurvflowError: the server does not answer, or is gone for long.
    """
    from prefect.runner import Runner

    # Blocked in this thread and so in every run that it starts: a terminal's Ctrl-C
    # reaches all, and a run that we then stop would count it as the second Ctrl-C.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # Prefect leaves files open
    began = datetime.now(UTC)
    done = deploy(spec)
    runner = Runner(name=spec.name, limit=1, pause_on_shutdown=False)
    identity = asyncio.run(runner.aadd_deployment(_deployment(spec)))
    missed = drop_missed(identity, before=began)
    stop = asyncio.run(
        _until_signalled(runner, on_start=partial(on_start, done, missed))
    )
    if stop is None:
        raise CurvflowError(
            f"{spec.full_name}: expected the Prefect server to answer, got no answer "
            "for a while. The schedule is kept: check the server and serve again."
        )
    return stop


async def _until_signalled(
    runner: Runner, *, on_start: Callable[[], Any]
) -> signal.Signals | None:
    """Serve until a signal comes; None means that the server was lost."""
    loop, signals = asyncio.get_running_loop(), asyncio.Queue[signal.Signals]()
    serving = asyncio.create_task(runner.start())
    await asyncio.sleep(0)  # it on_start by taking SIGTERM for itself
    loop.add_signal_handler(signal.SIGTERM, signals.put_nowait, signal.SIGTERM)

    loop.add_signal_handler(signal.SIGINT, signals.put_nowait, signal.SIGINT)
    threading.Thread(target=_hear, name="curvflow-ctrl-c", daemon=True).start()
    await asyncio.to_thread(on_start)
    hearing = asyncio.create_task(signals.get())
    losing = asyncio.create_task(_lost(runner, serving))
    with redirect_stdout(StringIO()):  # Prefect prints its reason for giving up
        done, _ = await asyncio.wait(
            {losing, hearing}, return_when=asyncio.FIRST_COMPLETED
        )
        await _stop(runner, serving)
    return hearing.result() if hearing in done else None


def _hear() -> None:
    """Receive Ctrl-C in this process, as any thread that unblocks it does."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Event().wait()


async def _lost(runner: Runner, serving: asyncio.Task[None]) -> None:
    """Return when the runner has given up on the server."""
    while not (runner.started or serving.done()):
        await asyncio.sleep(LOOK_EVERY)
    while runner.started and not serving.done():
        await asyncio.sleep(LOOK_EVERY)


async def _stop(runner: Runner, serving: asyncio.Task[None]) -> None:
    """Stop the current run, which keeps its state, and then the runner."""
    if runner.started:
        stop = asyncio.create_task(runner.astop())
        await asyncio.wait({stop}, timeout=PATIENCE)
    serving.cancel()
    _, pending = await asyncio.wait({serving}, timeout=GRACE)
    if pending:
        # Without its server a finished run may wait to report its end.
        for identity in runner._process_manager.flow_run_ids():
            if handle := runner._process_manager.get(identity):
                handle.hard_kill()
        await asyncio.wait({serving}, timeout=GRACE)


def _deployment(spec: DeploymentSpec) -> RunnerDeployment:
    from prefect.deployments.runner import RunnerDeployment
    from prefect.types.entrypoint import EntrypointType

    from curvflow.flows.deployed.study import run_study

    deployment = RunnerDeployment.from_flow(
        run_study,
        spec.name,
        parameters=dict(spec.parameters),
        tags=list(spec.tags),
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
    # Set explicitly, as unset fields stay as they are on the server.
    deployment.work_pool_name = deployment.work_queue_name = None
    return deployment
