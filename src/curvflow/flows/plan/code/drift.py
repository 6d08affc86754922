"""Drift: results whose code has changed under an unchanged version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from curvflow.flows.graph.graph import Graph, Node, diverged_inputs
from curvflow.flows.plan.code.fingerprints import Code, Fingerprints
from curvflow.flows.plan.code.normal import NORMAL_FORM
from curvflow.flows.plan.why.cost import Costs, Prediction
from curvflow.schemas.records.receipts import CodeRecord, Receipt
from curvflow.stores.base import Index


class Accepted:
    """Compares the code of results with the code of today."""

    def __init__(self, index: Index, codes: Fingerprints) -> None:
        """Join the fingerprints that settlements call the same."""
        self._index, self._codes = index, codes
        self._untouched: dict[str, bool] = {}
        self._groups: dict[str, set[str]] = {}
        for settlement in index.settlements:
            for before, after in settlement.pairs:
                joined = {*self.alike(before), *self.alike(after)}
                self._groups.update(dict.fromkeys(joined, joined))

    def alike(self, fingerprint: str) -> Set[str]:
        """Return the fingerprints accepted as equal to the given, itself included."""
        return self._groups.get(fingerprint) or {fingerprint}

    def moved(self, receipt: Receipt, node: Node) -> tuple[str, str] | None:
        """Return the fingerprints then and now of a result whose code has changed.

        None if they mean the same, or cannot be compared: the result was made before
        code was recorded, or in another normal form, or today's code is unknown.
        """
        then = receipt.code
        if not self._is_comparable(then) or self._is_untouched(then):
            return None
        now = self._codes.of(node).fingerprint
        if now == "" or now in self.alike(then):
            return None
        return then, now

    def is_known(self, receipt: Receipt, node: Node) -> bool:
        """Return whether a result has known code that means the same as a node's."""
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


@dataclass(frozen=True)
class Move:
    """A definition that has changed.

    Attributes:
        name: `module:function`, `module:Class.method` or `module:NAME`.
        change: `changed`, `added` or `removed`.
        path: the names by which the kind's function reaches it; empty if removed.
    """

    name: str
    change: str
    path: tuple[str, ...]

    def __str__(self) -> str:
        names = [name.rpartition(":")[2] for name in self.path]
        way = f" (by {' > '.join(names)})" if len(names) > 1 else ""
        return f"{self.name} {self.change}{way}"


@dataclass(frozen=True)
class Drift:
    """Results of one kind whose code has moved under an unchanged version.

    Attributes:
        kind: name of the kind.
        version: as declared, then and now.
        nodes: whose results are concerned.
        pairs: fingerprints then and now, each pair once.
        moves: what has moved.
        cost: predicted time of computing them again.
    """

    kind: str
    version: int
    nodes: Sequence[Node]
    pairs: Sequence[tuple[str, str]]
    moves: Sequence[Move]
    cost: Prediction

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "kind": self.kind,
            "version": self.version,
            "nodes": len(self.nodes),
            "predicted_seconds": self.cost.seconds,
            "moved": [vars(move) for move in self.moves],
        }


def find_drifts(
    graph: Graph, index: Index, codes: Fingerprints, costs: Costs
) -> list[Drift]:
    """Compare the code of each result with the code that would compute it today.

    Returned are the changes that were not accepted, by kind. Not compared are results
    made before code was recorded, or whose code is unknown; those that diverged inputs
    left uncomputed; and lost ones, which run anyway.
    """
    accepted = Accepted(index, codes)
    moved: dict[str, dict[tuple[str, str], list[Node]]] = {}
    for node in graph:
        if node.receipt is None or not (pair := accepted.moved(node.receipt, node)):
            continue
        is_lost = node.state == "stale" and not node.revive
        is_passed_on = node.receipt.status == "diverged" and diverged_inputs(node)
        if not is_lost and not is_passed_on:
            pairs = moved.setdefault(node.kind.name, {})
            pairs.setdefault(pair, []).append(node)
    return [_drift(pairs, index, accepted, codes, costs) for pairs in moved.values()]


def _drift(
    pairs: Mapping[tuple[str, str], list[Node]],
    index: Index,
    accepted: Accepted,
    codes: Fingerprints,
    costs: Costs,
) -> Drift:
    nodes = [node for several in pairs.values() for node in several]
    moves: dict[str, Move] = {}
    for (then, _), moved in pairs.items():
        # Of accepted code, the nearest shows what is new.
        alike = (
            index.codes.get(fingerprint) for fingerprint in sorted(accepted.alike(then))
        )
        records = [record for record in alike if record and record.form == NORMAL_FORM]
        nearest = min(
            (_moves(record, codes.of(moved[0])) for record in records), key=len
        )
        moves |= {move.name: move for move in nearest if move.name not in moves}
    kind = nodes[0].kind
    return Drift(
        kind.name,
        kind.version,
        nodes,
        list(pairs),
        sorted(moves.values(), key=_from_the_top),
        costs.predicted(nodes),
    )


def _from_the_top(move: Move) -> tuple[bool, int, str]:
    # A removed definition is understood by its user, so it comes last.
    return not move.path, len(move.path), move.name


def _moves(then: CodeRecord, now: Code) -> list[Move]:
    moves = []
    for name in then.definitions.keys() | now.definitions.keys():
        before, after = then.definitions.get(name), now.definitions.get(name)
        if before != after:
            change = "changed" if before and after else "added" if after else "removed"
            moves.append(Move(name, change, now.paths.get(name, ())))
    return moves
