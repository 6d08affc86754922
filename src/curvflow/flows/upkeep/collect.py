"""Collect unneeded payloads: move them to the trash, and empty the trash.

Two passes part a payload from the disk: the first moves it to the trash, where it stays
readable, the second removes it. The entry of the log comes before the first move, so
that all readers see one order; a payload that is still there after it is used as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from curvflow.errors import StoreError
from curvflow.flows.upkeep.proposal import GRACE, KEEP_RUNS, Proposal, propose
from curvflow.stores.base import Index, Store
from curvflow.stores.trash import Item, payload_folder, trash_folder

ATTEMPTS = 20


@dataclass(frozen=True)
class CollectionOutcome:
    """The outcome of a collection.

    Attributes:
        proposal: what it set out to do.
        number: of its entry of the log; None if no payload was to go.
    """

    proposal: Proposal
    number: int | None


def collect(
    store: Store,
    *,
    keep_runs: int = KEEP_RUNS,
    drop: Collection[str] = (),
    grace: float = GRACE,
) -> CollectionOutcome:
    """Move unneeded payloads to the trash; remove those moved there before.

    Args:
        store: all studies in it.
        keep_runs: number of finished runs to keep per study.
        drop: kinds whose payloads go although kept runs name them.
        grace: seconds, by the store's clock, before unfinished files go.

    Returns:
        What was done; nothing if the proposal is blocked.

    Raises:
        UnknownNameError: the store holds no results of a kind in `drop`.
        StoreError: the store cannot be written, or changes all the time.
    """
    for _ in range(ATTEMPTS):
        proposal = propose(store, keep_runs=keep_runs, drop=drop, grace=grace)
        if proposal.blocked:
            return CollectionOutcome(proposal, None)
        names = [removal.item.payload for removal in proposal.removals]
        number = (
            store.evict(names, "collected", unless=_outdated(proposal))
            if names
            else None
        )
        if number is not None or not names:
            _carry_out(store, proposal, number)
            return CollectionOutcome(proposal, number)
    raise StoreError(
        f"{store.location}: expected a moment in which no run begins or ends, got "
        f"{ATTEMPTS} changes. Collect when fewer runs are active."
    )


def _outdated(proposal: Proposal) -> Callable[[Index], bool]:
    """Return a test whether later entries of the log invalidate a proposal."""
    before = proposal.index
    payloads = {removal.item.payload for removal in proposal.removals}
    runs = [(run.begun, run.ended) for run in before.runs]

    def outdated(now: Index) -> bool:
        if now.number == before.number:
            return False
        return (
            [(run.begun, run.ended) for run in now.runs] != runs
            or now.pins != before.pins
            or not payloads.isdisjoint(now.evicted - before.evicted)
            or any(
                number > before.number and receipt.payload in payloads
                for (number, _), receipt in now.rows.items()
            )
        )

    return outdated


def _move_aside(store: Store, items: Sequence[Item], number: int) -> None:
    """Move payloads to the trash, and back if they were committed meanwhile."""
    trash = trash_folder("trash", number)
    for item in items:
        store.files.move(item, trash)
    evicted = store.index().evicted
    for item in items:
        if item.payload not in evicted:
            moved = replace(item, path=f"{trash}/{item.name}")
            store.files.move(moved, payload_folder(item))


def _carry_out(store: Store, proposal: Proposal, number: int | None) -> None:
    files = store.files
    for item in proposal.restored:
        files.move(item, payload_folder(item))
    if number is not None:
        _move_aside(store, [removal.item for removal in proposal.removals], number)
    for items in proposal.leftovers.values():
        files.remove(items)
    files.redate(proposal.ahead)
    live = {run.begun for run in proposal.kept.live}
    gone = {run.begun for run in proposal.index.runs} - live
    # Of a run that the log has lost by a merge, nothing tells but its heartbeats.
    store.claims.sweep(
        lambda begun: begun in gone or begun not in store.heartbeats(),
        readers=store.heartbeats,
    )
