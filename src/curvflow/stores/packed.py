"""A store whose payloads are packs: what the local and the object store share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from curvflow.errors import CorruptPayloadError
from curvflow.schemas.nodes import Array
from curvflow.schemas.records.receipts import Receipt
from curvflow.stores.base import Layout
from curvflow.stores.contents import read_parts
from curvflow.stores.logged import LoggedStore

if TYPE_CHECKING:
    from curvflow.stores.packs import Pack

T = TypeVar("T")


class PackedStore(LoggedStore):
    """Reads results out of opened packs."""

    @abstractmethod
    def _open(self, payload: str) -> Pack:
        """Return an opened payload, which may stay open."""

    @abstractmethod
    def _forget(self) -> None:
        """Close the payloads that are open."""

    def layout(self, payload: str) -> Mapping[str, Layout]:
        """Return the variables of a payload, read from its metadata alone."""
        return self._twice(lambda: self._open(payload).layout())

    def read(self, receipt: Receipt, parts: Sequence[str]) -> dict[str, Array]:
        """Read parts of one node's result and verify their digests.

        Args:
            receipt: names the payload, the slot and the digests.
            parts: variable names, or `variable@label` for one slice of a sliced one.

        Returns:
            Part name to array, without the `node` dimension.

        Raises:
            UnknownNameError: the receipt has no such part.
            CorruptPayloadError: the payload is missing, lacks a chunk, fails a
                checksum or does not have the digests of the receipt.
        """

        def fetch(variable: str) -> Array:
            return self._open(str(receipt.payload)).node(variable, receipt.slot)

        return self._twice(lambda: read_parts(receipt, parts, fetch))

    def contents(self, payload: str) -> dict[str, Array]:
        """Return all variables of all nodes of a payload."""
        return self._twice(lambda: self._open(payload).everything())

    def _twice(self, read: Callable[[], T]) -> T:
        """Read again what cannot be read: it may have been moved in the midst of it."""
        try:
            return read()
        except CorruptPayloadError:
            self._forget()
        try:
            return read()
        except CorruptPayloadError:
            self._forget()  # another run may heal it by then
            raise

    def inspect(self, payload: str, receipts: Iterable[Receipt]) -> None:
        """Read all of a payload, as it is there now, and compare it with receipts.

        Args:
            payload: its id.
            receipts: of results in it.

        Raises:
            CorruptPayloadError: it cannot be read, or something differs.
        """
        self._forget()  # what is open may have been replaced since
        super().inspect(payload, receipts)
