"""Say what changed code means before anything is computed with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from curvflow.errors import ChangedCodeError, RequestError, UnknownNameError, nearest
from curvflow.flows.code.drift import Drift
from curvflow.flows.compute import outcomes
from curvflow.flows.files import SourceFiles
from curvflow.flows.graph import Node
from curvflow.flows.jobs import tile_job
from curvflow.flows.partials import Partials
from curvflow.flows.plan import Plan
from curvflow.flows.stopping import Stopping
from curvflow.schemas.durations import duration
from curvflow.schemas.keys import sha256
from curvflow.schemas.nodes import Outcome
from curvflow.schemas.receipts import Receipt, Settlement, part_digests, result_digest
from curvflow.stores.base import Store
from curvflow.tasks.registry import Machine

# A sample that is computed in other company may differ in its last bits.
TOLERANCE = 1e-9
SHOWN = 3


@dataclass(frozen=True)
class Answer:
    """What a person says of changed code.

    Attributes:
        accept: kinds whose results mean the same as before.
        rerun: kinds whose results are to be computed again.
        reason: why; needed to accept.
        verify: share of the results concerned, above 0 and at most 1, that is computed
            again and compared before they are accepted; None for none.
    """

    accept: Collection[str] = ()
    rerun: Collection[str] = ()
    reason: str = ""
    verify: float | None = None


def settle(
    plan: Plan,
    answer: Answer,
    *,
    store: Store,
    files: SourceFiles,
    machine: Callable[[], tuple[Machine, AbstractContextManager[None]]],
) -> bool:
    """Carry out what a person says of the code that a plan found changed.

    Args:
        plan: the study against its store.
        answer: what is said.
        store: where settlements are written down.
        files: files that parameters name.
        machine: where to compute a sample, and the setting to do it in.

    Returns:
        Whether the study must be planned again.

    Raises:
        RequestError: no reason is given, a kind is not of this study, or a sample
            comes out different.
        ChangedCodeError: nothing is said of some changed code.
    """
    _check(plan, answer)
    drifts = {drift.kind: drift for drift in plan.drifts}
    accepted = [drifts[kind] for kind in answer.accept if kind in drifts]
    open_ones = drifts.keys() - set(answer.accept) - set(answer.rerun)
    if open_ones:
        raise ChangedCodeError(
            "\n".join(told(drifts[kind]) for kind in sorted(open_ones))
        )
    for drift in accepted:
        evidence = {}
        if answer.verify is not None:
            device, computing = machine()
            with computing:
                evidence = _verified(plan, drift, answer.verify, store, files, device)
        pairs = [list(pair) for pair in drift.pairs]
        store.settle([Settlement(drift.kind, pairs, answer.reason, evidence)])
    for kind in answer.rerun:
        nodes = drifts[kind].nodes if kind in drifts else _of_kind(plan, kind)
        keys = {node.receipt.key for node in nodes if node.receipt}
        if keys:
            store.retire(sorted(keys), f"rerun: {answer.reason or 'asked for'}")
    return bool(accepted or answer.rerun)


def _check(plan: Plan, answer: Answer) -> None:
    known = {node.kind.name for node in plan.graph}
    for option, kinds in (("--accept-code", answer.accept), ("--rerun", answer.rerun)):
        for kind in kinds:
            if kind not in known:
                raise UnknownNameError(
                    f"{option}: expected a kind of {plan.graph.study.name}, got "
                    f"'{kind}'. {nearest(kind, known)}"
                )
    if answer.accept and not answer.reason.strip():
        raise RequestError(
            "--accept-code: expected a reason, got none. Say with --reason why the "
            "results mean the same; it is kept in the log."
        )


def _of_kind(plan: Plan, kind: str) -> list[Node]:
    return [node for node in plan.graph if node.kind.name == kind]


def told(drift: Drift) -> str:
    """Return what has moved, whom it concerns and what can be done, on one line."""
    moves = [_shown(move.name, move.change, move.path) for move in drift.moves[:SHOWN]]
    more = len(drift.moves) - SHOWN
    cost = f", {duration(drift.cost.seconds)} to compute again"
    return (
        f"{drift.kind}: code changed under version {drift.version}: "
        + "; ".join(moves)
        + (f"; and {more} more" if more > 0 else "")
        + f". {len(drift.nodes)} results are concerned"
        + (cost if drift.cost.unknown == 0 else "")
        + f". Raise the version of {drift.kind} if they mean something else now, or "
        f'run with --accept-code {drift.kind} --reason "..." if they mean the same '
        f"(--verify 2% tries a sample), or with --rerun {drift.kind}."
    )


def _shown(name: str, change: str, path: Sequence[str]) -> str:
    names = [one.rpartition(":")[2] for one in path]
    way = f" ({' > '.join(names)})" if len(names) > 1 else ""
    return f"{name} {change}{way}"


def _verified(
    plan: Plan,
    drift: Drift,
    share: float,
    store: Store,
    files: SourceFiles,
    machine: Machine,
) -> dict[str, Any]:
    """Compute a sample with the code as it is, and compare it with what is stored."""
    sample = _sample(plan, drift, share)
    equal, largest, where = 0, 0.0, ""
    for node in sample:
        job = tile_job(
            plan.graph, [node], {id(node.form): files.read(node.params, node.form)}
        )
        ((outcome, _),) = outcomes(store, job, machine, Partials(store, Stopping()))
        assert node.receipt is not None
        difference, part = _difference(store, node, node.receipt, outcome)
        equal += difference == 0
        if difference > largest:
            largest, where = difference, f"{part} of {node.stage}{node.coords}"
    if largest > TOLERANCE:
        raise RequestError(
            f"--accept-code {drift.kind}: expected a sample of {len(sample)} results "
            f"to come out the same, got a relative difference of {largest:.1e} in "
            f"{where}. Raise the version of {drift.kind}, or run with --rerun {drift.kind}."
        )
    return {
        "sampled": len(sample),
        "of": len(drift.nodes),
        "equal": equal,
        "largest_relative_difference": largest,
    }


def _sample(plan: Plan, drift: Drift, share: float) -> list[Node]:
    """Choose results by the hash of their keys, of those whose arrays are there."""

    def is_there(node: Node) -> bool:
        taken = [t.node for some in node.inputs.values() for t in some]
        receipts = [one.receipt for one in (node, *taken)]
        return all(r is not None and r.payload not in plan.removed for r in receipts)

    found = {node.key: node for node in drift.nodes if is_there(node)}
    if not found:
        raise RequestError(
            f"--verify: expected results of {drift.kind} with their arrays, got none: "
            "collection has removed them. Leave --verify out, or run with --revive."
        )
    count = math.ceil(share * len(found))
    return [found[key] for key in sorted(found, key=lambda key: sha256(key))[:count]]


def _difference(
    store: Store, node: Node, receipt: Receipt, outcome: Outcome | BaseException
) -> tuple[float, str]:
    """Return the largest relative difference, 0 for equal digests, and where it is."""
    if isinstance(outcome, BaseException) or outcome.status != receipt.status:
        return math.inf, "status"
    parts = part_digests(node.kind.outputs, outcome)
    if result_digest(parts, outcome.status, outcome.reason) == receipt.digest:
        return 0.0, ""
    earlier = store.read(
        receipt, list({part.partition("@")[0] for part in receipt.parts})
    )
    found = [
        (_relative(outcome.arrays[name], array), name)
        for name, array in earlier.items()
        if name in outcome.arrays
    ]
    return max(found, default=(math.inf, "what there is"))


def _relative(new: np.ndarray[Any, Any], old: np.ndarray[Any, Any]) -> float:
    if (
        new.shape != old.shape
        or new.dtype.kind not in "fiu"
        or old.dtype.kind not in "fiu"
    ):
        return 0.0 if np.array_equal(new, old) else math.inf
    both_nan = np.isnan(new) & np.isnan(old) if new.dtype.kind == "f" else new != new
    apart = np.where(both_nan, 0.0, np.abs(new - old))
    scale = np.nanmax(np.abs(old), initial=np.finfo(float).tiny)
    largest = float(np.max(apart, initial=0.0) / scale)
    return math.inf if math.isnan(largest) else largest
