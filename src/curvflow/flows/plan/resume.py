"""Results of shorter computations, which longer ones resume: more epochs, say."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from curvflow.errors import StoreError
from curvflow.flows.graph.graph import Node, input_digests
from curvflow.flows.plan.code.drift import Accepted
from curvflow.flows.plan.code.fingerprints import Fingerprints
from curvflow.flows.reads.current import CurrentReads
from curvflow.schemas.keys import without
from curvflow.schemas.kind import Continues, Kind
from curvflow.schemas.records.receipts import Receipt
from curvflow.stores.base import Index, Store

# Work of chains in gradients over all data, and the parts of it that are spent once.
WORK = (
    "gradient_equivalents",
    "calibration_equivalents",
    "num_burnin_steps",
    "batch_size",
    "num_samples",
    "failed_at",
)


def share_spent_once(kind: Kind, receipt: Receipt, store: Store) -> float:
    """Return the share of calibration and burn-in in the work of drawing chains.

    It is 0 for a result that was itself resumed, for kinds that do not record it, and
    for a result that cannot be read.
    """
    begins = kind.continues and receipt.covered == receipt.params[kind.continues.param]
    if not begins or not set(WORK) <= receipt.parts.keys():
        return 0.0
    try:
        work = store.read(receipt, WORK)
    except StoreError:  # a plan reports it elsewhere
        return 0.0
    whole = float(work["gradient_equivalents"])
    steps = float(work["num_burnin_steps"]) * len(work["failed_at"])
    burned = steps * float(work["batch_size"]) / float(work["num_samples"])
    once = float(work["calibration_equivalents"]) + burned
    return min(once / whole, 1.0) if whole > 0 else 0.0


Shape = tuple[int, str, str]


def continues(nodes: Iterable[Node]) -> list[dict[str, Any]]:
    """Count the nodes that resume a shorter computation, by where they begin.

    An entry has `param`, its values `from` and `to`, and the number of `nodes`.
    """
    spans = Counter(
        (
            node.kind.continues.param,
            node.shorter.params[node.kind.continues.param],
            getattr(node.params, node.kind.continues.param),
        )
        for node in nodes
        if node.shorter and node.kind.continues
    )
    return [
        {"param": param, "from": start, "to": end, "nodes": count}
        for (param, start, end), count in spans.items()
    ]


def continued(span: Mapping[str, Any]) -> str:
    """Word an entry of `continues`: `4 nodes continue from epoch 10 to 20`."""
    count = span["nodes"]
    nodes = "1 node continues" if count == 1 else f"{count} nodes continue"
    unit = span["param"].removeprefix("num_").removesuffix("s")
    return f"{nodes} from {unit} {span['from']} to {span['to']}"


class ShorterResults:
    """Shorter results of a log that longer computations can resume.

    Their code must be known, and equal to that of today or accepted; files and
    variables that they stand on must be as they were.
    """

    def __init__(
        self, index: Index, codes: Fingerprints, store: Store, reads: CurrentReads
    ) -> None:
        self._index, self._store, self._reads = index, store, reads
        self._accepted = Accepted(index, codes)
        self._by_kind: dict[str, Mapping[Shape, Sequence[Receipt]]] = {}
        self._shares: dict[tuple[str, str], float] = {}

    def assign(self, nodes: Iterable[Node]) -> None:
        """Give nodes that must run the longest shorter result they can resume."""
        stale = [node for node in nodes if node.state == "stale" and not node.revive]
        longest = {
            id(node): receipt
            for node in stale
            if node.kind.continues is not None
            and (receipt := self._longest(node, node.kind.continues))
        }
        present = self._store.present(str(r.payload) for r in longest.values())
        for node in stale:
            receipt = longest.get(id(node))
            node.shorter = receipt if receipt and receipt.payload in present else None
            node.once = self._share_of(node) if node.shorter else 0.0

    def _share_of(self, node: Node) -> float:
        """Return the share of the resumed result's time that is not spent again."""
        assert node.shorter is not None
        # Siblings differ little, and a stage may have thousands.
        alike = without(node.shorter.params, node.kind.varying)
        place = node.stage, json.dumps(alike, sort_keys=True)
        if place not in self._shares:
            share = share_spent_once(node.kind, node.shorter, self._store)
            self._shares[place] = share
        return self._shares[place]

    def _longest(self, node: Node, continues: Continues) -> Receipt | None:
        kind = node.kind
        if kind.name not in self._by_kind:  # once, since a log may be long
            kept = (
                receipt
                for receipt in self._index.receipts.values()
                # A payload that collection removed may lie in the trash, unchecked.
                if receipt.payload not in self._index.evicted
            )
            self._by_kind[kind.name] = _by_shape(kind, continues, kept)
        candidates = self._by_kind[kind.name]

        def is_sound(receipt: Receipt) -> bool:
            is_known = self._accepted.is_known(receipt, node)
            return is_known and not self._reads.outdated(node.stage, receipt)

        return _longest(node, continues, candidates, is_sound)


def _by_shape(
    kind: Kind, continues: Continues, receipts: Iterable[Receipt]
) -> Mapping[Shape, Sequence[Receipt]]:
    """Group results that could be resumed by what must be equal at least."""
    by_shape = defaultdict(list)
    for receipt in receipts:
        if (
            receipt.kind == kind.name
            and receipt.status == "ok"
            and receipt.payload is not None
            and _has_parts(receipt, kind, continues)
        ):
            shape = _shape(receipt.version, receipt.params, receipt.inputs, continues)
            by_shape[shape].append(receipt)
    return by_shape


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
    is_sound: Callable[[Receipt], bool],
) -> Receipt | None:
    inputs = input_digests(node) or {}
    shape = _shape(node.kind.version, node.form, inputs, continues)
    length = getattr(node.params, continues.param)
    shorter = [
        receipt
        for receipt in candidates.get(shape, ())
        if receipt.params[continues.param] < length
        and _allowed(node, receipt, continues)
        and is_sound(receipt)
    ]
    return max(shorter, key=lambda r: r.params[continues.param], default=None)


def _allowed(node: Node, receipt: Receipt, continues: Continues) -> bool:
    begun = {continues.param: receipt.params[continues.param]}
    return continues.allows(node.params.model_copy(update=begun), node.params)
