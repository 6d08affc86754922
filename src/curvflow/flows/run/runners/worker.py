"""A tile computed on a worker, once its process has been made ready.

The worker watches the run's heartbeat, so tiles end as well when the run was killed
or its machine is lost.

Dask gives the task of a lost worker to the next one, four times by default, and does
not say whether it had begun. Retries are for the run to decide: so each attempt is
marked with the scheduler before its computing begins, and starts at most once.
"""

from __future__ import annotations

import pickle
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from distributed import get_worker
from distributed.utils import sync

from curvflow.errors import RequestError, StoreError
from curvflow.flows.graph.heartbeats import HeartbeatMonitor
from curvflow.flows.graph.stopping import Stopping
from curvflow.flows.graph.tiles import TileJob
from curvflow.flows.plan.code.sources import Sources
from curvflow.flows.reads.windows import importing
from curvflow.flows.run.compute import Snapshots, carried_out
from curvflow.flows.run.runners.base import (
    Broken,
    Died,
    Finished,
    Interrupted,
    Returned,
)
from curvflow.flows.run.runners.clients import MISSING
from curvflow.flows.run.runners.inline import ThisProcess
from curvflow.flows.run.runners.job_context import JobContext, difference, this_build
from curvflow.flows.run.runners.pools import threads_fault
from curvflow.schemas.options import RunOptions
from curvflow.schemas.words import error_line
from curvflow.stores.base import Store
from curvflow.stores.open import open_store

LOOK_EVERY = 2.0


class RunWatcher:
    """Watches one run from a process that computes its tiles.

    Attributes:
        stop: set when the run is asked to end, or is no more.
        is_gone: whether it is no more.
    """

    def __init__(self, store: Store, begun: int, *, silence: float) -> None:
        self.stop, self.is_gone = Stopping(), False
        self._store, self._begun = store, begun
        self._watch = HeartbeatMonitor(store, silence=silence)
        self._looked = float("-inf")

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look now and then, until the block ends."""
        if self.is_gone:  # it may only have been paused
            self.stop.signal, self.is_gone = None, False
        over = threading.Event()
        thread = threading.Thread(
            target=self._look_on, args=(over,), name="curvflow-watcher", daemon=True
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
    """The store, context and watcher that a run's tiles use in a worker.

    Attributes:
        context: settings and code of the tiles.
        store: where results are.
        watcher: sees when the run ends.
    """

    context: JobContext
    store: Store
    watcher: RunWatcher


@lru_cache(maxsize=4)
def prepared(build: bytes, context: bytes) -> Prepared:
    """Check that this process computes what the run planned, and prepare for it.

    Raises:
        RequestError: this process has other software, code or another store.
    """
    if fault := difference(this_build(), pickle.loads(build)):
        raise RequestError(
            f"{fault}. Install the same there as where the run is started, and restart "
            "the workers."
        )
    wanted: JobContext = pickle.loads(context)
    if wanted.folder not in sys.path:
        sys.path.insert(0, wanted.folder)
    _import_modules(wanted)
    store = _opened(wanted.store)
    _check_shared(store, wanted)
    watcher = RunWatcher(store, wanted.begun, silence=wanted.silence)
    return Prepared(wanted, store, watcher)


@cache
def _opened(address: str) -> Store:
    return open_store(address, create=False)


def _import_modules(context: JobContext) -> None:
    """Import the modules of a run, and compare their files with the plan's.

    Raises:
        RequestError: a module cannot be imported, or is of other code.
    """
    before = _digests(context)
    for name, digest in before.items():
        if name not in _imported or name not in sys.modules:
            _imported[name] = digest
    if all(_imported[name] == digest for name, digest in context.files.items()):
        for name in context.modules:
            _import(name, context.folder)
    after = _digests(context)
    for name, digest in context.files.items():
        if not (_imported[name] == after[name] == digest):
            raise RequestError(
                f"{name}: expected the code that the run was planned with, got other "
                "code. Install the same there, or restart the workers if it changed."
            )


def _import(name: str, folder: str) -> None:
    try:
        with importing():
            import_module(name)
    except ModuleNotFoundError as error:
        raise RequestError(
            f"{name}: expected a module that can be imported, got {error}. Install it "
            f"there, or share the folder {folder}."
        ) from error
    # The node that needs it fails the same way, and reports it.
    except Exception:
        return


def _digests(context: JobContext) -> dict[str, str]:
    sources = Sources(Path(context.folder), Path(__file__).parents[3])
    return {name: sources.digest(name) for name in context.files}


def _check_shared(store: Store, context: JobContext) -> None:
    """Check that the store holds the run's token, and can be written.

    Raises:
        RequestError: it is another store, or cannot be written.
    """
    try:
        is_there = store.load_snapshot(context.token) is not None
        if is_there:
            mine = f"{context.token}{uuid4().hex}"
            store.save_snapshot(mine, {"token": np.zeros(1)})
            store.drop_snapshot(mine)
    except StoreError as error:
        raise RequestError(f"{error} (on {socket.gethostname()})") from error
    if not is_there:
        raise RequestError(
            f"{context.store}: expected the store of the run, got another one on "
            f"{socket.gethostname()}. Give --store a place that all workers share."
        )


def carry_out(
    build: bytes, context: bytes, job: bytes, device: str, attempt: str
) -> Returned:
    """Compute a tile in this process, and return its fate; arguments come as bytes."""
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
            return _computed(prepared(build, context), job, device)
    except RequestError as error:
        return Broken(f"worker {address}: {error}", is_request=True)
    # Above this there is only the scheduler, which would make a traceback of it.
    except Exception as error:
        return Broken(f"worker {address}: {error_line(error)}")


def _computed(place: Prepared, job: bytes, device: str) -> Returned:
    context, watcher, lines = place.context, place.watcher, list[str]()
    snapshots = Snapshots(
        place.store,
        watcher.stop,
        every=context.every,
        tell=lines.append,
        folder=context.folder,
    )
    options = RunOptions.model_validate(
        {
            "device": device,
            "num_threads": context.threads,
            "compiler": context.compiler,
        }
    )
    with watcher.watching(), ThisProcess(options) as process:
        with importing(is_likely=bool(context.modules)):
            tile = _unsealed(job)
        machine = process.machine(tile.kind)
        if watcher.stop.signal is not None:
            returned: Returned = Interrupted(watcher.stop.signal)
        else:
            returned = carried_out(place.store, tile, machine, snapshots)
    if isinstance(returned, Finished | Interrupted):
        return replace(returned, lines=lines)
    return returned


def _unsealed(job: bytes) -> TileJob:
    try:
        tile: TileJob = pickle.loads(job)
    except MISSING as error:
        raise RequestError(
            f"expected to know what the tile is made of, got {error_line(error)}. "
            "Install the same there as where the run is started, and restart it."
        ) from error
    return tile


ANSWER_WITHIN = 30.0  # seconds until a scheduler that is silent counts as lost


@contextmanager
def begun_once(attempt: str) -> Iterator[bool]:
    """Mark an attempt as begun until the block ends.

    Yields False if it was begun before, by a process that has died.
    """
    worker = get_worker()

    def ask(question: str) -> Any:
        return sync(worker.loop, getattr(worker.scheduler, question), name=attempt)

    if ask("event_is_set"):
        yield False
        return
    ask("event_set")
    try:
        yield True
    finally:
        with suppress(OSError):  # nobody is left to be told
            ask("event_clear")


def had_begun(client: Any, attempt: str) -> bool:
    """Return whether a lost attempt had begun, and forget it.

    False as well if the scheduler does not answer.
    """
    try:
        begun = client.sync(client.scheduler.event_is_set, name=attempt)
        client.sync(client.scheduler.event_clear, name=attempt)
    except OSError:
        return False
    return bool(begun)


def in_work(client: Any, attempts: Iterable[str]) -> set[str]:
    """Return the names of attempts that have begun and are not over.

    All of them if the scheduler does not answer.
    """
    asked = list(attempts)

    async def ask() -> list[bool]:
        return [await client.scheduler.event_is_set(name=name) for name in asked]

    try:
        begun = client.sync(ask, callback_timeout=ANSWER_WITHIN)
    except (OSError, AttributeError):  # there is no connection
        return set(asked)
    return {name for name, has in zip(asked, begun, strict=True) if has}
