"""The interface of runners: tiles go out, and return finished, lost or interrupted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from curvflow.flows.graph.tiles import Computed, Failed, TileJob

Needs = Literal["cpu", "gpu"]


@dataclass(frozen=True)
class Finished:
    """The tile was computed; what succeeded is in the store, uncommitted.

    Attributes:
        reports: per node what became of it, in order.
        kept: names of the states kept on the way, of no use once this is published.
        lines: news for the observer.
    """

    reports: Sequence[Computed | Failed]
    kept: Sequence[str] = ()
    lines: Sequence[str] = ()


@dataclass(frozen=True)
class LostInput:
    """Results that the tile takes could not be read.

    Attributes:
        payloads: the fault of each of their payloads.
    """

    payloads: Mapping[str, str]


@dataclass(frozen=True)
class Died:
    """The process that computed the tile is no more; nothing came back."""

    reason: str


@dataclass(frozen=True)
class Interrupted:
    """The tile was asked to end; what it has so far is kept."""

    signal: int
    lines: Sequence[str] = ()


@dataclass(frozen=True)
class Broken:
    """The tile could not be done for a reason that every other tile will meet.

    Attributes:
        error: one line; ends the run.
        is_request: the request is wrong, rather than the store or the cluster.
    """

    error: str
    is_request: bool = False


Returned = Finished | LostInput | Died | Interrupted | Broken


class Runner(Protocol):
    """Computes tiles; any may be computed twice, for commits decide what counts."""

    def room(self, needs: Needs) -> int:
        """Return how many more tiles of this need may be submitted by now."""

    def submit(self, job: TileJob, *, needs: Needs, priority: float) -> int:
        """Take a tile, and return the number that `wait` gives back.

        Tiles of higher priority go first.
        """

    def wait(self, seconds: float) -> list[tuple[int, Returned]]:
        """Return the number and fate of tiles that came back, as soon as there are any.

        After so many seconds the list is empty.
        """

    def withdraw(self) -> list[int]:
        """Take back the tiles that have not begun, for the run is to end.

        `wait` gives their numbers back no more.
        """
