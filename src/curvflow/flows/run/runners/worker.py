"""What a worker does with a tile, once its process has been made ready.

Whoever computes a tile for a run looks at the run's sign of life. Nothing else is
needed, so tiles end as well when the run was killed or its machine is lost.
"""

from __future__ import annotations

import pickle
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from uuid import uuid4

import numpy as np
from distributed import get_worker

from curvflow.errors import RequestError, StoreError
from curvflow.flows.graph.heartbeats import Watch
from curvflow.flows.graph.jobs import TileJob
from curvflow.flows.graph.stopping import Stopping
from curvflow.flows.plan.code.sources import Sources
from curvflow.flows.run.runners.at_most_once import begun_once
from curvflow.flows.run.runners.base import (
    Broken,
    Died,
    Finished,
    Interrupted,
    Returned,
)
from curvflow.flows.run.runners.client import MISSING, one_line
from curvflow.flows.run.runners.inline import Here, carried_out
from curvflow.flows.run.runners.job_context import Order, difference, this_build
from curvflow.flows.run.runners.pools import threads_fault
from curvflow.flows.run.tile.snapshots import Partials
from curvflow.schemas.options import RunOptions
from curvflow.stores.base import Store
from curvflow.stores.open import open_store

LOOK_EVERY = 2.0


class Lookout:
    """Watches one run from a process that computes its tiles.

    Attributes:
        stop: set when the run is asked to end, or is no more.
        is_gone: whether it is no more.
    """

    def __init__(self, store: Store, begun: int, *, silence: float) -> None:
        """Prepare to watch.

        Args:
            store: holds the signs of life.
            begun: log number at which the run began.
            silence: seconds without a sign of life after which the run is gone.
        """
        self.stop, self.is_gone = Stopping(), False
        self._store, self._begun = store, begun
        self._watch = Watch(store, silence=silence)
        self._looked = float("-inf")

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look now and then, until the block ends.

        Yields:
            Nothing.
        """
        if self.is_gone:  # it may only have been paused
            self.stop.signal, self.is_gone = None, False
        over = threading.Event()
        thread = threading.Thread(
            target=self._look_on, args=(over,), name="curvflow-lookout", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def look(self) -> None:
        """Look once."""
        self._looked = time.monotonic()
        with suppress(StoreError):  # of a store that cannot be read the tile will tell
            asked = self._store.heartbeats().get(self._begun, {}).get("stop")
            if isinstance(asked, int):
                self.stop.signal = asked
            elif self._watch.is_gone(self._begun):
                self.stop.signal, self.is_gone = int(signal.SIGTERM), True

    def _look_on(self, over: threading.Event) -> None:
        while not over.wait(max(0.0, self._looked + LOOK_EVERY - time.monotonic())):
            self.look()


_imported: dict[str, str] = {}  # digests of files, as this process imported them


@dataclass(frozen=True)
class Prepared:
    """What the tiles of a run find in a worker's process.

    Attributes:
        order: how to carry them out.
        store: where results are.
        lookout: tells when the run ends.
    """

    order: Order
    store: Store
    lookout: Lookout


@lru_cache(maxsize=4)
def prepared(build: bytes, order: bytes) -> Prepared:
    """Check that tiles computed here are what the run planned, and prepare for them.

    Args:
        build: of the run, sealed.
        order: of the run, sealed.

    Returns:
        What its tiles need.

    Raises:
        RequestError: this process has other software, code or another store.
    """
    if found := difference(this_build(), pickle.loads(build)):
        raise RequestError(
            f"{found}. Install the same there as where the run is started, and restart "
            "the workers."
        )
    asked: Order = pickle.loads(order)
    if asked.folder not in sys.path:
        sys.path.insert(0, asked.folder)
    _bring_in(asked)
    store = _opened(asked.store)
    _check_shared(store, asked)
    return Prepared(asked, store, Lookout(store, asked.begun, silence=asked.silence))


@cache
def _opened(address: str) -> Store:
    return open_store(address, create=False)


def _bring_in(order: Order) -> None:
    """Import the modules of a run, and hold their files against those it was told of.

    Raises:
        RequestError: a module cannot be imported, or is of other code.
    """
    before = _digests(order)
    for name, digest in before.items():
        if name not in _imported or name not in sys.modules:
            _imported[name] = digest
    if all(_imported[name] == wanted for name, wanted in order.files.items()):
        for name in order.modules:
            _import(name, order.folder)
    after = _digests(order)
    for name, wanted in order.files.items():
        if not (_imported[name] == after[name] == wanted):
            raise RequestError(
                f"{name}: expected the code that the run was planned with, got other "
                "code. Install the same there, or restart the workers if it changed."
            )


def _import(name: str, folder: str) -> None:
    try:
        import_module(name)
    except ModuleNotFoundError as error:
        raise RequestError(
            f"{name}: expected a module that can be imported, got {error}. Install it "
            f"there, or share the folder {folder}."
        ) from error
    # The node that needs it fails the same way, and tells of it.
    except Exception:
        return


def _digests(order: Order) -> dict[str, str]:
    sources = Sources(Path(order.folder), Path(__file__).parents[3])
    return {name: sources.digest(name) for name in order.files}


def _check_shared(store: Store, order: Order) -> None:
    """Find in the store what the run has put there, and write to it.

    Raises:
        RequestError: it is another store, or cannot be written.
    """
    try:
        is_there = store.load_snapshot(order.token) is not None
        if is_there:
            mine = f"{order.token}{uuid4().hex}"
            store.save_snapshot(mine, {"token": np.zeros(1)})
            store.drop_snapshot(mine)
    except StoreError as error:
        raise RequestError(f"{error} (on {socket.gethostname()})") from error
    if not is_there:
        raise RequestError(
            f"{order.store}: expected the store of the run, got another one on "
            f"{socket.gethostname()}. Give --store a place that all workers share."
        )


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
