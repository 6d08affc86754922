"""The part of a computation's time that going on from it does not take again."""

from __future__ import annotations

from curvflow.errors import StoreError
from curvflow.schemas.kind import Kind
from curvflow.schemas.records.receipts import Receipt
from curvflow.stores.base import Store

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
