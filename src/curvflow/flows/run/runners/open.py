"""Open the runner that a run's options request."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np

from curvflow.errors import ClusterError, RequestError
from curvflow.flows.graph.tiles import count_tiles, groups_of
from curvflow.flows.plan.plan import Plan, is_analysis
from curvflow.flows.run.compute import Snapshots
from curvflow.flows.run.context import RunContext
from curvflow.flows.run.runners.base import Runner
from curvflow.flows.run.runners.inline import Inline, ThisProcess
from curvflow.flows.run.runners.job_context import job_context, sealed
from curvflow.schemas.options import RunOptions
from curvflow.schemas.records.receipts import RunRecord
from curvflow.stores.base import Store

if TYPE_CHECKING:
    from distributed import Client

# Seconds without a worker that could take a tile after which there is no hope; a queue
# may need long to start one.
PATIENCE, QUEUE_PATIENCE = 30.0, 1800.0

QUICK = 20.0  # seconds of computing that workers would not shorten

Tell = Callable[[str], None]

# A process takes seconds to load PyTorch; fewer tiles are done before it is there.
TILES_PER_PROCESS = 16


@dataclass(frozen=True)
class Processes:
    """Numbers of processes in addition to that of the run itself.

    Attributes:
        cpu: that compute on the CPU.
        gpu: that compute on a GPU, each on a separate one.
    """

    cpu: int = 0
    gpu: int = 0


def how_many(
    asked: int | None, *, gpus: int, cores: int, threads: int, tiles: int
) -> Processes:
    """Choose the numbers of processes; none where this one can do alone.

    Each GPU has one process, up to the number requested per type of device; stages
    that use no GPU run in further ones, as many as requested and cores allow.
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
def open_runner(context: RunContext) -> Iterator[Callable[[RunRecord], Runner]]:
    """Open the runner of a run, in this process where that suffices.

    Yielded is a function from the run's record to the runner: the run itself begins
    within the block, when nothing can be refused any more.

    Raises:
        RequestError: the runner cannot be had, or workers are not fit for it.
        ClusterError: the cluster does not come up.
    """
    store, options, tell = context.store, context.options, context.observer.tell
    folder = str(context.files.folder.resolve())
    snapshots = Snapshots(store, context.stop, tell=tell, folder=folder)
    with ExitStack() as stack:
        client = _client(stack, _cluster(context), options, tell)
        if client is None:
            process = stack.enter_context(ThisProcess(options))
            if not is_analysis(context.plan):
                process.ready()
            yield lambda _: Inline(store, process.machine, snapshots)
            return
        token = stack.enter_context(_token(store))
        jobs = job_context(context, token, every=snapshots.every)
        if options.dashboard:
            tell(_page(client))
        # Loaded here because a run without workers saves the second it takes.
        from curvflow.flows.run.runners.dask_runner import DaskRunner

        is_queue = options.cluster is not None
        patience = QUEUE_PATIENCE if is_queue else PATIENCE
        if is_queue or options.scheduler is not None:
            from curvflow.flows.run.runners.clients import await_first
            from curvflow.flows.run.runners.preflight import preflight

            await_first(client, within=patience, tell=tell, check=context.stop.check)
            preflight(client, sealed(jobs), device=options.device)
        yield lambda run: DaskRunner(
            client,
            sealed(replace(jobs, begun=run.begun)),
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
    """Open a cluster; without an option that names it, it may fail to come up."""
    if cluster is None:
        return None
    try:
        return stack.enter_context(cluster)
    except ClusterError as error:
        if _names_a_place(options):
            raise
        tell(f"all is computed in this process, for workers did not start: {error}")
        return None


def _cluster(context: RunContext) -> AbstractContextManager[Client] | None:
    """Return the cluster that is to be opened, if any."""
    plan, options = context.plan, context.options
    alone = why_alone(plan, context.store)
    if is_analysis(plan) and not _names_a_place(options):
        return None
    if options.scheduler is None and options.cluster is None:
        processes, masks = _processes(options, _num_tiles(context))
        if processes == Processes() or (alone and options.workers is None):
            return None
    if alone:
        raise RequestError(alone)
    if options.scheduler is not None:
        from curvflow.flows.run.runners.clients import remote_client

        return remote_client(options.scheduler)
    if options.cluster is not None:
        from curvflow.flows.run.runners.clients import cluster_client

        return cluster_client(options.cluster, context.observer.tell)
    from curvflow.flows.run.runners.local import local_client

    return local_client(
        processes.cpu, masks[: processes.gpu], dashboard=options.dashboard
    )


def _num_tiles(context: RunContext) -> int:
    """Count the tiles that workers could share; 1 if all is done before they start."""
    graph = context.plan.graph
    cost = context.costs.predicted(node for node in graph if node.state != "cached")
    if not cost.unknown and cost.seconds < QUICK:
        return 1
    return sum(count_tiles(groups_of(graph, stage)) for stage in graph.nodes)


def _names_a_place(options: RunOptions) -> bool:
    places = (options.workers, options.scheduler, options.cluster)
    return any(place is not None for place in places)


def why_alone(plan: Plan, store: Store) -> str | None:
    """Return the reason why no other process can compute a plan's tiles, if any."""
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
                "next to the study, or use --workers 1."
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
