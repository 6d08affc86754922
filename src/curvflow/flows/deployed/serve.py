"""Serve a study on this machine: run what is due, until asked to end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from curvflow.errors import CurvflowError
from curvflow.flows.deployed.deploy import Deployed, deploy
from curvflow.flows.deployed.wanted import Wanted

if TYPE_CHECKING:
    from prefect.deployments.runner import RunnerDeployment

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def serve(wanted: Wanted, *, begins: Callable[[Deployed], Any]) -> signal.Signals:
    """Run what is due of a deployment, one run at a time, until a signal comes.

    The schedule stays on the server; what falls due meanwhile is run when the study is
    served again.

    Args:
        wanted: the deployment, which has no work pool.
        begins: called once with what deploying has done.

    Returns:
        The signal that has ended it.

    Raises:
        RequestError: no server is named.
        CurvflowError: the server does not answer, or has gone for long.
    """
    begins(deploy(wanted))
    asked = asyncio.run(_until_asked(wanted))
    if asked is None:
        raise CurvflowError(
            f"{wanted.full_name}: expected the Prefect server to answer, got no answer "
            "for a while. Its schedule is kept: see to the server and serve again."
        )
    return asked


async def _until_asked(wanted: Wanted) -> signal.Signals | None:
    """Serve; None means that the server was lost."""
    from prefect.runner import Runner

    runner = Runner(name=wanted.name, limit=1, pause_on_shutdown=False)
    await runner.aadd_deployment(_deployment(wanted))
    loop, asked = asyncio.get_running_loop(), asyncio.Queue[signal.Signals]()
    serving = asyncio.create_task(runner.start())
    await asyncio.sleep(0)  # it begins by taking SIGTERM for itself
    for one in SIGNALS:
        # Also where a shell has started us with SIGINT ignored, as it does with `&`.
        loop.add_signal_handler(one, asked.put_nowait, one)
    hearing = asyncio.create_task(asked.get())
    await asyncio.wait({serving, hearing}, return_when=asyncio.FIRST_COMPLETED)
    if not hearing.done():
        hearing.cancel()
        return None
    if runner.started:
        await runner.astop()
    serving.cancel()
    await asyncio.wait({serving})
    return hearing.result()


def _deployment(wanted: Wanted) -> RunnerDeployment:
    from prefect.types.entrypoint import EntrypointType

    from curvflow.flows.deployed.study import run_study

    deployment: RunnerDeployment = run_study.to_deployment(
        wanted.name,
        parameters=dict(wanted.parameters),
        tags=list(wanted.tags),
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
    # Said on purpose, for what is not said stays as it is on the server.
    deployment.work_pool_name = deployment.work_queue_name = None
    return deployment
