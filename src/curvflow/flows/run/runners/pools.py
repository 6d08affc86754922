"""Pools: the workers of a cluster that take CPU and GPU tiles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from curvflow.flows.run.runners.base import Needs

# One that runs and one that waits: a worker never idles, and a third is too many to
# claim before others could have it.
PER_WORKER = 2


@dataclass(frozen=True)
class Worker:
    """One process of a cluster.

    Attributes:
        address: where it answers.
        threads: how many tasks it runs at a time.
        resources: what it declares to have.
    """

    address: str
    threads: int = 1
    resources: Mapping[str, float] = field(default_factory=dict)

    def has(self, wanted: Iterable[str]) -> bool:
        """Return whether it declares the resources."""
        return all(self.resources.get(name, 0) >= 1 for name in wanted)


def workers_in(identity: Mapping[str, Any]) -> list[Worker]:
    """Return the workers of a cluster from its scheduler's identity."""
    return [
        Worker(address, facts["nthreads"], dict(facts.get("resources") or {}))
        for address, facts in identity["workers"].items()
        if facts.get("status", "running") == "running"
    ]


def threads_fault(threads: int, scheduler: str) -> str | None:
    """Word the fault of a worker that runs several tiles at a time."""
    if threads == 1:
        return None
    return (
        f"expected one thread, got {threads}. Start it with `dask worker {scheduler} "
        "--nthreads 1`, once per core."
    )


class Pools:
    """The resources that tiles request, by those that workers declared so far.

    A resource once seen is requested to the end: when the last GPU goes, its tiles wait
    for another and do not slip onto a CPU.
    """

    def __init__(self, device: str) -> None:
        self._device, self._declared = device, set[str]()
        self.workers: list[Worker] = []

    def follow(self, workers: Iterable[Worker]) -> None:
        """Take note of the workers that are there by now."""
        self.workers = list(workers)
        for worker in self.workers:
            self._declared |= {name for name in worker.resources if worker.has([name])}

    def resources(self, needs: Needs) -> tuple[str, ...]:
        """Return the resources that tiles of this need request."""
        wanted = "GPU" if needs == "gpu" and self._device != "cpu" else "CPU"
        return (wanted,) if wanted in self._declared else ()

    def device(self, needs: Needs) -> str:
        """Return the device that such tiles compute on; `auto` for others."""
        return self._device if needs == "gpu" or self._device == "cpu" else "auto"

    def takers(self, resources: Iterable[str]) -> int:
        """Return the number of workers that may take tiles with these resources."""
        return sum(worker.has(resources) for worker in self.workers)

    def room(self, resources: Iterable[str]) -> int:
        """Return the number of such tiles that may be with the cluster.

        At least one, for a cluster that grows with the work has to see some.
        """
        return max(1, PER_WORKER * self.takers(resources))
