"""Results computed again, and compared with the stored ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from curvflow.errors import CurvflowError, RequestError, StoreError
from curvflow.flows.graph.graph import Node, node_name
from curvflow.flows.graph.source_files import SourceFiles
from curvflow.flows.graph.stopping import Stopping
from curvflow.flows.graph.tiles import Singles, tile_job
from curvflow.flows.plan.code.drift import Drift
from curvflow.flows.plan.plan import Plan
from curvflow.flows.run.compute import Snapshots, failure, outcomes
from curvflow.schemas.keys import sha256
from curvflow.schemas.nodes import Array, Outcome
from curvflow.schemas.records.receipts import Receipt, part_digests, result_digest
from curvflow.stores.base import Store
from curvflow.tasks.registry import Machine

# Another tile or processor may change the last bits, and no more: of a variable's
# largest number, in double precision and, as 8 roundings, in single.
TOLERANCE = 1e-9
SINGLE_TOLERANCE = 8 * float(np.finfo(np.float32).eps)

Result = Outcome | BaseException


@dataclass(frozen=True, order=True)
class Difference:
    """The difference of a result from the stored one.

    Attributes:
        is_beyond: whether it is more than last bits.
        relative: to the largest number of the variable; infinite for anything else
            that differs; 0 for equal digests.
        text: the difference in words.
    """

    is_beyond: bool = False
    relative: float = 0.0
    text: str = ""

    @property
    def is_finite(self) -> bool:
        """Return whether it is a difference of numbers."""
        return math.isfinite(self.relative)


@dataclass(frozen=True)
class Evidence:
    """The outcome of computing a sample again.

    Attributes:
        sampled: results computed again.
        equal: those of them with equal digests.
        worst: the largest difference.
    """

    sampled: int
    equal: int
    worst: Difference

    @property
    def is_good(self) -> bool:
        """Return whether all results came out the same but for their last bits."""
        return not self.worst.is_beyond

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data, for the log."""
        return {
            "sampled": self.sampled,
            "equal": self.equal,
            "largest_relative_difference": self.worst.relative,
        }


def sample(plan: Plan, drift: Drift, share: float) -> list[Node]:
    """Return a share of the results that can be compared, by the hash of their keys.

    Raises:
        RequestError: the arrays of all results, or of what they take, are gone.
    """
    nodes = {node.key: node for node in drift.nodes if _is_there(plan, node)}
    if not nodes:
        raise RequestError(
            f"--verify: expected results of {drift.kind} and what they take, got none "
            "whose arrays are there. Leave --verify out, or run with "
            f"--rerun {drift.kind}."
        )
    count = math.ceil(round(share * len(nodes), 6))
    return [nodes[key] for key in sorted(nodes, key=sha256)[: max(count, 1)]]


def _is_there(plan: Plan, node: Node) -> bool:
    """Return whether a node's arrays and those of its inputs can be read."""
    taken = [result.node for several in node.inputs.values() for result in several]
    return all(
        needed.state == "cached"
        and needed.receipt is not None
        and needed.receipt.payload not in plan.removed
        for needed in (node, *taken)
    )


class Recheck:
    """Computes nodes with the code as it is; nothing is written."""

    def __init__(
        self, plan: Plan, *, store: Store, files: SourceFiles, machine: Machine
    ) -> None:
        self._plan, self._store, self._files = plan, store, files
        self._machine, self._singles = machine, Singles(plan.graph)
        # Snapshots are for runs alone: a recheck that is stopped begins anew.
        self._snapshots = Snapshots(store, Stopping(), every=math.inf)

    def compare(self, nodes: Sequence[Node]) -> Evidence:
        """Compute nodes again, and compare them with the stored results.

        Raises:
            StoreError: a result, or what it takes, cannot be read.
        """
        differences = [self._compared(node) for node in nodes]
        equal = sum(not difference.text for difference in differences)
        return Evidence(len(differences), equal, max(differences))

    def _compared(self, node: Node) -> Difference:
        alone = self._difference(node, self._computed([node])[0])
        if alone.relative == 0 or not alone.is_finite:
            return alone
        company = self._company(node)
        if len(company) == 1:
            return alone
        # The last bits may depend on the other nodes of the call.
        again = self._computed(company)[company.index(node)]
        return min(alone, self._difference(node, again))

    def _company(self, node: Node) -> list[Node]:
        """Return the nodes that were computed in one call with a node, in order."""
        if not node.kind.vectorised or node.receipt is None:
            return [node]
        payload = node.receipt.payload
        siblings = {node.key: node}
        for other in self._plan.graph.nodes[node.stage]:
            if payload and other.receipt and other.receipt.payload == payload:
                siblings.setdefault(other.key, other)
        whole = all(_is_there(self._plan, sibling) for sibling in siblings.values())
        return sorted(siblings.values(), key=_slot) if whole else [node]

    def _computed(self, nodes: Sequence[Node]) -> list[Result]:
        try:
            files = {id(n.form): self._files.read(n.params, n.form) for n in nodes}
            code = [self._plan.codes.of(node).fingerprint for node in nodes]
            # Looked at as in a run, whose calls would not read again what a memo keeps.
            modules = {node: self._plan.codes.modules(node) for node in nodes}
            graph, singles = self._plan.graph, self._singles
            job = tile_job(
                graph, nodes, files, code=code, modules=modules, singles=singles
            )
            results = outcomes(self._store, job, self._machine, self._snapshots)
        except StoreError as error:
            raise StoreError(f"--verify: {node_name(nodes[0])}: {error}") from error
        except CurvflowError as error:  # a file is not what it was
            return [error for _ in nodes]
        return [result for result, _ in results]

    def _difference(self, node: Node, result: Result) -> Difference:
        receipt, name = node.receipt, node_name(node)
        assert receipt is not None
        if isinstance(result, BaseException):
            return Difference(True, math.inf, f"{name}: {failure(result).error}")
        parts = part_digests(node.kind.outputs, result)
        if result_digest(parts, result.status, result.reason) == receipt.digest:
            return Difference()
        before, after = _status(receipt), _status(result)
        if before != after:
            return Difference(True, math.inf, f"{name}: {after} where it was {before}")
        changed = parts.items() ^ receipt.parts.items()
        variables = sorted({part.partition("@")[0] for part, _ in changed})
        there = {part.partition("@")[0] for part in receipt.parts}
        if lacking := [v for v in variables if v not in result.arrays.keys() & there]:
            return Difference(True, math.inf, f"{name}: {lacking[0]} on one side only")
        return max(
            _apart(
                result.arrays[v],
                self._stored(node, v),
                self._size(node, v),
                f"{v} of {name}",
                _allowed(node, result.arrays[v]),
            )
            for v in variables
        )

    def _size(self, node: Node, variable: str) -> float:
        """Return the largest absolute value of the variable that sets the scale."""
        declared = node.kind.output(variable)
        beside = declared.error_of if declared and declared.error_of else variable
        values = self._stored(node, beside)
        if values.dtype.kind not in "fiuc":
            return 0.0
        size = np.max(np.abs(values), initial=0.0, where=np.isfinite(values))
        return float(size)

    def _stored(self, node: Node, variable: str) -> Array:
        assert node.receipt is not None
        try:
            return self._store.read(node.receipt, [variable])[variable]
        except StoreError as error:
            raise StoreError(f"--verify: {node_name(node)}: {error}") from error


def _slot(node: Node) -> int:
    return node.receipt.slot if node.receipt else 0


def _status(result: Outcome | Receipt) -> str:
    return f"{result.status} ({result.reason})" if result.reason else result.status


def _allowed(node: Node, values: Array) -> float:
    """Return the difference that last bits make of numbers in a node's precision."""
    computed = getattr(node.params, "dtype", None)
    is_single = values.dtype in (np.float32, np.complex64) or computed == "float32"
    is_real = values.dtype.kind in "fc"  # counts are as exact as ever
    return SINGLE_TOLERANCE if is_real and is_single else TOLERANCE


def _apart(
    new: Array, old: Array, size: float, name: str, allowed: float
) -> Difference:
    if new.shape != old.shape:
        text = f"{name} of shape {new.shape} where it was {old.shape}"
        return Difference(True, math.inf, text)
    if not (new.dtype.kind in "fiuc" and old.dtype.kind in "fiuc"):
        is_other = not np.array_equal(new, old)
        relative = math.inf if is_other else 0.0
        return Difference(is_other, relative, f"{name} is not what it was")
    relative = _relative(new, old, size)
    where = "" if math.isfinite(relative) else " has NaN or infinity at other places"
    return Difference(relative > allowed, relative, f"{name}{where}")


def _relative(new: Array, old: Array, size: float) -> float:
    """Return the largest difference by the size of what was there."""
    exact = np.complex128 if "c" in (new.dtype.kind, old.dtype.kind) else np.float64
    a, b = new.astype(exact), old.astype(exact)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0
    if not (np.isfinite(a) | same).all() or not (np.isfinite(b) | same).all():
        return math.inf
    apart = float(np.max(np.abs(a[~same] - b[~same])))
    # Where all was zero there is no scale, and any number is wholly different.
    return apart / size if size > 0 else 1.0
