"""The nodes of the graph that autograd has kept of a computation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from torch import Tensor


def nodes_of(tensors: Iterable[Tensor], closed: Collection[Any] = ()) -> Iterator[Any]:
    """Yield the nodes of the graph that tensors have been made by, each once.

    Args:
        tensors: any; one without a graph has none.
        closed: nodes that are not passed, nor yielded.
    """
    seen = {None, *closed}
    left: list[Any] = [tensor.grad_fn for tensor in tensors]
    while left:
        node = left.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        left += [before for before, _ in node.next_functions]
