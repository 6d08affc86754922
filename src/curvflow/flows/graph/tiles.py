"""Tiles: the nodes of a stage that one vectorised call computes.

Composition is canonical: all nodes of the stage in their order, apart by static
signature, cut at a width that depends on the signature alone. Nodes that happen to
be missing change neither a tile's bounds nor any key.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from curvflow.flows.graph.graph import Node
from curvflow.schemas.keys import sha256

MAX_WIDTH = 512
NODE_BY_NODE_WIDTH = 16

T = TypeVar("T")
R = TypeVar("R")
Signatures = dict[tuple[object, ...], str]


def groups(nodes: Sequence[Node]) -> list[list[Node]]:
    """Group nodes by what must be equal within a tile, in order of first members."""
    if nodes and not nodes[0].kind.vectorised:
        return [list(nodes)]
    by_signature: dict[str, list[Node]] = defaultdict(list)
    known: Signatures = {}
    for node in nodes:
        by_signature[_signature(node, known)].append(node)
    return list(by_signature.values())


def _signature(node: Node, known: Signatures) -> str:
    """Hash all but the varying parameters; equal signatures mean equal shapes."""
    inner = {
        name: _signature(taken[0].node, known)
        for name, taken in sorted(node.inputs.items())
        if not node.kind.inputs[name].many
    }
    label = (id(node.form), *inner.values())
    if label not in known:
        # What cannot be vectorised promises nothing about shapes.
        varying = node.kind.varying if node.kind.vectorised else ()
        static = without(node.form, varying)
        known[label] = sha256([node.kind.name, static, inner])
    return known[label]


def without(form: Mapping[str, object], paths: Sequence[str]) -> dict[str, object]:
    """Return plain parameters less those under dotted paths."""
    kept = dict(form)
    for path in paths:
        head, _, rest = path.partition(".")
        inner = kept.get(head)
        if not rest:
            kept.pop(head, None)
        elif isinstance(inner, Mapping):
            kept[head] = without(inner, [rest])
    return kept


def count_tiles(nodes: Sequence[Node]) -> int:
    """Return the least number of tiles that the open nodes of a stage make up."""
    return sum(
        math.ceil(sum(node.state != "cached" for node in group) / _most(group[0]))
        for group in groups(nodes)
    )


def _most(node: Node) -> int:
    return MAX_WIDTH if node.kind.vectorised else NODE_BY_NODE_WIDTH


def width_for(node_bytes: int, budget: int) -> int:
    """Return the largest power of two of nodes that fits, from 2 to MAX_WIDTH."""
    fits = max(2, min(MAX_WIDTH, budget // max(1, node_bytes)))
    return 1 << (fits.bit_length() - 1)


def padded(members: Sequence[T]) -> list[T]:
    """Return a single member twice: the last bits of a batch of one differ."""
    return [*members, *members] if len(members) == 1 else list(members)


def bisect(
    members: Sequence[T], compute: Callable[[Sequence[T]], Sequence[R]]
) -> list[tuple[R | BaseException, int]]:
    """Compute members together; on an error halve down to the culprits.

    Returned per member: its result, or the error that it raises alone, and the number
    computed together.
    """
    try:
        return [(result, len(members)) for result in compute(members)]
    # Whatever a stage raises, user code included, is that node's failure; so is an
    # exit, which must not end the run.
    except (Exception, SystemExit) as error:
        if len(members) == 1:
            return [(error, 1)]
    half = len(members) // 2
    return bisect(members[:half], compute) + bisect(members[half:], compute)
