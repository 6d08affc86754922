"""Open the runner that a run's options ask for."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np

from curvflow.errors import ClusterError, RequestError
from curvflow.flows.plan.plan import Plan, is_analysis
from curvflow.flows.run.runners.base import Runner
from curvflow.flows.run.runners.inline import Here, Inline
from curvflow.flows.run.runners.job_context import order_for, sealed
from curvflow.flows.run.tile.snapshots import Partials
from curvflow.schemas.options import RunOptions
from curvflow.schemas.records.receipts import RunRecord
from curvflow.stores.base import Store

if TYPE_CHECKING:
    from distributed import Client

# Seconds without a worker that could take a tile after which there is no hope; a queue
# may need long to start one.
PATIENCE, QUEUE_PATIENCE = 30.0, 1800.0

Tell = Callable[[str], None]

# A process takes seconds to load PyTorch; fewer tiles are done before it is there.
TILES_PER_PROCESS = 16


@dataclass(frozen=True)
class Processes:
    """Numbers of processes beside that of the run itself.

    Attributes:
        cpu: that compute on the CPU.
        gpu: that compute on a GPU, each on one of its own.
    """

    cpu: int = 0
    gpu: int = 0


def how_many(
    asked: int | None, *, gpus: int, cores: int, threads: int, tiles: int
) -> Processes:
    """Choose how many processes compute; none but this one where it can do alone.

    Each GPU has one process, up to the number asked for. Stages that use none run in
    further ones: as many as were asked for, as far as there are cores for them.

    Args:
        asked: number of processes, per kind of device; None to choose.
        gpus: that are to be used.
        cores: that this process may use.
        threads: of one tile.
        tiles: to be computed.

    Returns:
        The processes to start.
    """
    slots = max(1, cores // threads)
    if asked is None:
        asked = min(gpus, tiles) if gpus else min(slots, tiles // TILES_PER_PROCESS)
    if asked <= 1:
        return Processes()
    if not gpus:
        return Processes(cpu=asked)
    used = min(asked, gpus)
    return Processes(cpu=max(1, min(asked, slots - used)), gpu=used)


@contextmanager
def open_runner(
    plan: Plan,
    store: Store,
    options: RunOptions,
    folder: Path,
    partials: Partials,
    tiles: int,
    tell: Tell,
) -> Iterator[Callable[[RunRecord], Runner]]:
    """Open what computes the tiles of a run, for as long as the block runs.

    The run itself begins within the block, when nothing can be refused any more.

    Args:
        plan: what is to be done; its code has been told.
        store: holds the results.
        options: how to compute.
        folder: the study's.
        partials: of this process; tells when the run is asked to end.
        tiles: how many there are to be computed, about.
        tell: takes a line.

    Yields:
        From the run's record to its runner, which computes in this process where that
        suffices.

    Raises:
        RequestError: what was asked for cannot be had, or workers are not fit for it.
        ClusterError: the cluster does not come up.
    """
    with ExitStack() as stack:
        client = _client(
            stack, _cluster(plan, store, options, tiles, tell), options, tell
        )
        if client is None:
            here = stack.enter_context(Here(options))
            if not is_analysis(plan):
                here.ready()
            yield lambda _: Inline(store, here.machine, partials)
            return
        token = stack.enter_context(_token(store))
        order = order_for(plan, store, options, folder, partials, token)
        if options.dashboard:
            tell(_page(client))
        # Loaded here because a run without workers saves the second it takes.
        from curvflow.flows.run.runners.dask_runner import DaskRunner

        is_queue = options.cluster is not None
        patience = QUEUE_PATIENCE if is_queue else PATIENCE
        if is_queue or options.scheduler is not None:
            from curvflow.flows.run.runners.preflight import preflight
            from curvflow.flows.run.runners.remote import await_first

            check = partials.stop.check
            await_first(client, within=patience, tell=tell, check=check)
            preflight(client, sealed(order), device=options.device)
        yield lambda run: DaskRunner(
            client,
            sealed(replace(order, begun=run.begun)),
            device=options.device,
            patience=patience,
            tell=tell,
        )


def _client(
    stack: ExitStack,
    cluster: AbstractContextManager[Client] | None,
    options: RunOptions,
    tell: Tell,
) -> Client | None:
    """Open a cluster; one that nobody asked for may fail to come up."""
    if cluster is None:
        return None
    try:
        return stack.enter_context(cluster)
    except ClusterError as error:
        if _names_a_place(options):
            raise
        tell(f"all is computed in this process, for others did not start: {error}")
        return None


def _cluster(
    plan: Plan, store: Store, options: RunOptions, tiles: int, tell: Tell
) -> AbstractContextManager[Client] | None:
    """Return the cluster that is to be opened, if any."""
    alone = why_alone(plan, store)
    if is_analysis(plan) and not _names_a_place(options):
        return None
    if options.scheduler is None and options.cluster is None:
        processes, masks = _processes(options, tiles)
        if processes == Processes() or (alone and options.workers is None):
            return None
    if alone:
        raise RequestError(alone)
    if options.scheduler is not None:
        from curvflow.flows.run.runners.remote import remote_client

        return remote_client(options.scheduler)
    if options.cluster is not None:
        from curvflow.flows.run.runners.remote import cluster_client

        return cluster_client(options.cluster, tell)
    from curvflow.flows.run.runners.local import local_client

    return local_client(
        processes.cpu, masks[: processes.gpu], dashboard=options.dashboard
    )


def _names_a_place(options: RunOptions) -> bool:
    places = (options.workers, options.scheduler, options.cluster)
    return any(place is not None for place in places)


def why_alone(plan: Plan, store: Store) -> str | None:
    """Say why no other process could compute a plan's tiles; None if one could."""
    if store.location == "memory:":
        return (
            "--store: expected a store that workers can reach, got memory:. Use a "
            "folder, or --workers 1."
        )
    for stage in plan.graph.study.stages.values():
        module = stage.kind.home.partition(":")[0]
        # Code that was given to `exec` is in no module at all.
        if module == "__main__" or (module and module not in sys.modules):
            return (
                f"{stage.kind.name}: expected a kind of a module that workers can "
                "import, got one of the script or notebook itself. Move it to a module "
                "beside the study, or use --workers 1."
            )
    return None


def _page(client: Client) -> str:
    try:
        return f"Dask's page: {client.dashboard_link}"
    except KeyError:
        return "Dask's page: this scheduler serves none; it may lack Bokeh"


def _processes(options: RunOptions, tiles: int) -> tuple[Processes, list[str]]:
    if options.workers == 1 or (options.workers is None and tiles < 2):
        return Processes(), []
    masks = _masks() if options.device != "cpu" else []
    processes = how_many(
        options.workers,
        gpus=len(masks),
        cores=len(os.sched_getaffinity(0)),
        threads=options.num_threads,
        tiles=tiles,
    )
    return processes, masks


def _masks() -> list[str]:
    """Return a device mask for each GPU that this process may use."""
    # Loaded here because a run without tiles saves the second that torch takes.
    from curvflow.tasks.machine import devices

    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = allowed.split(",") if allowed else []
    count = len(devices().gpus)
    return names[:count] if names else [str(n) for n in range(count)]


@contextmanager
def _token(store: Store) -> Iterator[str]:
    """Put something into the store that workers have to find there."""
    token = f"shared{uuid4().hex}"
    store.save_snapshot(token, {"token": np.zeros(1)})
    try:
        yield token
    finally:
        store.drop_snapshot(token)
