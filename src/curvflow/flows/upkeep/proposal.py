"""The proposal of a collection: which payloads would go, and why."""

from __future__ import annotations

from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from curvflow.errors import UnknownNameError, nearest
from curvflow.flows.upkeep.kept_payloads import KeptPayloads, find_kept_payloads
from curvflow.schemas.records.receipts import Receipt
from curvflow.stores.base import Index, Store
from curvflow.stores.trash import Folder, Item

KEEP_RUNS = 5
GRACE = 3600.0
# Between beginning and the first heartbeat, or between writing and renaming.
LEAST_GRACE = 60.0
# What an interrupted run has so far of a long tile: its next run goes on from there.
PARTIAL_GRACE = 7 * 24 * 3600.0

# Beyond this a date is no longer that of a clock which is a little ahead.
AHEAD = 60.0
DATED: tuple[Folder, ...] = ("tmp", "partials", "runs")

UNUSED = "no kept run uses it"
STRUCK = "struck off"
ORPHAN = "orphan: holds no result"
COLLECTED_BEFORE = "collected before, still there"
DROPPED = "dropped on request"


@dataclass(frozen=True)
class Removal:
    """A payload to be removed.

    Attributes:
        item: its files.
        reason: for people.
        study: that computed it; empty if unknown.
        stage: that computed it; empty for an orphan.
        kind: of that stage.
        seconds: to recompute its live results.
    """

    item: Item
    reason: str
    study: str = ""
    stage: str = ""
    kind: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Proposal:
    """Payloads and files to remove, and what stays.

    Attributes:
        index: the log it was made of.
        kept: payloads that stay, and why.
        removals: payloads to move to the trash.
        restored: payloads in the trash that are needed after all.
        retained: numbers of payloads of dropped kinds that stay, by kind and holder.
        leftovers: files that go for good, by their description.
        staying: bytes of what stays: `payloads`, and what is in `quarantine`.
        ahead: files dated ahead of the store's clock, as by a copy from a machine whose
            clock is: until then they would count as just written.
    """

    index: Index
    kept: KeptPayloads
    removals: Sequence[Removal] = ()
    restored: Sequence[Item] = ()
    retained: Mapping[tuple[str, str], int] = field(default_factory=dict)
    leftovers: Mapping[str, Sequence[Item]] = field(default_factory=dict)
    staying: Mapping[str, int] = field(default_factory=dict)
    ahead: Sequence[Item] = ()

    @property
    def blocked(self) -> str:
        """Return the reason why nothing may be collected; empty without one."""
        run = self.kept.unknown
        if run is None:
            return ""
        return (
            f"run {run.number} of {run.study} may be running and has not recorded "
            "its plan"
        )

    def as_json(self) -> dict[str, Any]:
        """Return the proposal in the form of `curvflow gc --json`."""
        removals = self.removals
        return {
            "blocked": self.blocked or None,
            "groups": grouped(removals),
            "payloads": len(removals),
            "bytes": sum(removal.item.bytes for removal in removals),
            "seconds": round(sum(removal.seconds for removal in removals), 3),
            "held": [
                {"kind": kind, "payloads": number, "by": holder}
                for (kind, holder), number in self.retained.items()
            ],
            "leftovers": {
                group: {"files": len(items), "bytes": sum(item.bytes for item in items)}
                for group, items in self.leftovers.items()
            },
            "staying": dict(self.staying),
            "live_runs": [
                {"study": run.study, "run": run.number} for run in self.kept.live
            ],
        }


def grouped(removals: Sequence[Removal]) -> list[dict[str, Any]]:
    """Count payloads, bytes and seconds per group, the largest group first."""
    groups: dict[tuple[str, ...], list[Removal]] = defaultdict(list)
    for removal in removals:
        groups[removal.study, removal.stage, removal.kind, removal.reason].append(
            removal
        )
    records = [
        dict(zip(("study", "stage", "kind", "reason"), names, strict=True))
        | {
            "payloads": len(members),
            "bytes": sum(removal.item.bytes for removal in members),
            "seconds": round(sum(removal.seconds for removal in members), 3),
        }
        for names, members in groups.items()
    ]
    return sorted(records, key=lambda record: -int(record["bytes"]))


def propose(
    store: Store,
    *,
    keep_runs: int = KEEP_RUNS,
    drop: Collection[str] = (),
    grace: float = GRACE,
) -> Proposal:
    """Propose what a collection would remove.

    Args:
        store: all studies in it.
        keep_runs: number of finished runs to keep per study.
        drop: kinds whose payloads go although kept runs name them; those of pinned
            and live runs stay.
        grace: seconds, by the store's clock, before unfinished files and payloads
            without results go; a minute at least.

    Returns:
        The proposal; only its reason if the plan of a live run is not known.

    Raises:
        UnknownNameError: the store holds no results of a kind in `drop`.
        StoreError: the store cannot be read.
    """
    grace = max(grace, LEAST_GRACE)
    now = store.files.clock()
    # Listed before the log is read: what a run that is over by then has made is in it,
    # and what one that is still at work makes is younger than its beginning.
    payloads = store.files.items("payloads")
    trash = store.files.items("trash")
    index = store.index()
    _check_kinds(index, drop)
    kept = find_kept_payloads(store, index, keep_runs=keep_runs, grace=grace)
    if kept.unknown is not None:
        return Proposal(index, kept)
    judge = _Judge(index, kept, drop, before=min(now - grace, kept.since))
    removals = [removal for item in payloads if (removal := judge.removal(item))]
    restored = [item for item in trash if judge.is_wanted(item)]
    staying = sum(item.bytes for item in payloads)
    others = chain.from_iterable(map(store.files.items, DATED))
    return Proposal(
        index,
        kept,
        removals,
        restored,
        Counter(held for item in payloads if (held := judge.retained(item))),
        _leftovers(store, index, kept, trash, restored, now=now, grace=grace),
        {
            "payloads": staying - sum(removal.item.bytes for removal in removals),
            "quarantine": sum(i.bytes for i in store.files.items("quarantine")),
        },
        [item for item in chain(payloads, trash, others) if item.time > now + AHEAD],
    )


def _check_kinds(index: Index, drop: Collection[str]) -> None:
    known = {receipt.kind for receipt in index.rows.values()}
    for name in drop:
        if name not in known:
            kinds = sorted({r.kind for r in index.rows.values() if r.stage == name})
            hint = nearest(name, known) or "It has none."
            if kinds:
                hint = f"{name} is a stage of kind {' or '.join(kinds)}."
            raise UnknownNameError(
                f"--drop: expected a kind with results in the store, got '{name}'. "
                f"{hint}"
            )


class _Judge:
    """Decides for each payload whether it goes."""

    def __init__(
        self, index: Index, kept: KeptPayloads, drop: Collection[str], *, before: float
    ) -> None:
        self._index, self._kept, self._drop = index, kept, frozenset(drop)
        self._before, self._pinned = before, kept.pinned
        self._rows: defaultdict[str, list[tuple[int, Receipt]]] = defaultdict(list)
        for (number, _), receipt in index.rows.items():
            if receipt.payload:
                self._rows[receipt.payload].append((number, receipt))
        self._runs = [run.begun for run in index.runs]

    def removal(self, item: Item) -> Removal | None:
        rows = self._rows.get(item.payload, [])
        reason = self._reason(item, rows)
        if reason is None or not rows:
            return Removal(item, reason) if reason else None
        number, first = rows[0]
        live = self._live(rows)
        return Removal(
            item,
            reason,
            self._study(number, first),
            first.stage,
            first.kind,
            sum(receipt.seconds for receipt in live.values()),
        )

    def retained(self, item: Item) -> tuple[str, str] | None:
        """Return kind and holder of a payload of a dropped kind that stays."""
        rows, name = self._rows.get(item.payload, []), item.payload
        if not rows or not {receipt.kind for _, receipt in rows} <= self._drop:
            return None
        pins = sorted(
            pin for pin, payloads in self._kept.pins.items() if name in payloads
        )
        if pins:
            return rows[0][1].kind, f"pinned by {', '.join(pins)}"
        if name in self._kept.working:
            return rows[0][1].kind, "in use by a live run"
        return None

    def is_wanted(self, item: Item) -> bool:
        """Return whether a payload in the trash is committed, pinned or planned."""
        if item.payload in self._kept.working | self._pinned:
            return True
        return item.payload in self._rows and item.payload not in self._index.evicted

    def _reason(self, item: Item, rows: Sequence[tuple[int, Receipt]]) -> str | None:
        name, kept = item.payload, self._kept
        if name in kept.working or name in self._pinned or item.time >= kept.since:
            return None
        if not rows:
            return ORPHAN if item.time < self._before else None
        if name in kept.kept:
            return DROPPED if {r.kind for _, r in rows} <= self._drop else None
        if name in self._index.evicted:
            return COLLECTED_BEFORE
        return UNUSED if self._live(rows) else STRUCK

    def _live(self, rows: Sequence[tuple[int, Receipt]]) -> dict[str, Receipt]:
        live = self._index.receipts
        return {r.key: r for _, r in rows if _same(live.get(r.key), r)}

    def _study(self, number: int, receipt: Receipt) -> str:
        # Results of earlier versions do not say which run computed them.
        place = bisect(self._runs, receipt.run or number) - 1
        return self._index.runs[place].study if place >= 0 else ""


def _same(live: Receipt | None, receipt: Receipt) -> bool:
    return live is not None and live.payload == receipt.payload


def _leftovers(
    store: Store,
    index: Index,
    kept: KeptPayloads,
    trash: Sequence[Item],
    restored: Sequence[Item],
    *,
    now: float,
    grace: float,
) -> dict[str, list[Item]]:
    files, live = store.files, {run.begun for run in kept.live}
    runs = {run.begun for run in index.runs}
    groups = {
        # A run at work may have counted on what was moved after it began.
        "collected before": [
            item for item in trash if item not in restored and item.time < kept.since
        ],
        "unfinished files": [
            item
            for item in files.items("tmp")
            if item.time < min(now - grace, kept.since)
        ],
        "unfinished tiles": [
            item
            for item in files.items("partials")
            if not live and item.time < now - max(grace, PARTIAL_GRACE)
        ],
        "stale heartbeats": [
            item
            for item in files.items("runs")
            if (begun := int(item.payload)) in runs - live
            # Its entry was torn, or lost by a merge.
            or (begun not in runs and item.time < now - grace)
        ],
    }
    return {group: items for group, items in groups.items() if items}
