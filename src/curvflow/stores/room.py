"""What takes room in a store, and how it is moved aside and removed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

Place = Literal["payloads", "trash", "quarantine", "tmp", "partials", "runs"]


@dataclass(frozen=True, slots=True)
class Item:
    """A file, or a folder with all in it.

    Attributes:
        path: within the store, parts joined by `/`.
        bytes: on the disk.
        time: when it was last written, or moved to the trash, by the store's clock.
    """

    path: str
    bytes: int
    time: float

    @property
    def name(self) -> str:
        """The path's last part."""
        return self.path.rpartition("/")[2]

    @property
    def payload(self) -> str:
        """Id of the payload, if it is one."""
        return self.name.partition(".")[0]


class Room(Protocol):
    """The files of a store, for those who tidy up.

    Nothing else than what a store has written is listed, so nothing else is touched.
    Times are the store's own; the clock of whoever tidies up is never asked.
    """

    def exists(self) -> bool:
        """Whether the store is there, even if nothing is in it."""

    def clock(self) -> float:
        """Return the store's time; an earlier one if nothing can be written."""

    def committed(self, number: int) -> float:
        """Return the time of an entry of the log."""

    def items(self, place: Place) -> list[Item]:
        """Return what is in one place.

        Args:
            place: `runs` stands for signs of life alone.

        Returns:
            In the order of their paths; what goes meanwhile is left out.
        """

    def move(self, item: Item, folder: str) -> bool:
        """Move a payload to another folder of the store.

        At every moment it is in the one, in the other, or in both.

        Args:
            item: the payload.
            folder: within the store: `trash` or `quarantine` and a number, or where
                payloads are.

        Returns:
            Whether it was there to be moved.
        """

    def remove(self, items: Iterable[Item]) -> None:
        """Remove what is there of these, for good."""


def home(item: Item) -> str:
    """Return the folder in which a payload is at home."""
    return f"payloads/{item.payload[:2]}"


def aside(place: Literal["trash", "quarantine"], number: int) -> str:
    """Return the folder for what is moved aside by one entry of the log."""
    return f"{place}/{number:010}"
