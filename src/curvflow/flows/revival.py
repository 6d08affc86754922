"""Hold what was computed again to the digests of what collection removed.

The last bits may depend on who else was computed in the same call, so a result that
differs is tried once more in its old company.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from curvflow.flows.graph import Graph, Node
from curvflow.flows.jobs import Computed, Failed
from curvflow.flows.observer import Observer
from curvflow.stores.base import Store

Report = Computed | Failed


def old_company(
    graph: Graph, tile: Sequence[Node], reports: Sequence[Report]
) -> list[Node]:
    """Return the nodes to be computed together, for a result came out different.

    Args:
        graph: all nodes.
        tile: what was computed.
        reports: what became of it.

    Returns:
        All nodes of the payloads that were removed, if they are more than the tile;
        else none.
    """
    if not any(map(_differs, tile, reports)):
        return []
    wanted = {node.receipt.payload for node in tile if node.receipt}
    together = {
        node.key: node
        for node in graph.nodes[tile[0].stage]
        if node.receipt is not None and node.receipt.payload in wanted
    }
    return list(together.values()) if len(together) > len(tile) else []


def retire_changed(
    store: Store, observer: Observer, tile: Sequence[Node], reports: Sequence[Report]
) -> bool:
    """Strike off what results were that did not come out the same again.

    Args:
        store: whose log says what they were.
        observer: told of them.
        tile: what was computed.
        reports: what became of it.

    Returns:
        Whether there are any.
    """
    found = defaultdict(list)
    for node, report in zip(tile, reports, strict=True):
        if node.receipt is not None and node.key and _differs(node, report):
            found[node.receipt.payload].append(node.key)
    reason = "computed again after collection, it came out different"
    for payload, keys in found.items():
        store.retire(keys, reason, payload=payload)
        observer.warn(f"{reason}: {len(keys)} results of {tile[0].stage}")
    return bool(found)


def _differs(node: Node, report: Report) -> bool:
    """Whether a result that was removed is not the same again."""
    earlier = node.receipt
    return (
        earlier is not None
        and isinstance(report, Computed)
        and earlier.digest != report.digest
    )
