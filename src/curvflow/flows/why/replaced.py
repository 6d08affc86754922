"""Results that a node took before, beside those that it takes now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from curvflow.flows.graph import Node, Taken
from curvflow.flows.lookup import taken_parts
from curvflow.flows.why.earlier import Earlier
from curvflow.schemas.keys import sha256
from curvflow.schemas.nodes import Label
from curvflow.schemas.records.receipts import Receipt

Member = tuple[str, frozenset[tuple[str, Label]]]


def replaced(
    node: Node, receipt: Receipt, name: str, earlier: Earlier
) -> Iterator[tuple[Node, Receipt]]:
    """Pair what a node takes now with what an earlier result of it took instead.

    Args:
        node: a node whose inputs are known.
        receipt: the earlier result.
        name: of the input that differs.
        earlier: all earlier results.

    Yields:
        A node taken, done by now, and its own earlier result; of reductions only those
        that were taken before and have changed since.
    """
    before = receipt.inputs.get(name)
    many = isinstance(before, list | tuple)
    digests = {_member(*one[:2]): one[3] for one in before or ()} if many else {}
    for taken in node.inputs.get(name, ()):
        one = taken.node
        old = digests.get(_member(one.stage, one.coords)) if many else before
        if one.receipt is None or _digest(one.receipt, taken) == old:
            continue
        of_old = (r for r in reversed(earlier.at(one)) if _digest(r, taken) == old)
        if (found := next(of_old, None)) is not None:
            yield one, found


def takes_others(node: Node, earlier: Earlier) -> bool:
    """Whether a reduction takes other nodes than ever before, whatever their results.

    Args:
        node: a node; its inputs need not be known.
        earlier: all earlier results.

    Returns:
        True if its inputs must differ from those of each earlier result.
    """
    reduced = [name for name in node.inputs if node.kind.inputs[name].many]
    now = {
        name: {_member(one.node.stage, one.node.coords) for one in node.inputs[name]}
        for name in reduced
    }
    return bool(reduced) and not any(
        all(_before(receipt, name) == now[name] for name in reduced)
        for receipt in earlier.at(node)
    )


def _digest(receipt: Receipt, taken: Taken) -> str:
    return sha256(taken_parts(receipt, taken.parts))


def _member(stage: str, coords: Mapping[str, Label]) -> Member:
    return stage, frozenset(coords.items())


def _before(receipt: Receipt, name: str) -> set[Member]:
    entries: Any = receipt.inputs.get(name, ())
    return {_member(*entry[:2]) for entry in entries}
