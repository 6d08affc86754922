"""Predicted time of nodes, from the receipts of earlier results."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from curvflow.flows.graph.graph import Graph, Node
from curvflow.schemas.keys import without
from curvflow.schemas.kind import Kind
from curvflow.schemas.records.receipts import Receipt, RunRecord
from curvflow.stores.base import Index

Address = tuple[str, frozenset[Any]]
GONE_ON = "gone on"  # marks the times of what went on from stored results
LATEST = 5  # runs by which the start of the next is foretold


@dataclass(frozen=True)
class Prediction:
    """The predicted time of nodes, one after another on one device.

    Attributes:
        seconds: sum of each node's share of its tile's time; those of unknown cost are
            not part of it.
        nodes: number of nodes, each result counted once.
        rough: those known only by other parameters of their kind.
        unknown: those whose kind was never computed.
    """

    seconds: float = 0.0
    nodes: int = 0
    rough: int = 0
    unknown: int = 0

    def __add__(self, other: Prediction) -> Prediction:
        return Prediction(
            self.seconds + other.seconds,
            self.nodes + other.nodes,
            self.rough + other.rough,
            self.unknown + other.unknown,
        )


class Costs:
    """Predicts the time of a study's nodes.

    A node takes as long as the median of results of its stage whose parameters, and
    those of what they stand on, differ only where a tile's members may, and which the
    same type of device computed; else of results of its kind with such parameters;
    else, roughly, of its kind. Time is proportional to the parameter that a kind can
    be continued in, such as `epochs`; of what goes on from a stored result, to that of
    others that did, else less the share that was spent once, such as on burn-in.
    """

    def __init__(self, graph: Graph, index: Index) -> None:
        self._graph, self._index = graph, index
        self._signatures: dict[int, int] = {}
        self._numbers: dict[Hashable, int] = {}
        self._static: dict[int, str] = {}
        self._medians: dict[str, Mapping[Hashable, float]] = {}
        self._levels: dict[int, tuple[float | None, bool]] = {}

    def predicted(self, nodes: Iterable[Node]) -> Prediction:
        """Return the predicted time of nodes; those of one key are computed once."""
        unique = {node.key or id(node): node for node in nodes}
        costs = [self.of(node) for node in unique.values()]
        return Prediction(
            sum(seconds for seconds, _ in costs if seconds is not None),
            len(costs),
            sum(rough for seconds, rough in costs if seconds is not None),
            sum(seconds is None for seconds, _ in costs),
        )

    def of(self, node: Node) -> tuple[float | None, bool]:
        """Return a node's predicted seconds, or None, and whether they are rough."""
        if id(node) not in self._levels:
            self._levels[id(node)] = self._predict(node)
        return self._levels[id(node)]

    def _predict(self, node: Node) -> tuple[float | None, bool]:
        medians = self._of_kind(node.kind)
        exact = self._signature(node)
        for label, rough in ((exact, False), (self._form(node), False), ("", True)):
            if (rate := _rate(node, medians, label)) is not None:
                units = _units(node.kind, node.form) - _done(node)
                return rate * units, rough or self._stands_on_rough(node)
        return None, False

    def _stands_on_rough(self, node: Node) -> bool:
        """Return whether an input was never computed with such parameters."""
        taken = (several[0].node for several in node.inputs.values() if several)
        return any(
            producer.state != "cached" and self._is_unlike(producer)
            for producer in taken
        )

    def _is_unlike(self, node: Node) -> bool:
        seconds, rough = self.of(node)
        return rough or seconds is None

    def _signature(self, node: Node) -> int:
        """Number nodes so that equal numbers mean equal shapes, and so equal time."""
        if id(node) not in self._signatures:
            inner = tuple(
                (name, self._signature(taken[0].node))
                for name, taken in sorted(node.inputs.items())
                if taken and not node.kind.inputs[name].many
            )
            label = node.stage, self._form(node), inner
            number = self._numbers.setdefault(label, len(self._numbers))
            self._signatures[id(node)] = number
        return self._signatures[id(node)]

    def _form(self, node: Node) -> str:
        # Nodes of equal parameters share one form.
        if id(node.form) not in self._static:
            self._static[id(node.form)] = _static(node.kind, node.form)
        return self._static[id(node.form)]

    def _of_kind(self, kind: Kind) -> Mapping[Hashable, float]:
        if kind.name not in self._medians:
            self._medians[kind.name] = self._sorted(kind)
        return self._medians[kind.name]

    def _sorted(self, kind: Kind) -> Mapping[Hashable, float]:
        """Return the median of seconds per unit by signature, form, and of all."""
        # Results with a diverged input were not computed and took no time.
        receipts = [
            receipt
            for receipt in self._index.rows.values()
            if receipt.kind == kind.name and receipt.seconds > 0
        ]
        if not receipts:
            return {}
        device = _device(receipts[-1])
        alike = [receipt for receipt in receipts if _device(receipt) == device]
        nodes = self._by_address(kind)
        from_start: dict[Hashable, list[float]] = defaultdict(list)
        known: dict[Hashable, list[float]] = defaultdict(list)
        for receipt in alike:
            units = receipt.covered or _units(kind, receipt.params)
            form = _static(kind, receipt.params)
            node = nodes.get((receipt.stage, frozenset(receipt.coords.items())))
            labels: list[Hashable] = [form, ""]
            if node is not None and self._form(node) == form:
                labels.append(self._signature(node))
            for label in labels:
                for rates in (from_start, known) if receipt.covered else (from_start,):
                    rates[label].append(receipt.seconds / units)
                if units < _units(kind, receipt.params):
                    known[GONE_ON, label].append(receipt.seconds / units)
        # Without units, continued training looks faster than it is.
        return {
            label: median(rates) for label, rates in {**from_start, **known}.items()
        }

    def _by_address(self, kind: Kind) -> Mapping[Address, Node]:
        return {
            (node.stage, frozenset(node.coords.items())): node
            for nodes in self._graph.nodes.values()
            for node in nodes
            if node.kind.name == kind.name
        }


def _rate(
    node: Node, medians: Mapping[Hashable, float], label: Hashable
) -> float | None:
    """Return seconds per unit, of resumed results or of those from the start."""
    if node.shorter is None:
        return medians.get(label)
    if (resumed := medians.get((GONE_ON, label))) is not None:
        return resumed
    whole = medians.get(label)
    return None if whole is None else whole * (1 - node.once)


def _device(receipt: Receipt) -> str:
    return receipt.device.partition(":")[0]


def _static(kind: Kind, params: Mapping[str, object]) -> str:
    scaled = (kind.continues.param,) if kind.continues else ()
    return json.dumps(without(params, (*kind.varying, *scaled)), sort_keys=True)


def _units(kind: Kind, params: Mapping[str, object]) -> float:
    amount = params.get(kind.continues.param) if kind.continues else None
    return max(float(amount), 1.0) if isinstance(amount, int | float) else 1.0


def _done(node: Node) -> float:
    """Return the units that a shorter computation has done already."""
    return _units(node.kind, node.shorter.params) if node.shorter else 0.0


def start_seconds(index: Index) -> float | None:
    """Return the seconds that a run spends on loading, starting and writing.

    It is the median over the latest runs that requested at most one worker and in which
    nothing failed; None if there was none.
    """
    runs = {run.begun: run for run in index.runs if _tells_of_start(run)}
    latest = dict(list(runs.items())[-LATEST:])
    computing = dict.fromkeys(latest, 0.0)
    for receipt in index.rows.values():
        if receipt.run in computing:
            computing[receipt.run] += receipt.seconds
    beside = [run.seconds - computing[begun] for begun, run in latest.items()]
    # Workers that a run chose by itself may compute more seconds than pass.
    return median(positive) if (positive := [s for s in beside if s > 0]) else None


def _tells_of_start(run: RunRecord) -> bool:
    elsewhere = run.options.get("scheduler") or run.options.get("cluster")
    alone = not elsewhere and run.options.get("workers") in (None, 1)
    return run.status == "done" and alone and any(run.counts["executed"].values())


def saved_seconds(graph: Graph) -> float:
    """Return the seconds that the cached results took, each counted once."""
    cached = {n.key: n.receipt for n in graph if n.state == "cached"}
    return sum(receipt.seconds for receipt in cached.values() if receipt)
