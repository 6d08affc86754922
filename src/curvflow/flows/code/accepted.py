"""Which code counts as the same: equal, or accepted by a person."""

from __future__ import annotations

from collections.abc import Set

from curvflow.flows.code.fingerprints import Fingerprints
from curvflow.flows.code.normal import NORMAL_FORM
from curvflow.flows.graph import Node
from curvflow.schemas.records.receipts import Receipt
from curvflow.stores.base import Index


class Accepted:
    """Compares the code of results with the code of today."""

    def __init__(self, index: Index, codes: Fingerprints) -> None:
        """Join the fingerprints that settlements call the same.

        Args:
            index: what the log says.
            codes: the code as it is.
        """
        self._index, self._codes = index, codes
        self._untouched: dict[str, bool] = {}
        self._groups: dict[str, set[str]] = {}
        for settlement in index.settlements:
            for before, after in settlement.pairs:
                joined = {*self.alike(before), *self.alike(after)}
                self._groups.update(dict.fromkeys(joined, joined))

    def alike(self, fingerprint: str) -> Set[str]:
        """Return the fingerprints that mean the same as one, itself included."""
        return self._groups.get(fingerprint) or {fingerprint}

    def moved(self, receipt: Receipt, node: Node) -> tuple[str, str] | None:
        """Compare the code of a result with the code that would compute a node.

        Args:
            receipt: of the result.
            node: whose code is that of today.

        Returns:
            Fingerprints then and now if they mean different things; None if they mean
            the same, or if the result was made before code was recorded, or in another
            normal form, or if the code of today cannot be told.
        """
        then = receipt.code
        if not self._is_comparable(then) or self._is_untouched(then):
            return None
        now = self._codes.of(node).fingerprint
        if now == "" or now in self.alike(then):
            return None
        return then, now

    def is_known(self, receipt: Receipt, node: Node) -> bool:
        """Return whether the code of a result is known to be that of a node.

        Args:
            receipt: of the result.
            node: whose code is that of today.

        Returns:
            Whether both mean the same; not if either cannot be told or compared.
        """
        then = receipt.code
        if not self._is_comparable(then):
            return False
        if self._is_untouched(then):
            return True
        now = self._codes.of(node).fingerprint
        return now != "" and now in self.alike(then)

    def _is_comparable(self, then: str) -> bool:
        record = self._index.codes.get(then)
        return record is not None and record.form == NORMAL_FORM

    def _is_untouched(self, then: str) -> bool:
        if then not in self._untouched:
            files = self._index.codes[then].files
            self._untouched[then] = bool(files) and self._codes.are_as_before(files)
        return self._untouched[then]
