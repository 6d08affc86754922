"""Results whose code has changed since they were computed, under the same version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from curvflow.flows.code.fingerprints import Code, Fingerprints
from curvflow.flows.code.normal import NORMAL_FORM
from curvflow.flows.cost import Costs, Prediction
from curvflow.flows.graph import Graph, Node
from curvflow.schemas.receipts import CodeRecord
from curvflow.stores.base import Index


@dataclass(frozen=True)
class Move:
    """A definition that is not what it was.

    Attributes:
        name: `module:function`, `module:Class.method` or `module:NAME`.
        change: `changed`, `added` or `removed`.
        path: the names by which the kind's function reaches it; empty if removed.
    """

    name: str
    change: str
    path: tuple[str, ...]


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

    Args:
        graph: the nodes, compared with the log.
        index: what the log says.
        codes: the code as it is.
        costs: predicts the time of nodes.

    Returns:
        What has moved and was not accepted, a kind each; results made before code was
        recorded, or whose code cannot be told, are not compared.
    """
    settled = _settled(index)
    moved: dict[str, dict[tuple[str, str], list[Node]]] = {}
    for node in graph:
        then = node.receipt.code if node.receipt else ""
        record = index.codes.get(then)
        now = codes.of(node) if record and record.form == NORMAL_FORM else Code()
        if now.fingerprint in ("", then):
            continue
        if settled.get(then, then) != settled.get(now.fingerprint, now.fingerprint):
            pairs = moved.setdefault(node.kind.name, {})
            pairs.setdefault((then, now.fingerprint), []).append(node)
    return [_drift(pairs, index, codes, costs) for pairs in moved.values()]


def _settled(index: Index) -> Mapping[str, str]:
    """Map fingerprints that mean the same to one of them."""
    same: dict[str, str] = {}
    for settlement in index.settlements:
        for before, after in settlement.pairs:
            old, new = same.get(before, before), same.get(after, after)
            same |= {one: new for one, other in same.items() if other == old}
            same |= {old: new, new: new, before: new, after: new}
    return same


def _drift(
    pairs: Mapping[tuple[str, str], list[Node]],
    index: Index,
    codes: Fingerprints,
    costs: Costs,
) -> Drift:
    nodes = [node for some in pairs.values() for node in some]
    moves: dict[str, Move] = {}
    for (then, _), some in pairs.items():
        for move in _moves(index.codes[then], codes.of(some[0])):
            moves.setdefault(move.name, move)
    kind = nodes[0].kind
    found = sorted(moves.values(), key=lambda move: (len(move.path), move.name))
    return Drift(
        kind.name, kind.version, nodes, list(pairs), found, costs.predicted(nodes)
    )


def _moves(then: CodeRecord, now: Code) -> list[Move]:
    moves = []
    for name in then.definitions.keys() | now.definitions.keys():
        before, after = then.definitions.get(name), now.definitions.get(name)
        if before != after:
            change = "changed" if before and after else "added" if after else "removed"
            moves.append(Move(name, change, now.paths.get(name, ())))
    return moves
