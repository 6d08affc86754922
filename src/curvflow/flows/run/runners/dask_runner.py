"""Compute tiles by the workers of a Dask cluster.

So a scheduler and its workers are given a function that they have for certain, and what
they lack is an error of the task. A function that cannot be imported would end the
worker that is given it.
"""

from __future__ import annotations

import pickle
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any
from uuid import uuid4

from distributed import Client
from distributed.scheduler import KilledWorker

from curvflow.errors import ClusterError
from curvflow.flows.graph.tiles import TileJob
from curvflow.flows.run.runners.base import Broken, Died, Needs, Returned
from curvflow.flows.run.runners.clients import LOST, give_up, is_missing
from curvflow.flows.run.runners.job_context import Sealed
from curvflow.flows.run.runners.pools import Pools, workers_in
from curvflow.flows.run.runners.worker import (
    ANSWER_WITHIN,
    carry_out,
    had_begun,
    in_work,
)
from curvflow.schemas.words import error_line


class _Call:
    def __init__(self, function: Callable[..., object], arguments: tuple[Any, ...]):
        self._function, self._arguments = function, arguments

    def __reduce__(self) -> tuple[Callable[..., object], tuple[Any, ...]]:
        return self._function, self._arguments


def as_bytes(function: Callable[..., object], *arguments: bytes | str) -> bytes:
    """Return bytes that `pickle.loads` turns into the result of a call."""
    return pickle.dumps(_Call(function, arguments))


# Seconds: between looks at the cluster; until a result must have come after it was
# announced.
LOOK_EVERY, FETCH_WITHIN = 1.0, 30.0

# Seconds after which a result is asked for anew: to reach a worker that has just died
# takes as long as Dask has patience, but by then another may have the result.
FETCH_EVERY = 2.0

# Times that a tile is sent again after it was lost before it began.
SEND_AGAIN = 5

# Seconds that the news of a finished tile may be on its way.
NEWS_WITHIN = 0.2


@dataclass
class _Tile:
    """A tile that is with the cluster."""

    job: bytes
    stage: str
    needs: Needs
    resources: tuple[str, ...]
    priority: float
    attempt: str = ""
    future: Any = None  # whose methods have no types
    sent: int = 0


class DaskRunner:
    """Sends tiles to a scheduler, a few per worker, and takes back their fates.

    Dask repeats nothing by itself: an attempt begins once at most. Tiles that were lost
    before they began are sent again; those lost afterwards are `Died`.
    """

    def __init__(
        self,
        client: Client,
        jobs: Sealed,
        *,
        device: str,
        patience: float,
        tell: Callable[[str], None],
    ) -> None:
        """Compute on a connected cluster.

        After `patience` seconds without any worker that could take a tile, it gives up.
        """
        self._client: Any = client  # most of its methods have no types
        self._jobs = jobs
        self._patience, self._tell = patience, tell
        self._pools = Pools(device)
        scheduler: Any = client.scheduler
        self._address: str = scheduler.address
        self._tiles: dict[int, _Tile] = {}
        self._ended: SimpleQueue[tuple[int, str]] = SimpleQueue()
        self._count, self._looked = 0, float("-inf")
        self._starved: dict[tuple[str, ...], float] = {}
        self._is_ending = False

    def room(self, needs: Needs) -> int:
        """Leave each worker one tile to run and one to wait."""
        self._look()
        resources = self._pools.resources(needs)
        here = Counter(tile.resources for tile in self._tiles.values())[resources]
        return max(0, self._pools.room(resources) - here)

    def submit(self, job: TileJob, *, needs: Needs, priority: float) -> int:
        """Send a tile to the scheduler."""
        self._look()
        self._count += 1
        tile = _Tile(
            pickle.dumps(job),
            job.stage or job.kind,
            needs,
            self._pools.resources(needs),
            priority,
        )
        self._tiles[self._count] = tile
        self._send(self._count, tile)
        return self._count

    def wait(self, seconds: float) -> list[tuple[int, Returned]]:
        """Return the tiles that came back, as soon as there are any."""
        until = time.monotonic() + seconds
        came_back: list[tuple[int, Returned]] = []
        while not came_back:
            self._look()
            left = until - time.monotonic()
            try:
                ended = [self._ended.get(timeout=max(0.0, min(left, LOOK_EVERY)))]
            except Empty:
                if left <= LOOK_EVERY:
                    break
                continue
            while not self._ended.empty():
                ended.append(self._ended.get())
            came_back = [
                (n, returned) for n, a in ended if (returned := self._returned(n, a))
            ]
        return came_back

    def withdraw(self) -> list[int]:
        """Take back the tiles that have not begun, and those that no worker is for."""
        self._is_ending = True
        out = {n: t for n, t in self._tiles.items() if t.future.status == "pending"}
        begun = in_work(self._client, [tile.attempt for tile in out.values()])
        idle = [
            number
            for number, tile in out.items()
            if tile.attempt not in begun or not self._pools.takers(tile.resources)
        ]
        if idle:
            time.sleep(NEWS_WITHIN)
        taken = [n for n in idle if out[n].future.status == "pending"]
        for number in taken:
            tile = self._tiles.pop(number)
            tile.future.release()
            if tile.attempt in begun:
                had_begun(self._client, tile.attempt)  # which forgets it
        return taken

    def _send(self, number: int, tile: _Tile) -> None:
        tile.sent += 1
        # Dask learns from the part before the first number how long such tiles take.
        attempt = tile.attempt = f"{tile.stage}-{uuid4().hex}"
        device = self._pools.device(tile.needs)
        call = as_bytes(
            carry_out, self._jobs.build, self._jobs.context, tile.job, device, attempt
        )
        tile.future = self._client.submit(
            pickle.loads,
            call,
            key=attempt,
            pure=False,
            retries=0,
            priority=tile.priority,
            resources=dict.fromkeys(tile.resources, 1) or None,
        )
        tile.future.add_done_callback(lambda _: self._ended.put((number, attempt)))

    def _returned(self, number: int, attempt: str) -> Returned | None:
        """Return the fate of an attempt; None if the tile was sent again."""
        tile = self._tiles.get(number)
        if tile is None or tile.attempt != attempt:
            return None
        returned = self._fate(tile)
        if returned is None:
            self._look(at_once=True)
            self._send(number, tile)
            return None
        tile.future.release()
        del self._tiles[number]
        return returned

    def _fate(self, tile: _Tile) -> Returned | None:
        future = tile.future
        if future.status == "finished":
            try:
                returned = _fetched(future)
            # Whatever it is, the result is lost with its worker, and the tile is whole.
            except Exception as error:
                return self._lost(tile, f"its result was lost: {error}")
            if isinstance(returned, Died):
                had_begun(self._client, tile.attempt)  # which forgets it
            return returned
        if future.status != "error":
            return self._lost(tile, "the scheduler has dropped it")
        raised = future.exception(timeout=FETCH_WITHIN)
        if is_missing(raised):
            return Broken(
                f"{self._address}: expected workers with this version of curvflow, "
                f"got {error_line(raised)}. Install it there.",
                is_request=True,
            )
        if not isinstance(raised, KilledWorker):
            return Broken(
                f"{self._address}: expected a worker to do a tile, got "
                f"{type(raised).__name__}: {error_line(raised)}. Look into its log."
            )
        where = raised.last_worker.address
        reason = f"worker {where} died: it was killed, or took more memory than it has"
        if had_begun(self._client, tile.attempt):
            return Died(reason)
        return self._lost(tile, reason)

    def _lost(self, tile: _Tile, reason: str) -> Died | None:
        return Died(reason) if tile.sent > SEND_AGAIN else None

    def _look(self, *, at_once: bool = False) -> None:
        """Request the list of workers, now and then.

        Raises:
            ClusterError: the scheduler is lost, or no worker comes to take a tile.
        """
        now = time.monotonic()
        if not at_once and now - self._looked < LOOK_EVERY:
            return
        self._await_connection()
        try:
            identity = self._client.sync(
                self._client.scheduler.identity,
                n_workers=-1,
                callback_timeout=ANSWER_WITHIN,
            )
        except LOST:  # it has gone just now
            self._await_connection()
            give_up(self._address)
        self._pools.follow(workers_in(identity))
        self._looked = time.monotonic()
        if not self._is_ending:  # else such tiles are taken back
            self._find_starved()

    def _await_connection(self) -> None:
        while self._client.status == "connecting":  # it gives up by itself
            time.sleep(0.1)
        if self._client.status != "running":
            give_up(self._address)

    def _find_starved(self) -> None:
        now, waiting = time.monotonic(), {t.resources for t in self._tiles.values()}
        starved = {
            resources for resources in waiting if not self._pools.takers(resources)
        }
        self._starved = {
            resources: self._starved.get(resources, now) for resources in starved
        }
        for resources, since in self._starved.items():
            what = " and ".join(resources)
            with_it = f" with the resource {what}" if what else ""
            if now - since > self._patience:
                option = f" --resources {what}=1" if what else ""
                other = ", or use --device cpu" if what == "GPU" else ""
                raise ClusterError(
                    f"{self._address}: expected a worker{with_it}, got none for "
                    f"{self._patience:.0f} s. What is finished is kept: start one with "
                    f"`dask worker {self._address} --nthreads 1{option}`{other}."
                )
            if since == now:
                self._tell(f"waiting for a worker{with_it}")


def _fetched(future: Any) -> Returned:
    until = time.monotonic() + FETCH_WITHIN
    while True:
        try:
            returned: Returned = future.result(timeout=FETCH_EVERY)
        except TimeoutError:
            if time.monotonic() > until:
                raise
        else:
            return returned
