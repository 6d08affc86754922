"""Shorter computations that longer ones can go on from: more epochs, say."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from curvflow.errors import StoreError
from curvflow.flows.graph.graph import Node
from curvflow.flows.graph.lookup import input_digests
from curvflow.flows.graph.tiles import without
from curvflow.flows.plan.code.drift import Accepted
from curvflow.flows.plan.code.fingerprints import Fingerprints
from curvflow.schemas.kind import Continues, Kind
from curvflow.schemas.records.receipts import Receipt
from curvflow.stores.base import Index, Store

# What tells it of chains: work in gradients over all data, and where it went.
TOLD = (
    "gradient_equivalents",
    "calibration_equivalents",
    "num_burnin_steps",
    "batch_size",
    "num_samples",
    "failed_at",
)


def share_spent_once(kind: Kind, receipt: Receipt, store: Store) -> float:
    """Return the share of calibration and burn-in in the work of drawing chains.

    Args:
        kind: of the result.
        receipt: of the result.
        store: holds it.

    Returns:
        From 0 to 1; 0 of what was itself gone on to, of kinds that tell nothing of it,
        and of a result that cannot be read.
    """
    begins = kind.continues and receipt.covered == receipt.params[kind.continues.param]
    if not begins or not set(TOLD) <= receipt.parts.keys():
        return 0.0
    try:
        told = store.read(receipt, TOLD)
    except StoreError:  # a plan says so elsewhere
        return 0.0
    whole = float(told["gradient_equivalents"])
    steps = float(told["num_burnin_steps"]) * len(told["failed_at"])
    warming = steps * float(told["batch_size"]) / float(told["num_samples"])
    once = float(told["calibration_equivalents"]) + warming
    return min(once / whole, 1.0) if whole > 0 else 0.0


Shape = tuple[int, str, str]


def continues(nodes: Iterable[Node]) -> list[dict[str, Any]]:
    """Count the nodes that go on from a shorter computation, by where they begin.

    Args:
        nodes: of a plan.

    Returns:
        `param`, its value `from` which and `to` which they go, and how many `nodes`.
    """
    found = Counter(
        (
            node.kind.continues.param,
            node.earlier.params[node.kind.continues.param],
            getattr(node.params, node.kind.continues.param),
        )
        for node in nodes
        if node.earlier and node.kind.continues
    )
    return [
        {"param": param, "from": start, "to": end, "nodes": count}
        for (param, start, end), count in found.items()
    ]


def continued(one: Mapping[str, Any]) -> str:
    """Say in words where nodes go on from.

    Args:
        one: of `continues`.

    Returns:
        Such as `4 nodes continue from epoch 10 to 20`.
    """
    nodes = (
        "1 node continues" if one["nodes"] == 1 else f"{one['nodes']} nodes continue"
    )
    unit = one["param"].removeprefix("num_").removesuffix("s")
    return f"{nodes} from {unit} {one['from']} to {one['to']}"


class Earlier:
    """The results that a log had when it was read, to be gone on from."""

    def __init__(self, index: Index, codes: Fingerprints, store: Store) -> None:
        """Look through nothing yet.

        Args:
            index: what the log says; gone on from are results whose code is known, and
                equal or accepted.
            codes: the code as it is.
            store: tells which payloads are there.
        """
        self._index, self._store = index, store
        self._accepted = Accepted(index, codes)
        self._by_kind: dict[str, Mapping[Shape, Sequence[Receipt]]] = {}
        self._shares: dict[tuple[str, str], float] = {}

    def find(self, nodes: Iterable[Node]) -> None:
        """Give nodes that must run the longest shorter result they can go on from.

        Args:
            nodes: compared with the log.
        """
        stale = [node for node in nodes if node.state == "stale" and not node.revive]
        found = {
            id(node): earlier
            for node in stale
            if node.kind.continues is not None
            and (earlier := self._longest(node, node.kind.continues))
        }
        present = self._store.present(str(one.payload) for one in found.values())
        for node in stale:
            earlier = found.get(id(node))
            node.earlier = earlier if earlier and earlier.payload in present else None
            node.once = self._share_of(node) if node.earlier else 0.0

    def _share_of(self, node: Node) -> float:
        """Return the share of what a node goes on from that is not spent again."""
        assert node.earlier is not None
        # Siblings differ little, and a stage may have thousands.
        alike = without(node.earlier.params, node.kind.varying)
        place = node.stage, json.dumps(alike, sort_keys=True)
        if place not in self._shares:
            found = share_spent_once(node.kind, node.earlier, self._store)
            self._shares[place] = found
        return self._shares[place]

    def _longest(self, node: Node, continues: Continues) -> Receipt | None:
        kind = node.kind
        if kind.name not in self._by_kind:  # once, since a log may be long
            kept = (
                receipt
                for receipt in self._index.receipts.values()
                # What collection has removed may still lie in the trash; nobody
                # vouches for it.
                if receipt.payload not in self._index.evicted
            )
            self._by_kind[kind.name] = _by_shape(kind, continues, kept)
        return _longest(node, continues, self._by_kind[kind.name], self._accepted)


def _by_shape(
    kind: Kind, continues: Continues, receipts: Iterable[Receipt]
) -> Mapping[Shape, Sequence[Receipt]]:
    """Sort results that could be gone on from by what must be equal at least."""
    found = defaultdict(list)
    for receipt in receipts:
        if (
            receipt.kind == kind.name
            and receipt.status == "ok"
            and receipt.payload is not None
            and _has_parts(receipt, kind, continues)
        ):
            shape = _shape(receipt.version, receipt.params, receipt.inputs, continues)
            found[shape].append(receipt)
    return found


def _has_parts(receipt: Receipt, kind: Kind, continues: Continues) -> bool:
    there = {part.partition("@")[0] for part in receipt.parts}
    optional = {variable.name for variable in kind.outputs if variable.optional}
    return there.issuperset(set(continues.parts or ()) - optional)


def _shape(
    version: int,
    params: Mapping[str, object],
    inputs: Mapping[str, object],
    continues: Continues,
) -> Shape:
    rest = {name: value for name, value in params.items() if name != continues.param}
    return version, json.dumps(rest, sort_keys=True), json.dumps(inputs, sort_keys=True)


def _longest(
    node: Node,
    continues: Continues,
    candidates: Mapping[Shape, Sequence[Receipt]],
    accepted: Accepted,
) -> Receipt | None:
    inputs = input_digests(node) or {}
    shape = _shape(node.kind.version, node.form, inputs, continues)
    asked = getattr(node.params, continues.param)
    shorter = [
        receipt
        for receipt in candidates.get(shape, ())
        if receipt.params[continues.param] < asked
        and _allowed(node, receipt, continues)
        and accepted.is_known(receipt, node)
    ]
    return max(shorter, key=lambda r: r.params[continues.param], default=None)


def _allowed(node: Node, receipt: Receipt, continues: Continues) -> bool:
    begun = {continues.param: receipt.params[continues.param]}
    return continues.allows(node.params.model_copy(update=begun), node.params)
