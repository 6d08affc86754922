"""Preflight: every worker is checked before any tile is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distributed import Client, Worker
from distributed.comm.core import CommClosedError

from curvflow.errors import ClusterError, CurvflowError, RequestError
from curvflow.flows.run.runners.clients import LOST, give_up, is_missing
from curvflow.flows.run.runners.job_context import Sealed
from curvflow.flows.run.runners.pools import threads_fault, workers_in
from curvflow.flows.run.runners.worker import prepared
from curvflow.schemas.words import error_line

ANSWER_WITHIN = 60.0  # seconds; a worker may have to load much from a slow disk


def preflight(client: Client, context: Sealed, *, device: str) -> None:
    """Refuse a cluster that cannot compute the tiles of a run, before it computes any.

    Workers that come later are checked by their first tile. One that leaves while it is
    asked, as happens in a cluster that grows and shrinks, is not missed.

    Raises:
        RequestError: a worker is not fit; names it and the remedy.
        ClusterError: a worker does not answer.
    """
    sync: Any = client.sync  # has no types
    scheduler: Any = client.scheduler
    address: str = scheduler.address
    try:
        identity = sync(
            scheduler.identity, n_workers=-1, callback_timeout=ANSWER_WITHIN
        )
    except LOST:
        give_up(address)
    check_resources(address, identity, device)
    answers = _answers(client, context, address)
    for worker, answer in sorted(answers.items()):
        if answer is not None:
            raise RequestError(f"worker {worker}: {answer}")


def check_resources(address: str, identity: Mapping[str, Any], device: str) -> None:
    """Refuse workers that run several tiles at once, and a GPU that no worker has.

    Raises:
        RequestError: there is such a worker, or no such GPU.
    """
    workers = workers_in(identity)
    for worker in workers:
        if fault := threads_fault(worker.threads, address):
            raise RequestError(f"worker {worker.address}: {fault}")
    if device == "cuda" and not any(worker.has(["GPU"]) for worker in workers):
        raise RequestError(
            f"--device cuda: expected a worker with the resource GPU, got none of "
            f"{len(workers)}. Start one with `dask worker {address} --nthreads 1 "
            "--resources GPU=1`, or use --device cpu."
        )


def _answers(client: Any, context: Sealed, address: str) -> Mapping[str, str | None]:
    try:
        answers = client.sync(
            client._run,
            _unfit,
            context.build,
            context.context,
            on_error="return",
            callback_timeout=ANSWER_WITHIN,
        )
    except TimeoutError as error:
        raise ClusterError(
            f"{address}: expected all workers to answer, got none of "
            f"one within {ANSWER_WITHIN:.0f} s. Look whether they are busy or stopped."
        ) from error
    except LOST:
        give_up(address)
    return {
        worker: _wording(worker, answer) if isinstance(answer, Exception) else answer
        for worker, answer in answers.items()
        if not isinstance(answer, CommClosedError)
    }


def _wording(worker: str, error: Exception) -> str:
    if not is_missing(error):
        raise ClusterError(
            f"worker {worker}: expected an answer, got {type(error).__name__}: "
            f"{error_line(error)}. Look into its log."
        ) from error
    return (
        f"expected this version of curvflow, got {error_line(error)}. "
        "Install the same there as where the run is started, and restart the workers."
    )


def _unfit(build: bytes, context: bytes, dask_worker: Worker) -> str | None:
    """Say why this worker is not fit, if it is not."""
    try:
        prepared(build, context)
    except CurvflowError as error:
        return str(error)
    return None
