"""Action keys from the results that nodes take, and receipts from action keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from curvflow.flows.graph.graph import Node, Taken
from curvflow.schemas.keys import action_key, sha256
from curvflow.schemas.records.receipts import DIVERGED, Receipt
from curvflow.stores.base import Index


def compare(nodes: Iterable[Node], index: Index) -> None:
    """Set key, receipt and state of nodes from the receipts of what they take."""
    for node in nodes:
        node.key = key_of(node)
        _compare(node, index)


def look_up(nodes: Sequence[Node], excerpt: Callable[[Iterable[str]], Index]) -> None:
    """Compare nodes whose inputs are there with the log's entries on them alone."""
    for node in nodes:
        node.key = key_of(node)
    index = excerpt(node.key for node in nodes if node.key)
    for node in nodes:
        _compare(node, index)


def _compare(node: Node, index: Index) -> None:
    node.receipt = index.receipts.get(node.key) if node.key else None
    if node.receipt is not None:
        lacks = node.revive and node.receipt.payload in index.evicted
        node.state = "stale" if lacks else "cached"
    else:
        node.state = "stale" if node.key else "waiting"


def key_of(node: Node) -> str | None:
    """Return a node's action key, or None while an input is unknown."""
    digests = input_digests(node)
    if digests is None:
        return None
    return action_key(node.kind.name, node.kind.version, node.code, digests)


def input_digests(node: Node) -> dict[str, Any] | None:
    """Return the part of a node's key that describes its inputs; None if unknown."""
    digests: dict[str, Any] = {}
    for name, taken in node.inputs.items():
        if any(result.node.receipt is None for result in taken):
            return None
        many = node.kind.inputs[name].many
        digests[name] = (
            [_labelled(result) for result in taken] if many else _digest(taken[0])
        )
    return digests


def _digest(taken: Taken) -> str:
    receipt = taken.node.receipt
    assert receipt is not None
    return _hashed(tuple(taken_parts(receipt, taken.parts).items()))


@lru_cache(maxsize=1 << 14)
def _hashed(parts: tuple[tuple[str, str], ...]) -> str:
    # Thousands of nodes take the same data set, and probes the same weights.
    return sha256(dict(parts))


def _labelled(taken: Taken) -> list[Any]:
    receipt = taken.node.receipt
    assert receipt is not None
    # Where results are reduced, labels and divergence count.
    return [taken.node.stage, taken.node.coords, receipt.status, _digest(taken)]


def taken_parts(receipt: Receipt, names: Iterable[str]) -> Mapping[str, str]:
    """Return the digests of named parts, a sliced variable's bare name meaning all."""
    digests: dict[str, str] = {}
    for name in names:
        if name in receipt.parts:
            digests[name] = receipt.parts[name]
        else:
            prefix = f"{name}@"
            digests |= {p: d for p, d in receipt.parts.items() if p.startswith(prefix)}
    return digests


def diverged_inputs(node: Node) -> list[Taken]:
    """Return the plain inputs that divergence left without finite content."""
    diverged = []
    for name, taken in node.inputs.items():
        if not node.kind.inputs[name].many:
            diverged += [result for result in taken if _is_diverged(result)]
    return diverged


def _is_diverged(taken: Taken) -> bool:
    receipt = taken.node.receipt
    if receipt is None or receipt.status != "diverged":
        return False
    parts = taken_parts(receipt, taken.parts)
    return len(parts) < len(taken.parts) or DIVERGED in parts.values()
