"""What a worker does with a tile."""

from __future__ import annotations

import pickle
from dataclasses import replace

from distributed import get_worker

from curvflow.errors import RequestError
from curvflow.flows.jobs import TileJob
from curvflow.flows.partials import Partials
from curvflow.flows.runners.base import Broken, Died, Finished, Interrupted, Returned
from curvflow.flows.runners.here import Here
from curvflow.flows.runners.inline import carried_out
from curvflow.flows.runners.missing import MISSING
from curvflow.flows.runners.once import begun_once
from curvflow.flows.runners.one_line import one_line
from curvflow.flows.runners.pools import threads_fault
from curvflow.flows.runners.prepared import Prepared, prepared
from curvflow.schemas.options import RunOptions


def carry_out(
    build: bytes, order: bytes, job: bytes, device: str, attempt: str
) -> Returned:
    """Compute a tile in this process.

    Args:
        build: of the run, sealed.
        order: of the run, sealed.
        job: the tile, sealed.
        device: `auto`, `cpu` or `cuda`.
        attempt: unique name of this attempt at the tile.

    Returns:
        The tile's fate.
    """
    worker = get_worker()
    address = worker.address
    if fault := threads_fault(worker.state.nthreads, worker.scheduler.address):
        return Broken(f"worker {address}: {fault}", is_request=True)
    try:
        with begun_once(attempt) as is_first:
            if not is_first:
                return Died(
                    "the worker that had begun it died: it was killed, or took more "
                    "memory than it has"
                )
            return _computed(prepared(build, order), job, device)
    except RequestError as error:
        return Broken(f"worker {address}: {error}", is_request=True)
    # Above this there is only the scheduler, which would make a traceback of it.
    except Exception as error:
        return Broken(f"worker {address}: {one_line(error)}")


def _computed(place: Prepared, job: bytes, device: str) -> Returned:
    order, lookout, told = place.order, place.lookout, list[str]()
    partials = Partials(place.store, lookout.stop, every=order.every, tell=told.append)
    options = RunOptions.model_validate(
        {
            "device": device,
            "num_threads": order.threads,
            "compiler": order.compiler,
        }
    )
    with lookout.watching(), Here(options) as here:
        tile = _unsealed(job)
        machine = here.machine(tile.kind)
        if lookout.stop.signal is not None:
            returned: Returned = Interrupted(lookout.stop.signal)
        else:
            returned = carried_out(place.store, tile, machine, partials)
    if isinstance(returned, Finished | Interrupted):
        return replace(returned, told=told)
    return returned


def _unsealed(job: bytes) -> TileJob:
    try:
        tile: TileJob = pickle.loads(job)
    except MISSING as error:
        raise RequestError(
            f"expected to know what the tile is made of, got {one_line(error)}. "
            "Install the same there as where the run is started, and restart it."
        ) from error
    return tile
